"""Interceptors around real deliveries: what they see, and what becomes of events when they fail."""

import asyncio
import threading
from contextlib import asynccontextmanager, contextmanager

import pytest

from partbox import Dead, Done, RetryAfter
from partbox.errors import RegistrationError, UnroutableError

LATER = 3_600  # seconds: never within a test, unless the due time is moved
RETRYING, HELD = ("retrying", 1, True), ("held", 0, True)


class Audit:
    """Keeps what it is told: (what, number …, outcome, error)."""

    def __init__(self):
        self.told = []
        self._lock = threading.Lock()

    def keep(self, *said):
        with self._lock:
            self.told.append(said)

    def before(self, event):
        self.keep("before", event.payload["number"])

    def after(self, event, outcome, error):
        self.keep("after", event.payload["number"], outcome, error)


class AsyncAudit(Audit):
    async def before(self, event):
        await asyncio.sleep(0)
        super().before(event)

    async def after(self, event, outcome, error):
        await asyncio.sleep(0)
        super().after(event, outcome, error)


class ListAudit(Audit):
    def before_batch(self, events):
        self.keep("before_batch", *(event.payload["number"] for event in events))

    def after_batch(self, events, outcomes, error):
        self.keep("after_batch", *(event.payload["number"] for event in events), outcomes, error)


class Broken(Exception):
    pass


def register_both(desk, handle, both=True):
    """This handler, and the same awaited; with `publish_both` each gets events of its own."""

    async def handle_async(event):
        return handle(event)

    if both:
        desk.outbox.register(handle, "Counted", name="plain")
    desk.outbox.register(handle_async, "Awaited", name="awaited")


def publish_both(desk, *numbers):
    """These to the plain handler, and those that are ten more to the other."""
    desk.publish("k", *numbers)
    desk.publish("awaited", *(number + 10 for number in numbers), event_type="Awaited")


@pytest.mark.parametrize("audit", [Audit, AsyncAudit])
def test_before_and_after_surround_every_delivery(desk, audit):
    audit = desk.outbox.intercept(audit())

    def note(event):
        audit.keep("handled", event.payload["number"])
        return Done()

    register_both(desk, note, both=type(audit) is Audit)
    desk.publish("awaited", 1, 2, event_type="Awaited")
    numbers = [(1, 2)]
    if type(audit) is Audit:  # an async one goes around async handlers only
        desk.publish("k", 11, 12)
        numbers.append((11, 12))
    assert desk.drain()
    for pair in numbers:
        assert [said for said in audit.told if said[1] in pair] == [
            step
            for number in pair
            for step in (("before", number), ("handled", number), ("after", number, Done(), None))
        ]
    assert len(audit.told) == 6 * len(numbers)
    assert desk.parked() == []


def test_the_interceptor_registered_first_is_the_outermost(desk):
    order = []

    @contextmanager
    def named(name):
        order.append(f"{name} in")
        yield
        order.append(f"{name} out")

    desk.outbox.intercept(lambda event: named("first"))
    desk.outbox.intercept(lambda event: named("second"))
    desk.outbox.register(lambda event: order.append("handled"), "Counted")
    desk.publish("k", 1)
    assert desk.drain()
    assert order == ["first in", "second in", "handled", "second out", "first out"]


def test_after_sees_what_became_of_each_attempt(desk_with):
    desk = desk_with(retry=f"fixed:{LATER}")
    audit = desk.outbox.intercept(Audit())
    error = Broken("handler")
    answers = iter([RetryAfter(LATER), error, Dead("over")])

    def answer(event):
        given = next(answers)
        if isinstance(given, Exception):
            raise given
        return given

    desk.outbox.register(answer, "Counted")
    desk.publish("k", 1)
    for state in ("deferred", "retrying", "dead"):
        desk.drain_again()
        assert desk.states() == {1: state}
    afters = [step for step in audit.told if step[0] == "after"]
    assert afters == [
        ("after", 1, RetryAfter(LATER), None),
        ("after", 1, None, error),
        ("after", 1, Dead("over"), None),
    ]


