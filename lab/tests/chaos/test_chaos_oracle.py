"""Faults and the repeats that they explain: histories with planted violations, beside a disturbed cluster."""

from collections import Counter

from partbox_lab.chaos.explained_duplicates import CRASH, LATE, MEMORY, Disturbance, explain
from partbox_lab.chaos.journal import HandlerCall
from partbox_lab.chaos.oracle import LoggedEvent
from partbox_lab.chaos.watcher import Regress, StoredCursor, forgotten, regresses

LOG = [LoggedEvent(f"{aggregate}{seq}", aggregate, seq) for aggregate in "ab" for seq in (1, 2, 3)]
FREE = LoggedEvent("free", "c", None)
OLD, NEW = 10, 20


def call(
    event: str, start: float, end: float | None, epoch: int = 1, pid: int = OLD, failed: bool = False
) -> HandlerCall:
    seq = int(event[1:]) if event != "free" else None
    return HandlerCall(event, "c" if seq is None else event[0], seq, 0, epoch, 1, pid, start, end, failed=failed)


def history() -> list[HandlerCall]:
    """All six events, one after the other, each for a second, by the old owner."""
    return [call(one.event, at, at + 1) for at, one in enumerate(LOG, start=1)]


def judged(deliveries, *disturbances, log=LOG, concurrency=1):
    return explain(log, deliveries, disturbances, concurrency)


def killed(at: float, pid: int | None = OLD, cause: str = "kill-process") -> Disturbance:
    return Disturbance(cause, at, at + 0.5, pid)


def frozen(at: float, until: float, pid: int = OLD) -> Disturbance:
    return Disturbance("freeze-process", at, until, pid, frozen=True)


def test_a_correct_history_needs_no_excuse():
    judgement = judged(history())
    assert (judgement.verdict.wrong(), judgement.repeats, judgement.unexplained) == ({}, Counter(), [])


def test_a_repeat_by_the_next_owner_after_a_kill_is_excused():
    judgement = judged([*history(), call("b3", 9, 10, 2, NEW)], killed(8))
    assert (judgement.repeats, judgement.unexplained) == ({"kill-process": 1}, [])


def test_a_repeat_without_any_cause_is_a_violation():
    judgement = judged([*history(), call("b3", 9, 10, 2, NEW)])
    assert [(first.pid, second.pid) for first, second in judgement.unexplained] == [(OLD, NEW)]


def test_a_kill_of_somebody_else_excuses_nothing():
    assert judged([*history(), call("b3", 9, 10, 2, NEW)], killed(8, pid=NEW)).unexplained


def test_a_kill_after_the_repeat_excuses_nothing():
    assert judged([*history(), call("b3", 9, 10, 2, NEW)], killed(9.5)).unexplained


def test_a_repeat_of_an_event_that_ended_long_before_the_kill_is_not_excused():
    at = 7 + MEMORY + 1
    assert judged([*history(), call("b3", at + 1, at + 2, 2, NEW)], killed(at)).unexplained


def test_seconds_in_which_no_owner_could_save_are_not_counted_and_excuse_nothing_by_themselves():
    at = 7 + MEMORY + 5
    calls = [*history(), call("b3", at + 1, at + 2, 2, NEW)]
    one, inside, other = (Disturbance("no-reconnect", *span, hinders=True) for span in ((5, 10), (8, 9), (9.5, 13)))
    assert judged(calls, killed(at), other, inside, one).unexplained == []
    assert judged(calls, killed(at), one, inside).unexplained, "3 s of 5"
    assert judged(calls, one, other).unexplained


def test_no_kill_excuses_a_repeat_within_one_life_of_an_owner():
    judgement = judged([*history(), call("b3", 9, 10)], killed(8))
    assert len(judgement.unexplained) == 1
    assert judgement.verdict.wrong() == {"backwards": 1}


def test_a_crash_of_the_database_excuses_an_owner_that_resumes_from_its_saved_cursor():
    judgement = judged([*history(), call("b2", 9, 10), call("b3", 10, 11)], killed(8, None, CRASH))
    assert (judgement.verdict.wrong(), judgement.repeats) == ({}, {CRASH: 2})


def test_a_crash_of_the_database_does_not_excuse_a_swap():
    calls = history()
    calls[0], calls[1] = call("a2", 1, 2), call("a1", 2, 3)
    assert judged(calls, killed(8, None, CRASH)).verdict.wrong() == {"too early": 1, "backwards": 1}


def test_a_crash_of_the_database_excuses_a_surviving_owner_for_a_while_only():
    crash = killed(8, None, CRASH)
    soon, late = crash.until + LATE - 1, crash.until + LATE + 1
    assert judged([*history(), call("b3", soon, soon + 1)], crash).unexplained == []
    assert len(judged([*history(), call("b3", late, late + 1)], crash).unexplained) == 1


def test_a_crash_of_the_database_excuses_the_next_owner_whenever_it_comes_and_once():
    again = [call("b3", 90, 91, 2, NEW), call("b3", 92, 93, 3, OLD)]
    judgement = judged([*history(), *again], killed(8, None, CRASH))
    assert [second.start for _, second in judgement.unexplained] == [92]


def test_nothing_excuses_a_loss():
    calls = [one for one in history() if one.event != "b3"]
    assert judged(calls, killed(5), frozen(5, 9), killed(5, None, CRASH)).verdict.lost == [LOG[-1]]


