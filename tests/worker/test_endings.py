"""Every way an event can end, through the public API: each cell of the table, for every kind of handler.

A cell has an event type and an aggregate of its own, and three events: the middle one meets what the cell is about.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
from pydantic import BaseModel

from partbox import (
    Dead,
    Done,
    Event,
    Fixed,
    Ignore,
    Jittered,
    RetryAfter,
    RetryAfterError,
    UnrecoverableError,
)
from partbox.errors import DownstreamUnavailable

HOUR = 3_600.0  # seconds: never within a test, unless the due time is moved
LAST_RESORT = 60.0
KINDS = ["sync", "async", "batch", pytest.param("async batch", marks=pytest.mark.soak), "transactional"]


class Other(BaseModel):
    nothing_like_it: int


class Custom:
    """A policy of the application's own."""

    def should_retry(self, error: BaseException) -> bool:
        return "again" in str(error)

    def next_delay(self, attempt: int) -> float:
        return 100.0 * attempt


class Broken(Custom):
    def should_retry(self, error: BaseException) -> bool:
        raise OSError("no policy today")


def raises(error: BaseException) -> Callable[[Any], Any]:
    def act(event: Any) -> Any:
        raise error.with_traceback(None)

    return act


def returns(outcome: Any) -> Callable[[Any], Any]:
    return lambda event: outcome


def advises(advice: Any) -> dict[str, Any]:
    return {"on_error": lambda event, error, attempt: advice}


def fails_to_advise(event: Any, error: BaseException, attempt: int) -> None:
    raise OSError("no advice today")


class Cell(NamedTuple):
    """What the middle event meets, and how it is parked then: None for done. `error` is how its text begins."""

    act: Callable[[Any], Any]
    options: dict[str, Any]
    parked: tuple[str, int, bool] | None
    error: str | None = None
    delay: float | None = None
    fields: Mapping[str, Any] = MappingProxyType({})


broken = raises(ValueError("broken"))
once = {"max_attempts": 1}
on = {"on_failure": "continue"}
stop = {"on_dead": "block"}

