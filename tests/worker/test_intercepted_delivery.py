"""Interceptors around real deliveries: what they see, and what becomes of events when they fail."""

import asyncio
import threading
from contextlib import asynccontextmanager, contextmanager

import pytest

from partbox import Dead, Done, RetryAfter
from partbox.errors import RegistrationError, UnroutableError

LATER = 3_600  # seconds: never within a test, unless the due time is moved


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


@pytest.mark.parametrize(("audit", "awaited"), [(Audit, False), (Audit, True), (AsyncAudit, True)])
def test_before_and_after_surround_every_delivery(desk, audit, awaited):
    audit = desk.outbox.intercept(audit())

    def note(event):
        audit.keep("handled", event.payload["number"])
        return Done()

    async def note_async(event):
        return note(event)

    desk.outbox.register(note_async if awaited else note, "Counted")
    desk.publish("k", 1, 2)
    assert desk.outbox.drain()
    assert audit.told == [
        step for number in (1, 2) for step in (("before", number), ("handled", number), ("after", number, Done(), None))
    ]
    assert desk.parked() == []


def test_the_first_registered_is_the_outermost(desk):
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
    assert desk.outbox.drain()
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
    with desk.outbox.worker():
        for state in ("deferred", "retrying", "dead"):
            desk.eventually(lambda state=state: desk.states() == {1: state})
            desk.make_due()
    afters = [step for step in audit.told if step[0] == "after"]
    assert afters == [
        ("after", 1, RetryAfter(LATER), None),
        ("after", 1, None, error),
        ("after", 1, Dead("over"), None),
    ]


@pytest.mark.parametrize("awaited", [False, True], ids=["sync", "async"])
def test_a_failing_before_is_retried_as_the_handlers_error(desk_with, awaited):
    desk = desk_with(retry=f"fixed:{LATER}")

    class Refuses:
        def before(self, event):
            if event.payload["number"] == 2 and event.attempt == 1:
                raise Broken("not yet")

    async def note_async(event):
        desk.note(event)

    desk.outbox.intercept(Refuses())
    desk.outbox.register(note_async if awaited else desk.note, "Counted")
    desk.publish("k", 1, 2, 3)
    with desk.outbox.worker():
        desk.eventually(lambda: desk.parked() == [(2, "retrying", 1, True), (3, "held", 0, True)])
        assert desk.numbers() == [1]
        (text,) = desk.conn.execute("select last_error from partbox.parked where state = 'retrying'").fetchone()
        assert text.endswith("Broken: not yet")
        desk.make_due()
        desk.eventually(desk.all_done)
    assert [(number, attempt) for _, number, attempt in desk.seen] == [(1, 1), (2, 2), (3, 1)]


@pytest.mark.parametrize("awaited", [False, True], ids=["sync", "async"])
def test_a_failing_after_is_logged_and_changes_nothing(desk, awaited, caplog):
    class Careless:
        def after(self, event, outcome, error):
            raise Broken("after")

    async def note_async(event):
        desk.note(event)

    desk.outbox.intercept(Careless())
    desk.outbox.register(note_async if awaited else desk.note, "Counted")
    desk.publish("k", 1, 2)
    assert desk.outbox.drain()
    assert desk.numbers() == [1, 2]
    assert desk.parked() == []
    errors = [record for record in caplog.records if record.levelname == "ERROR"]
    assert [record.name for record in errors] == ["partbox.worker"] * 2
    assert "Careless" in errors[0].getMessage()
    assert "'Counted'" in errors[0].getMessage()
    assert "number" not in errors[0].getMessage()  # payloads never go into logs


@pytest.mark.parametrize("awaited", [False, True], ids=["sync", "async"])
def test_an_error_that_a_context_manager_swallows_leaves_the_event_done(desk, awaited):
    @contextmanager
    def forgiving(event):
        try:
            yield
        except Broken:
            desk.note(event)

    def fail(event):
        raise Broken("no")

    async def fail_async(event):
        fail(event)

    desk.outbox.intercept(forgiving)
    desk.outbox.register(fail_async if awaited else fail, "Counted")
    desk.publish("k", 1, 2)
    assert desk.outbox.drain()
    assert desk.numbers() == [1, 2]
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
    with desk.outbox.worker():
        desk.eventually(lambda: [row[1:3] for row in desk.parked()] == [("retrying", 1)])
    assert len(left) == 1


# Batches.


@pytest.mark.parametrize("awaited", [False, True], ids=["sync", "async"])
def test_batch_methods_surround_a_list(desk, awaited):
    audit = desk.outbox.intercept(ListAudit())

    def answer(events):
        return [Dead("no") if event.payload["number"] == 2 else None for event in events]

    async def answer_async(events):
        return answer(events)

    desk.outbox.on_batch("Counted", max_size=3)(answer_async if awaited else answer)
    desk.publish("k", 1, 2, 3)
    with desk.outbox.worker():
        desk.eventually(lambda: desk.states() == {2: "dead"} and len(audit.told) == 2)
    assert audit.told == [
        ("before_batch", 1, 2, 3),
        ("after_batch", 1, 2, 3, [None, Dead("no"), None], None),
    ]


def test_a_list_falls_back_on_before_and_after_of_each_event(desk):
    audit = desk.outbox.intercept(Audit())
    desk.outbox.on_batch("Counted", max_size=3)(lambda events: [Done()] * len(events))
    desk.publish("k", 1, 2, 3)
    assert desk.outbox.drain()
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
    with desk.outbox.worker():
        desk.eventually(lambda: desk.parked() == [(1, "retrying", 1, True), (2, "held", 0, True), (3, "held", 0, True)])
    assert handled == []


# Events without a handler.


@pytest.mark.parametrize(
    ("mode", "error", "parked"), [("dead", UnroutableError, [("dead", 0)]), ("ignore", type(None), [])]
)
@pytest.mark.parametrize("audit", [Audit, AsyncAudit])
def test_unroutable_events_are_intercepted_too(desk_with, mode, error, parked, audit):
    desk = desk_with(on_unroutable=mode)
    audit = desk.outbox.intercept(audit())
    desk.publish("k", 1, event_type="Unknown")
    with desk.outbox.worker():
        desk.eventually(lambda: len(audit.told) == 2 and [row[1:3] for row in desk.parked()] == parked)
    assert audit.told[0] == ("before", 1)
    assert type(audit.told[1][-1]) is error


def test_a_function_that_routes_the_rest_is_intercepted_with_its_outcome(desk_with):
    desk = desk_with(on_unroutable=lambda event: Dead("not ours"))
    audit = desk.outbox.intercept(Audit())
    desk.publish("k", 1, event_type="Unknown")
    with desk.outbox.worker():
        desk.eventually(lambda: desk.states() == {1: "dead"})
    assert audit.told == [("before", 1), ("after", 1, Dead("not ours"), None)]


# Others.


def test_a_transactional_handler_is_intercepted_with_its_event_and_keeps_its_connection(desk):
    audit = desk.outbox.intercept(Audit())
    desk.conn.execute("create table effect (number integer)")

    @desk.outbox.on("Counted", transactional=True)
    def write(event, conn):
        conn.execute("insert into effect values (%s)", (event.payload["number"],))

    desk.publish("k", 1, 2)
    assert desk.outbox.drain()
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


def test_what_is_no_interceptor_is_refused_and_not_added(desk):
    with pytest.raises(RegistrationError, match="give an object with before"):
        desk.outbox.intercept(42)
    desk.outbox.register(desk.note, "Counted")
    desk.publish("k", 1)
    assert desk.outbox.drain()
    assert desk.numbers() == [1]