def test_a_failing_before_is_retried_as_the_handlers_error(desk_with):
    desk = desk_with(retry=f"fixed:{LATER}")

    class Refuses:
        def before(self, event):
            if event.payload["number"] in (2, 12) and event.attempt == 1:
                raise Broken("not yet")

    desk.outbox.intercept(Refuses())
    register_both(desk, desk.note)
    publish_both(desk, 1, 2, 3)
    desk.drain()
    assert desk.parked() == [(2, *RETRYING), (3, *HELD), (12, *RETRYING), (13, *HELD)]
    assert desk.numbers() == [1]
    assert desk.numbers("awaited") == [11]
    texts = desk.conn.execute("select last_error from partbox.parked where state = 'retrying'").fetchall()
    assert [text.endswith("Broken: not yet") for (text,) in texts] == [True, True]
    desk.drain_again()
    assert desk.all_done()
    assert [(number, attempt) for key, number, attempt in desk.seen if key == "k"] == [(1, 1), (2, 2), (3, 1)]
    awaited = [(number, attempt) for key, number, attempt in desk.seen if key == "awaited"]
    assert awaited == [(11, 1), (12, 2), (13, 1)]


def test_a_failing_after_is_logged_and_changes_nothing(desk, caplog):
    class Careless:
        def after(self, event, outcome, error):
            raise Broken("after")

    desk.outbox.intercept(Careless())
    register_both(desk, desk.note)
    publish_both(desk, 1, 2)
    assert desk.drain()
    assert desk.numbers() == [1, 2]
    assert desk.numbers("awaited") == [11, 12]
    assert desk.parked() == []
    errors = [record for record in caplog.records if record.levelname == "ERROR"]
    assert [record.name for record in errors] == ["partbox.worker"] * 4
    said = [record.getMessage() for record in errors]
    assert ["Careless" in each for each in said] == [True] * 4
    assert sorted("'Counted'" in each for each in said) == [False, False, True, True]
    assert sorted("'Awaited'" in each for each in said) == [False, False, True, True]
    assert ["number" in each for each in said] == [False] * 4  # payloads never go into logs


def test_an_error_that_a_context_manager_swallows_leaves_the_event_done(desk):
    @contextmanager
    def forgiving(event):
        try:
            yield
        except Broken:
            desk.note(event)

    def fail(event):
        raise Broken("no")

    desk.outbox.intercept(forgiving)
    register_both(desk, fail)
    publish_both(desk, 1, 2)
    assert desk.drain()
    assert desk.numbers() == [1, 2]
    assert desk.numbers("awaited") == [11, 12]
    assert desk.parked() == []


def test_an_async_context_manager_surrounds_an_async_handler_that_runs_out_of_time(desk_with):
    desk = desk_with(retry=f"fixed:{LATER}")
    left = []

    @asynccontextmanager
    async def session(event):
        try:
            yield
        except asyncio.CancelledError:
            left.append(event.id)
            raise

    async def hang(event):
        await asyncio.sleep(60)

    desk.outbox.intercept(session)
    desk.outbox.register(hang, "Counted", timeout=0.05)
    desk.publish("k", 1)
    desk.drain()
    assert [row[1:3] for row in desk.parked()] == [("retrying", 1)]
    assert len(left) == 1


# Batches.


def test_batch_methods_surround_a_list(desk):
    audit = desk.outbox.intercept(ListAudit())

    def answer(events):
        return [Dead("no") if event.payload["number"] in (2, 12) else None for event in events]

    async def answer_async(events):
        return answer(events)

    desk.outbox.on_batch("Counted", max_size=3)(answer)
    desk.outbox.on_batch("Awaited", max_size=3)(answer_async)
    publish_both(desk, 1, 2, 3)
    with desk.outbox.worker():
        desk.eventually(lambda: desk.states() == {2: "dead", 12: "dead"} and len(audit.told) == 4)
    for numbers in ((1, 2, 3), (11, 12, 13)):
        assert [said for said in audit.told if said[1] == numbers[0]] == [
            ("before_batch", *numbers),
            ("after_batch", *numbers, [None, Dead("no"), None], None),
        ]