CIRCUITS = {"downstream gone"}
CELLS = {
    "raised": Cell(broken, {}, ("retrying", 1, True), "ValueError: broken", HOUR),
    "raised, continue": Cell(broken, on, ("retrying", 1, False), "ValueError: broken", HOUR),
    "raised SystemExit": Cell(raises(SystemExit(1)), {}, ("retrying", 1, True), "SystemExit: 1"),
    "RetryAfterError": Cell(raises(RetryAfterError(70, "soon")), {}, ("retrying", 1, True), "partbox.", 70),
    "RetryAfterError, continue": Cell(raises(RetryAfterError(70)), on, ("retrying", 1, False), "partbox.", 70),
    "RetryAfterError at last": Cell(raises(RetryAfterError(70)), once, ("dead", 1, False), "partbox."),
    "downstream gone": Cell(raises(DownstreamUnavailable("down")), {}, ("deferred", 0, True), "partbox."),
    "RetryAfter": Cell(returns(RetryAfter(70)), {}, ("deferred", 0, True), None, 70),
    "RetryAfter, continue": Cell(returns(RetryAfter(70)), on, ("deferred", 0, False), None, 70),
    "RetryAfter at last": Cell(returns(RetryAfter(70)), once, ("deferred", 0, True), None, 70),
    "scheduled": Cell(broken, {}, ("scheduled", 0, False), None, 70, {"deliver_after": 70}),
    "exhausted": Cell(broken, once, ("dead", 1, False), "ValueError: broken"),
    "exhausted, block": Cell(broken, once | stop, ("dead", 1, True), "ValueError: broken"),
    "Dead": Cell(returns(Dead("no use")), {}, ("dead", 1, False), "no use"),
    "Dead, block": Cell(returns(Dead("no use")), stop, ("dead", 1, True), "no use"),
    "Dead without a reason": Cell(returns(Dead()), {}, ("dead", 1, False)),
    "unrecoverable": Cell(raises(UnrecoverableError("never")), {}, ("dead", 1, False), "partbox."),
    "unrecoverable, block": Cell(raises(UnrecoverableError("never")), stop, ("dead", 1, True), "partbox."),
    "Done": Cell(returns(Done()), {}, None),
    "garbage": Cell(returns(42), {}, ("retrying", 1, True), "TypeError: a handler may return"),
    "Ignore is for on_error": Cell(returns(Ignore()), {}, ("retrying", 1, True), "TypeError: a handler may return"),
    "does not fit": Cell(lambda event: event.payload_as(Other), {}, ("dead", 0, False), "partbox."),
    "does not fit, block": Cell(lambda event: event.payload_as(Other), stop, ("dead", 0, True), "partbox."),
    "undecodable": Cell(
        lambda event: event.payload, {}, ("dead", 0, False), "partbox.", None,
        {"payload": b"\x00", "content_type": "application/x-unknown"},
    ),
    "policy of its own": Cell(broken, {"retry": "fixed:80"}, ("retrying", 1, True), "ValueError", 80),
    "exponential": Cell(broken, {"retry": "exponential:90:100"}, ("retrying", 1, True), "ValueError", 90),
    "jittered": Cell(broken, {"retry": Jittered(Fixed(90), add=0.5)}, ("retrying", 1, True), "ValueError", 90),
    "custom, again": Cell(raises(ValueError("again")), {"retry": Custom()}, ("retrying", 1, True), "ValueError", 100),
    "custom, not again": Cell(broken, {"retry": Custom()}, ("dead", 1, False), "ValueError"),
    "policy broken": Cell(
        broken, {"retry": Broken()}, ("retrying", 1, True),
        "ValueError: broken; and its retry policy: OSError: no policy today", LAST_RESORT,
    ),
    "excluded": Cell(
        raises(KeyError("x")), {"retry": Fixed(9, exclude=(LookupError,))}, ("dead", 1, False), "KeyError"
    ),
    "included": Cell(
        raises(KeyError("x")), {"retry": Fixed(90, include=(LookupError,))}, ("retrying", 1, True), "KeyError", 90
    ),
    "not included": Cell(broken, {"retry": Fixed(9, include=(LookupError,))}, ("dead", 1, False), "ValueError"),
    "excluded beats included": Cell(
        raises(KeyError("x")), {"retry": Fixed(9, include=(KeyError,), exclude=(LookupError,))}, ("dead", 1, False),
        "KeyError",
    ),
    "advice: Done": Cell(broken, advises(Done()), None),
    "advice: Ignore": Cell(broken, advises(Ignore()), None),
    "advice: RetryAfter": Cell(broken, advises(RetryAfter(70)), ("retrying", 1, True), "ValueError: broken", 70),
    "advice: RetryAfter at last": Cell(broken, advises(RetryAfter(70)) | once, ("dead", 1, False), "ValueError"),
    "advice: Dead": Cell(broken, advises(Dead("advised")), ("dead", 1, False), "advised"),
    "advice: Dead, block": Cell(broken, advises(Dead()) | stop, ("dead", 1, True), "ValueError: broken"),
    "advice: none": Cell(broken, advises(None), ("retrying", 1, True), "ValueError: broken", HOUR),
    "advice: garbage": Cell(broken, advises("later"), ("retrying", 1, True), "ValueError: broken", HOUR),
    "advice: fails": Cell(broken, {"on_error": fails_to_advise}, ("retrying", 1, True), "ValueError: broken", HOUR),
    "advice: not when returned": Cell(returns(RetryAfter(70)), advises(Dead()), ("deferred", 0, True), None, 70),
    "a long story": Cell(raises(ValueError("x" * 9_000)), {}, ("retrying", 1, True), "ValueError: " + "x" * 3_988),
}  # fmt: skip


