"""The oracle itself, on histories in which a fault was planted."""

import pytest

from partbox_lab.chaos.journal import HandlerCall
from partbox_lab.chaos.oracle import LoggedEvent, judge

LOG = [LoggedEvent(f"{aggregate}{seq}", aggregate, seq) for aggregate in "ab" for seq in (1, 2, 3)]


def call(event: str, start: float, end: float | None, epoch: int = 1, pid: int = 10) -> HandlerCall:
    return HandlerCall(event, event[0], int(event[1:]), 0, epoch, 1, pid, start, end)


def history() -> list[HandlerCall]:
    """All six events, one after the other, each for a second."""
    return [call(one.event, at, at + 1) for at, one in enumerate(LOG, start=1)]


def test_a_correct_history_has_no_violation():
    verdict = judge(LOG, history())
    assert (verdict.wrong(), verdict.repeats) == ({}, [])


def test_a_missing_delivery_is_a_loss():
    calls = [one for one in history() if one.event != "b3"]
    assert judge(LOG, calls).lost == [LoggedEvent("b3", "b", 3)]


def test_a_delivery_that_never_ended_is_a_loss():
    calls = history()
    calls[-1].end = None
    assert judge(LOG, calls).lost == [LoggedEvent("b3", "b", 3)]


def test_two_deliveries_in_swapped_order_are_found():
    calls = history()
    calls[0].event, calls[0].seq, calls[1].event, calls[1].seq = "a2", 2, "a1", 1
    verdict = judge(LOG, calls)
    assert [one.event for one in verdict.too_early] == ["a2"]
    assert [one.event for one in verdict.backwards] == ["a1"]


def test_an_event_that_is_delivered_while_an_earlier_one_is_skipped_is_too_early():
    calls = [one for one in history() if one.event != "a2"] + [call("a2", 9, 10, epoch=2)]
    assert [one.event for one in judge(LOG, calls).too_early] == ["a3"]


def test_a_second_delivery_is_a_repeat():
    calls = [*history(), call("a3", 8, 9, epoch=2)]
    verdict = judge(LOG, calls)
    assert [(one.event, one.epoch) for one in verdict.repeats] == [("a3", 2)]
    assert verdict.wrong() == {}


def test_a_suffix_repeated_in_order_under_a_new_epoch_is_excused():
    calls = [*history(), *(call(f"a{seq}", 7 + seq, 7.5 + seq, epoch=2, pid=20) for seq in (2, 3))]
    verdict = judge(LOG, calls)
    assert (verdict.wrong(), len(verdict.repeats)) == ({}, 2)


def test_a_repeat_under_the_same_epoch_goes_backwards():
    verdict = judge(LOG, [*history(), call("a2", 8, 9)])
    assert verdict.wrong() == {"backwards": 1}


def test_a_repeated_suffix_in_swapped_order_goes_backwards():
    calls = [*history(), call("a3", 8, 9, epoch=2), call("a2", 9, 10, epoch=2)]
    assert judge(LOG, calls).wrong() == {"backwards": 1}


def test_a_start_under_an_older_epoch_is_stale():
    calls = [*history(), call("a2", 8, 9, epoch=5), call("a3", 9, 10, epoch=1)]
    assert [one.event for one in judge(LOG, calls).stale] == ["a3"]


@pytest.mark.parametrize("end", [2.5, 30.0], ids=["a little", "for long"])
def test_two_handlers_of_an_aggregate_at_the_same_time_are_found(end):
    calls = history()
    calls[0].end = end
    first, second = judge(LOG, calls).overlaps[0]
    assert (first.event, second.event) == ("a1", "a2")


def test_handlers_of_different_aggregates_may_run_at_the_same_time():
    calls = [call(one.event, one.seq, one.seq + 1) for one in LOG]
    assert judge(LOG, calls).wrong() == {}


def test_a_handler_that_was_killed_overlaps_nothing():
    calls = [
        call("a1", 0.5, None, pid=9),
        *(call(one.event, one2.start, one2.end, 2) for one, one2 in zip(LOG, history(), strict=True)),
    ]
    verdict = judge(LOG, calls)
    assert (verdict.wrong(), [one.event for one in verdict.repeats]) == ({}, ["a1"])


def test_a_delivery_of_an_event_that_was_never_published_is_unknown():
    assert judge(LOG, [*history(), call("a4", 8, 9)]).wrong() == {"unknown": 1}