def test_a_list_falls_back_on_before_and_after_of_each_event(desk):
    audit = desk.outbox.intercept(Audit())
    desk.outbox.on_batch("Counted", max_size=3)(lambda events: [Done()] * len(events))
    desk.publish("k", 1, 2, 3)
    assert desk.drain()
    assert audit.told == [("before", number) for number in (1, 2, 3)] + [
        ("after", number, Done(), None) for number in (3, 2, 1)
    ]


def test_a_failing_before_fails_its_list(desk_with):
    desk = desk_with(retry=f"fixed:{LATER}")
    handled = []

    class Refuses:
        def before(self, event):
            if event.payload["number"] == 2:
                raise Broken("no")

    desk.outbox.intercept(Refuses())
    desk.outbox.on_batch("Counted", max_size=3)(handled.extend)
    desk.publish("k", 1, 2, 3)
    desk.drain()
    assert desk.parked() == [(1, "retrying", 1, True), (2, "held", 0, True), (3, "held", 0, True)]
    assert handled == []


# Events without a handler.


@pytest.mark.parametrize(
    ("mode", "error", "parked", "audit"),
    [
        ("dead", UnroutableError, [("dead", 0)], Audit),
        ("ignore", type(None), [], AsyncAudit),
        pytest.param("dead", UnroutableError, [("dead", 0)], AsyncAudit, marks=pytest.mark.soak),
        pytest.param("ignore", type(None), [], Audit, marks=pytest.mark.soak),
    ],
)
def test_unroutable_events_are_intercepted_too(desk_with, mode, error, parked, audit):
    desk = desk_with(on_unroutable=mode)
    desk.outbox.register(note_later, "Other")
    audit = desk.outbox.intercept(audit())
    desk.publish("k", 1, event_type="Unknown")
    desk.drain()
    assert [row[1:3] for row in desk.parked()] == parked
    assert len(audit.told) == 2
    assert audit.told[0] == ("before", 1)
    assert type(audit.told[1][-1]) is error


async def note_later(event): ...


def test_a_function_for_unroutable_events_is_intercepted_with_its_outcome(desk_with):
    desk = desk_with(on_unroutable=lambda event: Dead("not ours"))
    audit = desk.outbox.intercept(Audit())
    desk.publish("k", 1, event_type="Unknown")
    desk.drain()
    assert desk.states() == {1: "dead"}
    assert audit.told == [("before", 1), ("after", 1, Dead("not ours"), None)]


# Others.


def test_a_transactional_handler_is_intercepted_with_its_event_and_keeps_its_connection(desk):
    audit = desk.outbox.intercept(Audit())
    desk.conn.execute("create table effect (number integer)")

    @desk.outbox.on("Counted", transactional=True)
    def write(event, conn):
        conn.execute("insert into effect values (%s)", (event.payload["number"],))

    desk.publish("k", 1, 2)
    assert desk.drain()
    assert desk.conn.execute("select array_agg(number order by number) from effect").fetchone() == ([1, 2],)
    assert audit.told == [step for number in (1, 2) for step in (("before", number), ("after", number, None, None))]


def test_a_worker_refuses_to_start_with_an_async_interceptor_around_a_plain_handler(desk):
    desk.outbox.intercept(AsyncAudit())
    desk.outbox.register(desk.note, "Counted")
    desk.publish("k", 1)
    with pytest.raises(
        RegistrationError, match=r"before of the interceptor .*AsyncAudit is async, but the handler .*note"
    ):
        desk.outbox.drain(timeout=5)
    assert desk.seen == []


def test_an_object_that_is_no_interceptor_is_refused_and_not_added(desk):
    with pytest.raises(RegistrationError, match="give an object with before"):
        desk.outbox.intercept(42)
    desk.outbox.register(desk.note, "Counted")
    desk.publish("k", 1)
    assert desk.drain()
    assert desk.numbers() == [1]
