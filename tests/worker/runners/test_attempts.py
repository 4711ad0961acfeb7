"""What table `attempt` keeps of an event: failures, ends, what operators did; nothing of a delivery at the first go."""

import asyncio
import os

import pytest
from planted_records import Planter

from partbox import Dead, Done, DownstreamUnavailable, Ignore, RetryAfter

OUTCOMES = """
select (r.payload ->> 'number')::integer, a.attempt, a.outcome, a.error from partbox.attempt a
  join partbox.record r on r.partition >= 0 and r.id = a.record_id order by a.at, a.record_id"""


def told(desk):
    """(number, attempt, outcome, error) of each row, in the order of time."""
    return desk.conn.execute(OUTCOMES).fetchall()


def outcomes(desk, number):
    return [outcome for of, _, outcome, _ in told(desk) if of == number]


class Failing:
    """Fails with an error until so many attempts were made of an event with one of these numbers."""

    def __init__(self, *numbers, attempts=2, error=lambda: ValueError("no")):
        self.numbers, self.attempts, self.error = numbers, attempts, error

    def plain(self, event):
        if event.payload["number"] in self.numbers and event.attempt <= self.attempts:
            raise self.error()

    async def later(self, event):
        await asyncio.sleep(0)
        self.plain(event)

    def together(self, events):
        for event in events:
            self.plain(event)

    def within(self, event, conn):
        conn.execute("select 1")
        self.plain(event)


SHAPES = {
    "plain": {},
    "later": {},
    "together": {"max_size": 3},
    "within": {"transactional": True},
}


@pytest.mark.parametrize("shape", SHAPES)
def test_each_failed_attempt_leaves_a_row_and_so_does_the_delivery_of_an_event_that_waited(desk, shape):
    handler = getattr(Failing(2), shape)
    if shape == "together":
        desk.outbox.on_batch("Counted", **SHAPES[shape])(handler)
    else:
        desk.outbox.register(handler, "Counted", **SHAPES[shape])
    desk.publish("k", 1, 2, 3)
    desk.publish("other", 4)
    desk.drain()
    for _ in range(3):
        desk.drain_again()
    assert desk.all_done()
    first = [(number, row) for number, *row in told(desk) if number in (1, 4)]
    if shape != "together":  # a list fails as a whole
        assert first == []
    assert [tuple(row) for number, *row in told(desk) if number == 2][-3:] == [
        (1, "failed", "ValueError: no"),
        (2, "failed", "ValueError: no"),
        (3, "done", None),
    ]
    assert outcomes(desk, 3) == ["done"]


def test_a_delivery_at_the_first_attempt_leaves_no_row(desk):
    desk.outbox.register(desk.note, "Counted")
    desk.publish("k", *range(100))
    desk.drain()
    assert desk.all_done()
    assert told(desk) == []


def test_a_row_names_the_process_and_the_seconds_that_the_handler_ran(desk):
    ran = asyncio.Event()

    def handler(event):
        if not ran.is_set():
            ran.set()
            raise ValueError("no")

    desk.outbox.register(handler, "Counted")
    desk.publish("k", 1)
    with desk.outbox.worker():
        desk.eventually(lambda: desk.states() == {1: "retrying"})
        desk.make_due()
        desk.eventually(desk.all_done)
    failed, done = desk.conn.execute("select instance, seconds, at from partbox.attempt order by at").fetchall()
    assert failed[0] == done[0]
    assert failed[0].startswith(f"{os.getpid()} on ")
    assert failed[1] >= 0
    assert done[1] is None
    assert failed[2] < done[2]


def test_the_last_ten_attempts_are_kept(desk):
    desk.outbox.register(Failing(1, attempts=14).plain, "Counted", max_attempts=None)
    desk.publish("k", 1)
    desk.publish("other", 2)
    desk.drain()
    for _ in range(14):
        desk.drain_again()
    assert desk.all_done()
    assert [(attempt, outcome) for _, attempt, outcome, _ in told(desk)] == [
        *((attempt, "failed") for attempt in range(6, 15)),
        (15, "done"),
    ]


