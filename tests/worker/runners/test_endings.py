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

from partbox import Dead, Done, Event, Fixed, Ignore, Jittered, RetryAfter, RetryAfterError, UnrecoverableError
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
    """The middle event's act, and the form in which it is parked: None for done. `error`: the beginning of its text."""

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
        "ValueError: broken; and its retry policy failed: OSError: no policy today", LAST_RESORT,
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
def test_every_way_an_event_can_end_leaves_the_state_that_the_table_says(desk_with, kind, caplog):
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