class Endings:
    """All cells, for one kind of handler: what was seen, as (number, attempt) by cell, and what is parked."""

    def __init__(self, desk, kind):
        self.desk, self.kind = desk, kind
        self.seen = {name: [] for name in CELLS}
        self.cured = False
        for name, cell in CELLS.items():
            self.register(name, cell)

    def register(self, name, cell):
        outbox = self.desk.outbox

        def one(event):
            number = int(event.headers["number"])
            self.seen[name].append((number, event.attempt))
            return cell.act(event) if number == 2 and not self.cured else None

        match self.kind:
            case "sync":
                outbox.on(name, **cell.options)(one)
            case "async":

                async def later(event):
                    await asyncio.sleep(0)
                    return one(event)

                outbox.on(name, **cell.options)(later)
            case "batch":
                outbox.on_batch(name, max_size=1, **cell.options)(lambda events: as_list(one(*events)))
            case "async batch":

                async def all_later(events):
                    await asyncio.sleep(0)
                    return as_list(one(*events))

                outbox.on_batch(name, max_size=1, **cell.options)(all_later)
            case "transactional":
                outbox.on(name, transactional=True, **cell.options)(lambda event, conn: one(event))

    def publish(self):
        with self.desk.conn.transaction():
            for name, cell in CELLS.items():
                for number in (1, 2, 3):
                    fields = {"payload": {}} | dict(cell.fields if number == 2 else {})
                    event = Event(
                        name, aggregate_type="Cell", aggregate_id=name, headers={"number": str(number)}, **fields
                    )
                    self.desk.outbox.publish(self.desk.conn, event)
            # As if a codec had made these bytes that the worker's outbox does not have.
            self.desk.conn.execute(
                """update partbox.record set headers = '{"number": "2"}' where payload_bytes is not null"""
            )

    def parked(self):
        """By cell and number: state, attempts, blocks, last error, seconds until due."""
        rows = self.desk.conn.execute(
            """select r.event_type, (r.headers ->> 'number')::integer, k.state, k.attempts, k.blocks, k.last_error,
                      extract(epoch from k.due_at - clock_timestamp())::float8
                 from partbox.parked k join partbox.record r on r.id = k.record_id"""
        ).fetchall()
        return {(name, number): rest for name, number, *rest in rows}

    def expected(self):
        """(state, attempts, blocks) by cell and number."""
        middle = {(name, 2): cell.parked for name, cell in CELLS.items() if cell.parked is not None}
        held = {(name, 3): ("held", 0, True) for name, cell in CELLS.items() if cell.parked and cell.parked[2]}
        return middle | held

    def as_expected(self):
        assert {at: tuple(row[:3]) for at, row in self.parked().items()} == self.expected()
        late = [name for name, cell in CELLS.items() if len(self.seen[name]) < len(calls(cell))]
        assert not late, f"still to come: {late}"
        return True


def as_list(outcome):
    return None if outcome is None else [outcome]


@pytest.mark.parametrize("kind", KINDS)
def test_every_cell_of_the_table(desk_with, kind, caplog):
    caplog.set_level(logging.WARNING, "partbox.worker")
    desk = desk_with(retry=f"fixed:{HOUR:g}")
    endings = Endings(desk, kind)
    endings.publish()
    with desk.outbox.worker():
        desk.eventually(endings.as_expected)
        parked = endings.parked()
        for name, cell in CELLS.items():
            judge(cell, without_probes(name, endings.seen[name]), parked.get((name, 2)))
        ignored = [record for record in caplog.records if "is ignored, as on_error says" in record.getMessage()]
        assert [record.levelname for record in ignored] == ["WARNING"]
        assert "no advice today" in caplog.text

        # Cured and due, everything but the dead is delivered, in order, and knows how often it was tried.
        endings.cured = True
        desk.eventually(lambda: desk.make_due() or {row[0] for row in endings.parked().values()} <= {"dead", "held"})
        desk.eventually(lambda: all(name in dead_that_block() for name, number in endings.parked() if number == 3))
    for name, cell in CELLS.items():
        if cell.parked is not None and cell.parked[0] != "dead":
            assert (2, cell.parked[1] + 1) == endings.seen[name][-1 if not cell.parked[2] else -2], name
            assert (name, 2) not in endings.parked()


