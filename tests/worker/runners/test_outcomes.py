"""The fate of events that cannot be finished now, on a real database."""

import asyncio
import threading

import pytest

from partbox import Dead, Done, RetryAfter, RetryAfterError, UnrecoverableError

LATER = 3_600  # seconds: never within a test, unless the due time is moved


class Refusal:
    """Does this with the chosen numbers as long as it is told to."""

    def __init__(self, desk, act, *numbers):
        self.desk, self.act, self.numbers, self.on = desk, act, set(numbers), True

    def __call__(self, event):
        self.desk.note(event)
        if event.payload["number"] in self.numbers and self.on:
            return self.act()
        return None


def retry_later():
    raise RetryAfterError(LATER, "not now")


def fail():
    raise ValueError("broken")


def test_a_failed_event_holds_its_followers_and_nobody_else(desk):
    handler = Refusal(desk, retry_later, 2)
    desk.outbox.register(handler, "Counted")
    desk.publish("k", 1, 2, 3, 4)
    desk.publish("other", 5, 6)

    with desk.outbox.worker():
        desk.eventually(lambda: desk.states() == {2: "retrying", 3: "held", 4: "held"})
        desk.eventually(lambda: desk.numbers("other") == [5, 6])
        desk.publish("k", 7)
        desk.eventually(lambda: desk.states().get(7) == "held")
        assert desk.numbers() == [1, 2]

        handler.on = False
        desk.make_due()
        desk.eventually(desk.all_done)

    assert desk.numbers() == [1, 2, 2, 3, 4, 7]
    assert [attempt for _, number, attempt in desk.seen if number == 2] == [1, 2]
    assert desk.parked() == []


SECOND = {
    "failure blocks": (retry_later, "block", "continue", {2: "retrying", 3: "held"}, [1, 2]),
    "failure continues": (retry_later, "continue", "continue", {2: "retrying"}, [1, 2, 3]),
    "dead continues": (lambda: Dead("no"), "block", "continue", {2: "dead"}, [1, 2, 3]),
    "dead blocks": (lambda: Dead("no"), "block", "block", {2: "dead", 3: "held"}, [1, 2]),
}


def test_followers_of_a_failed_event_run_or_wait_as_its_handler_declares(desk):
    """Each of the cases has a handler and an aggregate of its own, with 1, 2 and 3 after a ten of its own."""
    states, delivered = {}, {}
    for tens, (name, (act, on_failure, on_dead, parked, seen)) in enumerate(SECOND.items()):
        handler = Refusal(desk, act, 10 * tens + 2)
        desk.outbox.register(handler, name, name=name, on_failure=on_failure, on_dead=on_dead)
        desk.publish(name, *(10 * tens + number for number in (1, 2, 3)), event_type=name)
        states |= {10 * tens + number: state for number, state in parked.items()}
        delivered[name] = [10 * tens + number for number in seen]

    desk.drain()
    assert desk.states() == states
    assert {name: desk.numbers(name) for name in SECOND} == delivered


OUTCOMES = {
    "raised": (fail, "retrying", 1),
    "RetryAfterError": (retry_later, "retrying", 1),
    "RetryAfter": (lambda: RetryAfter(LATER), "deferred", 0),
    "Dead": (lambda: Dead("over"), "dead", 1),
    "wrong type": (lambda: 42, "retrying", 1),
    "UnrecoverableError": (lambda: (_ for _ in ()).throw(UnrecoverableError("never")), "dead", 1),
    "SystemExit": (lambda: (_ for _ in ()).throw(SystemExit(1)), "retrying", 1),
}


def test_each_outcome_has_its_state_and_its_attempts(desk_with):
    desk = desk_with(retry=f"fixed:{LATER}")
    names = list(OUTCOMES)
    for number, name in enumerate(names):
        desk.outbox.register(Refusal(desk, OUTCOMES[name][0], number), name, name=name)
        desk.publish(name, number, event_type=name)

    desk.drain()
    parked = {names[number]: (state, attempts) for number, state, attempts, _ in desk.parked()}
    assert parked == {name: (state, attempts) for name, (_, state, attempts) in OUTCOMES.items()}


def test_an_event_whose_handler_returns_done_is_not_parked(desk):
    desk.outbox.register(lambda event: desk.note(event) or Done(), "Counted")
    desk.publish("k", 1, 2)
    assert desk.outbox.drain()
    assert desk.numbers() == [1, 2]
    assert desk.parked() == []