@pytest.mark.parametrize("shape", ["plain", "within"])
@pytest.mark.parametrize("before", [0, 1])
def test_an_event_whose_error_is_ignored_is_not_said_to_be_done(desk, shape, before):
    def advise(event, error, attempt):
        return Ignore() if attempt > before else None

    handler = Failing(2, attempts=9)
    desk.outbox.register(getattr(handler, shape), "Counted", on_error=advise, **SHAPES[shape])
    desk.publish("k", 1, 2)
    desk.drain()
    desk.drain_again()
    assert desk.all_done()
    expected = [(2, 1, "failed", "ValueError: no"), (2, 2, "ignored", "ValueError: no")]
    assert told(desk) == (expected if before else [(2, 1, "ignored", "ValueError: no")])


def test_events_that_on_error_calls_done_and_events_that_are_put_off_leave_no_row(desk):
    answers = iter([RetryAfter(0)])
    desk.outbox.register(Failing(1).plain, "Counted", on_error=lambda event, error, attempt: Done())
    desk.outbox.register(lambda event: next(answers, None), "Late")
    desk.publish("k", 1)
    desk.publish("other", 2, event_type="Late")
    desk.drain()
    assert told(desk) == []
    desk.drain_again()
    assert told(desk) == [(2, 1, "done", None)]


def test_an_attempt_that_opens_the_circuit_has_failed_and_events_that_wait_for_it_have_not(desk):
    away = Failing(1, 2, 3, attempts=1, error=lambda: DownstreamUnavailable("away"))
    desk.outbox.register(away.plain, "Counted")
    for number in (1, 2, 3):
        desk.publish(f"k{number}", number)
    desk.drain()
    assert set(desk.states().values()) == {"deferred"}
    assert [(number, attempt, outcome) for number, attempt, outcome, _ in told(desk)] == [(1, 0, "failed")]


def test_actions_of_operators_leave_rows_and_a_discarded_event_is_not_recorded_as_done(desk):
    handler = Failing(1, 2, 3, attempts=1)
    desk.outbox.register(handler.plain, "Counted", max_attempts=1)
    for number in (1, 2):
        desk.publish(f"k{number}", number)
    desk.drain()
    (one, two) = [each.record_id for each in desk.outbox.dead.list()]
    desk.outbox.dead.discard(two)
    desk.outbox.dead.replay(one)
    handler.numbers = ()
    desk.drain()
    assert outcomes(desk, 1) == ["dead", "replayed", "done"]
    assert outcomes(desk, 2) == ["dead", "discarded"]


def test_a_skipped_head_is_recorded_with_its_reason(desk):
    desk.outbox.register(Failing(1, attempts=9).plain, "Counted")
    desk.publish("k", 1, 2)
    desk.drain()
    desk.outbox.blocked.skip("Key", "k", reason="spilt")
    desk.drain()
    assert told(desk)[1:] == [(1, 1, "skipped", "spilt"), (2, 1, "done", None)]


def test_an_event_that_a_dead_process_had_begun_is_recorded_as_interrupted_and_repeated(desk, conn):
    """And what it may have begun is told apart from what was delivered once."""
    planter = Planter(conn)
    planter.park("begun", "ready", blocks=True, attempts=1, started=True, payload={"number": 1})
    planter.publish("next", payload={"number": 2})
    conn.execute("update partbox.partition set suspect_until_id = (select max(id) from partbox.record)")
    conn.execute("update partbox.parked set started_at = now() - interval '1 hour'")
    desk.outbox.register(lambda event: None, "Placed")
    desk.drain()
    assert desk.all_done()
    assert told(desk) == [(1, 1, "interrupted", None), (1, 2, "repeated", None), (2, 1, "repeated", None)]


def test_a_charged_event_that_fails_is_not_recorded_as_interrupted(desk, conn):
    Planter(conn).publish("k", payload={"number": 1})
    conn.execute("update partbox.partition set suspect_until_id = (select max(id) from partbox.record)")
    desk.outbox.register(Failing(1, attempts=1).plain, "Placed")
    desk.drain()
    desk.drain_again()
    assert desk.all_done()
    assert outcomes(desk, 1) == ["failed", "done"]


def test_an_event_that_kills_each_process_is_recorded_as_dead(desk, conn):
    Planter(conn).park("k", "ready", blocks=True, attempts=3, started=True, payload={"number": 1})
    conn.execute("update partbox.parked set started_at = now() - interval '1 hour'")
    desk.outbox.register(lambda event: Dead("never run"), "Placed", max_attempts=3)
    desk.drain()
    (interrupted, dead) = told(desk)
    assert interrupted == (1, 3, "interrupted", None)
    assert dead[2:] == ("dead", "the process died 3 times handling the event")