def calls(cell):
    """The number and attempt of each call, until anything is due again."""
    blocks = cell.parked is not None and cell.parked[2]
    tried = [] if cell.fields.get("deliver_after") else [(2, 1)]
    return [(1, 1), *tried, *([] if blocks else [(3, 1)])]


def without_probes(name, seen):
    """Its circuit is open, so one event is tried again and again, from a second later on."""
    assert name not in CIRCUITS or set(seen[2:]) <= {(2, 1)}
    return seen[:2] if name in CIRCUITS else seen


def judge(cell, seen, row):
    assert seen == calls(cell)
    if row is not None:
        _, _, _, error, due = row
        assert error is None if cell.error is None else error.startswith(cell.error)
        assert len(error or "") <= 4_000
        if cell.delay is not None:
            assert cell.delay - 30 < due <= cell.delay + 1


def dead_that_block():
    return {name for name, cell in CELLS.items() if cell.parked is not None and cell.parked[0::2] == ("dead", True)}


def done(desk):
    """How many events are done, by the database's word."""
    return desk.conn.execute("select count(*) from partbox.record_status where status = 'done'").fetchone()[0]


def owed(desk):
    """How many dead rows are owed to the hook."""
    found = desk.conn.execute("select count(*) from partbox.parked where state = 'dead' and due_at is not null")
    return found.fetchone()[0]


UNROUTABLE = {
    "done": (None, None),
    "later": (RetryAfter(HOUR), ("deferred", 0)),
    "dead": (Dead("unknown"), ("dead", 1)),
    "garbage": (42, ("retrying", 1)),
    "raised": (ValueError("broken"), ("retrying", 1)),
    "never": (UnrecoverableError("never"), ("dead", 1)),
}


@pytest.mark.parametrize("is_async", [False, True])
def test_a_function_decides_what_becomes_of_events_without_a_handler(desk_with, is_async):
    def decide(event):
        outcome = UNROUTABLE[event.event_type][0]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def decide_later(event):
        return decide(event)

    desk = desk_with(retry=f"fixed:{HOUR:g}", on_unroutable=decide_later if is_async else decide)
    for number, event_type in enumerate(UNROUTABLE):
        desk.publish(event_type, number, event_type=event_type)
    expected = {number: after for number, (_, after) in enumerate(UNROUTABLE.values()) if after is not None}
    with desk.outbox.worker():
        desk.eventually(
            lambda: {number: (state, n) for number, state, n, _ in desk.parked()} == expected and done(desk) == 1
        )


def test_an_event_without_a_handler_is_looked_at_again_when_there_is_one(desk_with):
    desk = desk_with(on_unroutable="retry")
    desk.outbox.register(desk.note, "Other")
    desk.publish("k", 1)
    with desk.outbox.worker():
        desk.eventually(lambda: desk.parked() == [(1, "deferred", 0, True)])
    desk.outbox.register(desk.note, "Counted")
    with desk.outbox.worker():
        desk.make_due()
        desk.eventually(desk.all_done)
    assert desk.seen == [("k", 1, 1)]


def test_another_subscription_ignores_what_it_has_no_handler_for(desk):
    desk.outbox.subscriptions.create("other", start="beginning")
    desk.outbox.register(desk.note, "Counted", subscription="other")
    desk.publish("k", 1, event_type="Unknown")
    desk.publish("k", 2)
    with desk.outbox.worker(subscription="other"):
        desk.eventually(lambda: desk.numbers() == [2])
    assert desk.parked() == []


@pytest.mark.parametrize(
    ("kind", "takes_error"),
    [
        ("sync", False),
        ("async", True),
        pytest.param("sync", True, marks=pytest.mark.soak),
        pytest.param("async", False, marks=pytest.mark.soak),
    ],
)
def test_the_hook_gets_every_dead_event_once_it_is_dead(desk, kind, takes_error):
    letters = []

    def note(event, *error):
        letters.append((event.payload["number"], event.attempt, *error))

    hooks = {
        ("sync", False): lambda event: note(event),
        ("sync", True): lambda event, error: note(event, error),
        ("async", False): _later(lambda event: note(event), 1),
        ("async", True): _later(note, 2),
    }
    desk.outbox.on_dead_letter(hooks[kind, takes_error])
    desk.outbox.register(lambda event: Dead("no use") if event.payload["number"] == 2 else None, "Counted")
    desk.publish("k", 1, 2, 3)
    with desk.outbox.worker():
        desk.eventually(lambda: letters == [(2, 1, *(["no use"] if takes_error else []))])
        desk.eventually(lambda: owed(desk) == 0)
    assert desk.parked() == [(2, "dead", 1, False)]
    with desk.outbox.worker():  # nothing is owed: it is not called again
        desk.publish("k", 4)
        desk.eventually(lambda: done(desk) == 3)
    assert len(letters) == 1


