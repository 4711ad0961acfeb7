"""Notes in the row of the process, for people who look at the cluster: its long runs, the traffic of its sinks."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from psycopg import Connection, Error

from partbox.db.delivery import instances, traffic
from partbox.db.delivery.instances import Running
from partbox.db.delivery.traffic import Traffic
from partbox.events import DeliveredEvent
from partbox.observe.observer import Answer, Observer
from partbox.text.printing import error_name, printable_line, text_of
from partbox.text.secrets import masked
from partbox.worker.context import Context
from partbox.worker.engine.partition import Lane

LONG = 10.0  # seconds
MOST = 10  # handlers that are named; the others are counted
RUNS_APART = 1.0  # seconds between two looks: handlers that all take a little longer come and go all the time
CUT = 100  # characters of a name
SENT_APART = 2.0  # seconds between two looks
MOST_SAID = 200  # characters of a sink's name, or of its error


class Note(ABC):
    """One thing of one process, which is looked at every `apart` seconds, and noted when it has changed."""

    text: str
    """The log line when that fails."""

    def __init__(self, context: Context, apart: float) -> None:
        self._context = context
        self._apart = apart
        self._me: UUID | None = None
        self._ever = False  # something was noted under this identity
        self._noted: tuple[Any, ...] | None = ()  # what the row says; None: nobody knows
        self._looked_at = 0.0

    def restart(self, me: UUID | None) -> None:
        """A session begins: what was noted before may be lost. The row of a new identity says nothing yet."""
        self._ever = self._ever and me == self._me
        self._me, self._noted = me, None if self._ever else ()

    def look(self, conn: Connection[Any]) -> None:
        now = time.monotonic()
        if self._me is None or now < self._looked_at + self._apart:
            return
        self._looked_at = now  # also if nothing has changed: looked at in each tick, it would show in an idle process
        if (found := self._found(now)) == self._noted:
            return
        try:
            self._write(conn, self._me, found, now)
        except Error as error:
            if conn.closed:
                raise
            self._context.log("not_noted", self.text, error)
        else:
            self._noted, self._ever = found, True

    @abstractmethod
    def _found(self, now: float) -> tuple[Any, ...]: ...
    @abstractmethod
    def _write(self, conn: Connection[Any], me: UUID, found: tuple[Any, ...], now: float) -> None: ...


Run = tuple[float, Lane, DeliveredEvent]
"""Since when (monotonic seconds), the lane, and its event."""


class LongRuns(Note):
    """The handlers that have run for long, the longest first."""

    text = "which handlers run for long could not be noted, which is tried again: %s"

    def __init__(self, context: Context) -> None:
        super().__init__(context, RUNS_APART)
        self._runs = context.engine.runs

    def _found(self, now: float) -> tuple[Any, ...]:
        found: list[Run] = []
        for lane in self._runs.handling():
            event = lane.current  # before its start: that of another event is later
            if event is not None and now - lane.started > LONG:
                found.append((lane.started, lane, event))
        return tuple(sorted(found, key=lambda run: run[0]))

    def _write(self, conn: Connection[Any], me: UUID, found: tuple[Any, ...], now: float) -> None:
        named = [self._named(run, now) for run in found[:MOST]]
        instances.note_running(conn, self._context.schema, me, named, len(found) - len(named))

    def _named(self, run: Run, now: float) -> Running:
        since, lane, event = run
        handler = self._context.routes[event.route].handler
        return Running(
            handler=printable_line(handler.name, CUT),
            event_type=_cut(event.event_type),
            aggregate_type=_cut(event.aggregate_type),
            aggregate_id=None if event.aggregate_id is None else _cut(event.aggregate_id),
            record_id=event.id,
            seconds=now - since,
            partition=lane.partition.number,
            timeout=handler.timeout,
        )


def _cut(text: str) -> str:
    return text if len(text) <= CUT else f"{text[: CUT - 1]}…"


@dataclass(slots=True)
class _Sum:
    sent: int = 0
    in_flight: int = 0
    retries: int = 0
    seconds: float = 0.0
    error: str | None = None
    since: float = 0.0  # of the failures: the first after the last acknowledgement


class TrafficObserver(Observer):
    """Sums up the traffic of the sinks of one process. Each has one thread that writes its sum; any thread reads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._sums: dict[str, _Sum] = {}
        self._clock = clock

    def sending(self, handler: str, messages: int) -> None:
        self._sums.setdefault(handler, _Sum()).in_flight += messages

    def answered(self, handler: str, answer: Answer) -> None:
        found = self._sums[handler]
        found.in_flight -= answer.messages
        found.sent += answer.acknowledged
        found.retries += answer.retried
        found.seconds += answer.acknowledged * answer.seconds
        if answer.acknowledged:
            found.error = None
        elif answer.error is not None and answer.retried:
            found.since = found.since if found.error is not None else self._clock()
            found.error = printable_line(masked(f"{error_name(answer.error)}: {text_of(answer.error)}"), MOST_SAID)

    def hangs(self, sink: str, why: str, since: float) -> None:
        """Note that a sink does not answer, `since` then (by the clock), unless it was in trouble before."""
        found = self._sums[sink]
        if found.error is None:
            found.error, found.since = why, since

    def totals(self) -> list[Traffic]:
        """All of it, now."""
        found, now = [], self._clock()
        for sink, each in self._sums.copy().items():
            failing = None if (error := each.error) is None else max(0.0, now - each.since)
            name = printable_line(sink, MOST_SAID)
            found.append(Traffic(name, each.sent, each.in_flight, each.retries, each.seconds, error, failing))
        return found


class SinkNotes(Note):
    """The traffic of each sink, and its error while it is in trouble."""

    text = "what the sinks have sent could not be noted, which is tried again: %s"

    def __init__(self, context: Context, observer: TrafficObserver) -> None:
        super().__init__(context, SENT_APART)
        self._observer = observer

    def _found(self, now: float) -> tuple[Any, ...]:
        return tuple(self._observer.totals())

    def _write(self, conn: Connection[Any], me: UUID, found: tuple[Any, ...], now: float) -> None:
        traffic.note(conn, self._context.schema, me, list(found))