def test_attempts_run_out_and_the_followers_go_on(desk_with):
    desk = desk_with(max_attempts=3)
    desk.outbox.register(Refusal(desk, fail, 1), "Counted")
    desk.publish("k", 1, 2)
    for _ in range(3):
        desk.drain_again()
    assert desk.parked() == [(1, "dead", 3, False)]
    assert desk.numbers() == [1, 1, 1, 2]
    (error,) = desk.conn.execute("select last_error from partbox.parked").fetchone()
    assert error == "ValueError: broken"


def test_an_error_text_is_cut_and_storable(desk_with, caplog):
    caplog.set_level("CRITICAL", "partbox")  # a lone surrogate in a captured log cannot be sent between test processes
    desk = desk_with(error_limit=20)

    def shout(event):
        raise UnrecoverableError("a\0b" + "x" * 10_000 + "\ud800")

    desk.outbox.register(shout, "Counted")
    desk.publish("k", 1)
    desk.drain()
    (error,) = desk.conn.execute("select last_error from partbox.parked").fetchone()
    assert len(error) == 20


@pytest.mark.parametrize(
    ("mode", "states"), [("dead", {1: "dead"}), ("ignore", {}), ("retry", {1: "deferred", 2: "held"})]
)
def test_an_event_without_a_handler_is_treated_as_the_setting_says(desk_with, mode, states):
    desk = desk_with(on_unroutable=mode)
    desk.outbox.register(desk.note, "Counted")
    desk.publish("k", 1, event_type="Unknown")
    desk.publish("k", 2)
    desk.drain()
    assert desk.states() == states
    assert desk.numbers() == ([] if 2 in states else [2])


def test_an_undecodable_payload_is_dead_at_once_and_charged_nothing(desk):
    desk.outbox.register(lambda event: event.payload, "Counted")
    with desk.conn.transaction():
        desk.outbox.publish(desk.conn, "Counted", b"\x00", content_type="application/x-unknown", aggregate_id="k")
        desk.conn.execute("update partbox.record set headers = null")
    desk.drain()
    assert desk.conn.execute("select state, attempts from partbox.parked").fetchall() == [("dead", 0)]


def test_events_without_an_aggregate_block_nothing(desk):
    handler = Refusal(desk, retry_later, 1)
    desk.outbox.register(handler, "Counted")
    desk.publish(None, 1, 2, 3)
    desk.drain()
    assert sorted(desk.numbers(None)) == [1, 2, 3]
    assert desk.parked() == [(1, "retrying", 1, False)]
    handler.on = False
    desk.drain_again()
    assert desk.all_done()


def test_a_delayed_event_waits_and_later_ones_pass_it(desk):
    desk.outbox.register(desk.note, "Counted")
    desk.publish("k", 1, deliver_after=LATER)
    desk.publish("k", 2)
    desk.drain()
    assert desk.numbers() == [2]
    assert desk.parked() == [(1, "scheduled", 0, False)]
    desk.drain_again()
    assert desk.numbers() == [2, 1]
    assert desk.all_done()


def test_a_delayed_event_that_is_due_waits_behind_a_blocked_key(desk):
    handler = Refusal(desk, retry_later, 2)
    desk.outbox.register(handler, "Counted")
    desk.publish("k", 1, deliver_after=LATER)
    desk.publish("k", 2, 3)
    desk.drain()
    assert desk.states() == {1: "scheduled", 2: "retrying", 3: "held"}
    desk.conn.execute("update partbox.parked set due_at = clock_timestamp() where state = 'scheduled'")
    desk.drain()
    assert desk.states().get(1) in ("held", None)
    handler.on = False
    desk.drain_again()
    assert desk.all_done()
    assert desk.numbers()[0] == 2
    assert sorted(desk.numbers()[1:]) == [1, 2, 3]


def test_parked_rows_survive_a_restart_in_their_order(desk):
    handler = Refusal(desk, retry_later, 2)
    desk.outbox.register(handler, "Counted")
    desk.publish("k", 1, 2, 3)
    desk.drain()
    assert desk.states() == {2: "retrying", 3: "held"}
    desk.publish("k", 4)
    desk.drain()
    assert desk.states() == {2: "retrying", 3: "held", 4: "held"}
    assert desk.numbers() == [1, 2]
    handler.on = False
    desk.drain_again()
    assert desk.all_done()
    assert desk.numbers() == [1, 2, 2, 3, 4]