def _later(hook, arguments):
    async def one(event):
        await asyncio.sleep(0)
        hook(event)

    async def two(event, error):
        await asyncio.sleep(0)
        hook(event, error)

    return one if arguments == 1 else two


@pytest.mark.parametrize("on_dead", ["continue", "block"])
def test_a_hook_that_fails_is_called_again(desk, on_dead, caplog):
    calls = []

    def hook(event, error):
        calls.append(error)
        if len(calls) < 3:
            raise ConnectionError("no post today")

    desk.outbox.on_dead_letter(hook)
    desk.outbox.register(lambda event: Dead("no use"), "Counted", on_dead=on_dead)
    desk.publish("k", 1)
    with desk.outbox.worker():
        for number in (1, 2, 3):
            desk.eventually(lambda number=number: desk.make_due() or len(calls) == number)
        desk.eventually(lambda: owed(desk) == 0)
    assert calls == ["no use"] * 3
    assert desk.parked() == [(1, "dead", 1, on_dead == "block")]
    assert "no post today" in caplog.text


def test_a_letter_that_a_process_left_behind_is_delivered_by_the_next(desk):
    """Nobody had a hook when it died; from then on there is one, and only what dies with a hook is owed to it."""
    letters = []
    desk.outbox.register(lambda event: Dead("no use"), "Counted")
    desk.outbox.on_dead_letter(lambda event: letters.append(event.payload["number"]) or 1 / 0)
    desk.publish("k", 1)
    with desk.outbox.worker():
        desk.eventually(lambda: letters)
    desk.outbox.handlers.dead_letter = lambda event: letters.append(-event.payload["number"])
    with desk.outbox.worker():
        desk.make_due()
        desk.eventually(lambda: letters[-1] == -1)
        desk.eventually(lambda: owed(desk) == 0)


def test_a_replayed_event_is_owed_to_nobody_and_dies_anew(desk):
    letters = []
    cured = []
    desk.outbox.on_dead_letter(lambda event, error: letters.append((event.payload["number"], error)))
    desk.outbox.register(lambda event: None if cured else Dead(f"no use {len(letters)}"), "Counted")
    desk.publish("k", 1, 2)
    with desk.outbox.worker():
        desk.eventually(lambda: len(letters) == 2 and owed(desk) == 0)
        assert desk.outbox.dead.replay_all() == 2
        desk.eventually(lambda: len(letters) == 4 and owed(desk) == 0)
        cured.append(True)
        desk.outbox.dead.replay_all()
        desk.eventually(desk.all_done)
    assert [number for number, _ in letters] == [1, 2, 1, 2]
    assert desk.parked() == []


def test_a_replay_before_the_hook_came_takes_the_letter_back(desk):
    calls = []

    def hook(event):
        calls.append(event.payload["number"])
        raise ConnectionError("no post today")

    cured = []
    desk.outbox.on_dead_letter(hook)
    desk.outbox.register(lambda event: None if cured else Dead("no use"), "Counted")
    desk.publish("k", 1)
    with desk.outbox.worker():
        desk.eventually(lambda: calls and owed(desk) == 1)
        cured.append(True)
        desk.outbox.dead.replay_all()
        desk.eventually(desk.all_done)
        before = len(calls)
        desk.make_due()
        desk.publish("k", 2)
        desk.eventually(desk.all_done)
    assert len(calls) == before
    assert desk.parked() == []