def test_nothing_excuses_the_delivery_of_an_uncommitted_event():
    assert judged([*history(), call("a4", 8, 9)], killed(5), frozen(5, 9)).verdict.wrong() == {"unknown": 1}


def test_a_handler_that_ran_when_its_process_froze_may_overlap_with_the_next_owner():
    calls = [*history()[:-1], call("b3", 6, 20), call("b3", 15, 16, 2, NEW)]
    assert judged(calls).verdict.wrong() == {"overlaps": 1}
    judgement = judged(calls, frozen(6.5, 14))
    assert (judgement.verdict.wrong(), judgement.unexplained) == ({}, [])


def test_a_freeze_of_another_process_does_not_excuse_two_handlers_of_an_aggregate_at_once():
    calls = [*history()[:-1], call("b3", 6, 20), call("b3", 15, 16, 2, NEW)]
    assert judged(calls, frozen(6.5, 14, pid=NEW)).verdict.wrong() == {"overlaps": 1}


def test_two_handlers_at_once_are_found_for_an_unordered_aggregate_too():
    calls = [*history(), call("free", 8, 10), call("free", 9, 11, 2, NEW)]
    assert judged(calls, log=[*LOG, FREE]).verdict.wrong() == {"overlaps": 1}


def test_a_start_after_a_later_owner_has_begun_is_found_across_aggregates():
    calls = [*history()[:-1], call("a3", 6, 6.5, 2, NEW), call("b3", 7, 8)]
    assert [one.event for one in judged(calls, killed(6)).verdict.stale] == ["b3"]


def test_a_freeze_excuses_one_start_by_each_handler_that_was_just_being_called_and_no_more():
    taken_over = [
        *history()[:4],
        call("b1", 10, 10.1, 2, NEW),
        call("b2", 10.2, 10.3, 2, NEW),
        call("b3", 11, 12, 2, NEW),
    ]
    late = [call("b2", 13.1, 13.2), call("b3", 13.3, 13.4)]
    judgement = judged([*taken_over, *late], frozen(5, 13))
    assert [one.event for one in judgement.verdict.stale] == ["b3"]
    assert judged([*taken_over, *late], frozen(5, 13), concurrency=2).verdict.stale == []


def test_a_handler_that_was_in_progress_when_frozen_leaves_no_excuse_for_another_start():
    taken_over = [*history()[:4], call("b1", 4.5, 13.05), call("b1", 10, 10.1, 2, NEW), call("b2", 10.2, 10.3, 2, NEW)]
    calls = [*taken_over, call("b3", 11, 12, 2, NEW), call("b2", 13.1, 13.2)]
    assert [one.start for one in judged(calls, frozen(5, 13)).verdict.stale] == [13.1]
    assert judged(calls, frozen(5, 13), concurrency=2).verdict.stale == []


def test_a_stale_start_long_after_the_thaw_is_not_excused():
    calls = [*history(), call("b3", 8, 9, 2, NEW), call("b3", 20, 21)]
    assert [one.start for one in judged(calls, frozen(7.5, 13)).verdict.stale] == [20]


def test_a_failed_attempt_is_no_delivery_and_its_retry_no_repeat():
    calls = [*history()[:-1], call("b3", 6, 6.5, failed=True), call("b3", 7, 8)]
    judgement = judged(calls)
    assert (judgement.verdict.wrong(), judgement.repeats) == ({}, {})
    assert judged(calls[:-1]).verdict.lost == [LOG[-1]]


def test_a_later_event_delivered_between_a_failed_attempt_and_its_retry_is_too_early():
    calls = [call("a1", 1, 2), call("a2", 2, 3, failed=True), call("a3", 3, 4), call("a2", 4, 5), *history()[3:]]
    assert [one.event for one in judged(calls).verdict.too_early] == ["a3"]


def cursor(epoch: int = 5, last_id: int = 100, xmax: int = 1000) -> StoredCursor:
    return StoredCursor(7, epoch, last_id, 0, xmax, owned=True)


def back(after: StoredCursor, crashed: bool = False) -> list[tuple[str, int, int]]:
    return [(one.what, one.before, one.after) for one in regresses({7: cursor()}, {7: after}, crashed)]


def test_a_stale_save_is_a_cursor_or_an_epoch_that_goes_back():
    assert back(cursor(epoch=4, last_id=99, xmax=999)) == [("epoch", 5, 4), ("last_id", 100, 99)]
    assert back(cursor(xmax=999)) == [("xmax", 1000, 999)]
    assert back(cursor(6, 101, 1001)) == []


def test_a_snapshot_held_back_by_an_unfinished_late_record_is_no_stale_save_though_the_last_id_rises():
    assert back(cursor(last_id=101, xmax=999)) == []


def test_a_crash_may_take_back_a_save_and_never_an_epoch():
    assert back(cursor(epoch=4, last_id=99, xmax=999), crashed=True) == [("epoch", 5, 4)]


def test_an_epoch_that_a_handler_has_seen_must_exist_at_the_end_of_the_run():
    calls = [call("a1", 1, 2, epoch=5), call("a2", 2, 3, epoch=6)]
    assert forgotten(calls, {0: cursor(epoch=6)}) == []
    assert forgotten(calls, {0: cursor(epoch=5)}) == [Regress(0, "epoch", 6, 5)]