def test_a_worker_retries_failed_events_by_itself(desk_with):
    desk = desk_with(retry="fixed:0.05")
    handler = Refusal(desk, fail, *range(0, 50, 7))
    desk.outbox.register(lambda event: handler(event) if event.attempt < 3 else desk.note(event), "Counted")
    desk.publish("k", *range(50))
    with desk.outbox.worker():
        desk.eventually(desk.all_done)
    firsts = [number for _, number, _ in desk.seen]
    assert list(dict.fromkeys(firsts)) == list(range(50))


def test_a_full_window_is_freed_of_a_handler_that_runs_long(desk_with):
    desk = desk_with(window=8, concurrency=2)
    (partition,) = desk.conn.execute("select partbox.partition_of('slow')").fetchone()
    quick = next(f"q{n}" for n in range(10_000) if _partition(desk, f"q{n}") == partition)
    release = threading.Event()

    def handle(event):
        desk.note(event)
        if event.aggregate_id == "slow" and event.payload["number"] == 0:
            release.wait(120)

    desk.outbox.register(handle, "Counted")
    desk.publish("slow", 0, 1, 2)
    desk.publish(quick, *range(100))
    with desk.outbox.worker():
        desk.eventually(lambda: desk.numbers(quick) == list(range(100)))
        assert desk.numbers("slow") == [0]
        assert desk.states()[0] == "ready"
        release.set()
        desk.eventually(desk.all_done)
    assert desk.numbers("slow") == [0, 1, 2]


def test_a_failing_aggregate_has_few_rows_and_holds_up_no_other(desk_with):
    desk = desk_with(spill_after=20, window=20, retry=f"fixed:{LATER}")
    handler = Refusal(desk, fail, *range(1_000))
    desk.outbox.register(handler, "Counted")
    for number in range(60):
        desk.publish(f"k{number}", number)
    desk.publish("hot", *range(200, 400))
    (partition,) = desk.conn.execute("select partbox.partition_of('hot')").fetchone()

    def of_hot():
        return desk.conn.execute("select count(*) from partbox.parked where partition = %s", (partition,)).fetchone()[0]

    with desk.outbox.worker():
        desk.eventually(lambda: of_hot() >= 15)
        desk.eventually(lambda: desk.blocked_keys() == 61)
        desk.eventually(lambda: desk.conn.execute("select from partbox.spill").rowcount == 1)
        assert of_hot() <= 40
        handler.on = False
        desk.eventually(lambda: desk.make_due() or desk.all_done())
    assert [*dict.fromkeys(desk.numbers("hot"))] == list(range(200, 400))


def test_async_and_sync_handlers_of_one_aggregate_take_turns_in_order(desk):
    running = set()

    async def slowly(event):
        assert not running
        running.add(event.id)
        await asyncio.sleep(0.001)
        running.discard(event.id)
        desk.note(event)

    def quickly(event):
        assert not running
        desk.note(event)

    desk.outbox.register(slowly, "Async")
    desk.outbox.register(quickly, "Sync")
    for number in range(40):
        desk.publish("k", number, event_type="Async" if number % 3 else "Sync")
    assert desk.outbox.drain()
    assert desk.numbers() == list(range(40))
    assert desk.parked() == []


def test_async_handlers_share_the_concurrency(desk):
    most = now = 0

    async def count(event):
        nonlocal most, now
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.01)
        now -= 1
        desk.note(event)

    desk.outbox.register(count, "Counted")
    for number in range(60):
        desk.publish(f"k{number}", number)
    assert desk.outbox.drain(concurrency=7)
    assert len(desk.seen) == 60
    assert 2 <= most <= 7


def test_an_async_handler_over_its_time_is_cancelled_and_retried(desk_with):
    desk = desk_with(retry=f"fixed:{LATER}")

    async def hang(event):
        desk.note(event)
        await asyncio.sleep(60)

    desk.outbox.register(hang, "Counted", timeout=0.05)
    desk.publish("k", 1)
    desk.drain()
    assert [row[1:3] for row in desk.parked()] == [("retrying", 1)]


def _partition(desk, key):
    from partbox import partition_of

    return partition_of(key)
