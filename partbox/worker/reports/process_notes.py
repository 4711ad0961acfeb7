"""Notes in the row of the process, for people who look at the cluster: its long runs, the traffic of its sinks."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from psycopg import Connection, Error

from partbox.db.delivery import instances, traffic
from partbox.db.delivery.instances import RunningHandler
from partbox.db.delivery.traffic import SinkTraffic
from partbox.events import DeliveredEvent
from partbox.observe.observer import Answer, Observer
from partbox.text.printing import error_name, printable_line, text_of
from partbox.text.secrets import masked
from partbox.worker.context import Context
from partbox.worker.engine.partition import Lane

LONG_RUN = 10.0  # seconds
MAX_NAMED = 10  # handlers that are named; the others are counted
RUNS_INTERVAL = 1.0  # seconds between two looks: handlers that all take a little longer come and go all the time
MAX_NAME_LENGTH = 100  # characters of a name
TRAFFIC_INTERVAL = 2.0  # seconds between two looks
MAX_TEXT_LENGTH = 200  # characters of a sink's name, or of its error


class ProcessNote(ABC):
    """One thing of one process, which is looked at every `interval` seconds, and noted when it has changed."""

    text: str
    """The log line when that fails."""

    def __init__(self, context: Context, interval: float) -> None:
        self._context = context
        self._interval = interval
        self._me: UUID | None = None
        self._was_noted = False  # something was noted under this identity
        self._last_noted: tuple[Any, ...] | None = ()  # what the row says; None: nobody knows
        self._looked_at = 0.0

    def restart(self, me: UUID | None) -> None:
        """A session begins: what was noted before may be lost. The row of a new identity says nothing yet."""
        self._was_noted = self._was_noted and me == self._me
        self._me, self._last_noted = me, None if self._was_noted else ()

    def refresh(self, conn: Connection[Any]) -> None:
        now = time.monotonic()
        if self._me is None or now < self._looked_at + self._interval:
            return
        self._looked_at = now  # also if nothing has changed: looked at in each tick, it would show in an idle process
        if (found := self._measure(now)) == self._last_noted:
            return
        try:
            self._write(conn, self._me, found, now)
        except Error as error:
            if conn.closed:
                raise
            self._context.log("not_noted", self.text, error)
        else:
            self._last_noted, self._was_noted = found, True

    @abstractmethod
    def _measure(self, now: float) -> tuple[Any, ...]: ...
    @abstractmethod
    def _write(self, conn: Connection[Any], me: UUID, found: tuple[Any, ...], now: float) -> None: ...


HandlerRun = tuple[float, Lane, DeliveredEvent]
"""Since when (monotonic seconds), the lane, and its event."""


class LongRuns(ProcessNote):
    """The handlers that have run for long, the longest first."""

    text = "which handlers run for long could not be noted, which is tried again: %s"

    def __init__(self, context: Context) -> None:
        super().__init__(context, RUNS_INTERVAL)
        self._scheduler = context.engine.scheduler

    def _measure(self, now: float) -> tuple[Any, ...]:
        found: list[HandlerRun] = []
        for lane in self._scheduler.list_handling():
            event = lane.current  # before its start: that of another event is later
            if event is not None and now - lane.started > LONG_RUN:
                found.append((lane.started, lane, event))
        return tuple(sorted(found, key=lambda run: run[0]))

    def _write(self, conn: Connection[Any], me: UUID, found: tuple[Any, ...], now: float) -> None:
        named = [self._describe_run(run, now) for run in found[:MAX_NAMED]]
        instances.note_running(conn, self._context.schema, me, named, len(found) - len(named))

    def _describe_run(self, run: HandlerRun, now: float) -> RunningHandler:
        since, lane, event = run
        handler = self._context.routes[event.route].handler
        return RunningHandler(
            handler=printable_line(handler.name, MAX_NAME_LENGTH),
            event_type=_shorten(event.event_type),
            aggregate_type=_shorten(event.aggregate_type),
            aggregate_id=None if event.aggregate_id is None else _shorten(event.aggregate_id),
            record_id=event.id,
            seconds=now - since,
            partition=lane.partition.number,
            timeout=handler.timeout,
        )


def _shorten(text: str) -> str:
    return text if len(text) <= MAX_NAME_LENGTH else f"{text[: MAX_NAME_LENGTH - 1]}…"


@dataclass(slots=True)
class _SinkTotals:
    sent: int = 0
    in_flight: int = 0
    retries: int = 0
    seconds: float = 0.0
    error: str | None = None
    since: float = 0.0  # of the failures: the first after the last acknowledgement


class TrafficObserver(Observer):
    """Sums up the traffic of the sinks of one process. Each has one thread that writes its sum; any thread reads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._totals: dict[str, _SinkTotals] = {}
        self._clock = clock

    def sending(self, handler: str, messages: int) -> None:
        self._totals.setdefault(handler, _SinkTotals()).in_flight += messages

    def answered(self, handler: str, answer: Answer) -> None:
        found = self._totals[handler]
        found.in_flight -= answer.messages
        found.sent += answer.acknowledged
        found.retries += answer.retried
        found.seconds += answer.acknowledged * answer.seconds
        if answer.acknowledged:
            found.error = None
        elif answer.error is not None and answer.retried:
            found.since = found.since if found.error is not None else self._clock()
            found.error = printable_line(
                masked(f"{error_name(answer.error)}: {text_of(answer.error)}"), MAX_TEXT_LENGTH
            )

    def note_hanging(self, sink: str, why: str, since: float) -> None:
        """Note that a sink does not answer, `since` then (by the clock), unless it was in trouble before."""
        found = self._totals[sink]
        if found.error is None:
            found.error, found.since = why, since

    def list_totals(self) -> list[SinkTraffic]:
        """All of it, now."""
        found, now = [], self._clock()
        for sink, each in self._totals.copy().items():
            failing = None if (error := each.error) is None else max(0.0, now - each.since)
            name = printable_line(sink, MAX_TEXT_LENGTH)
            found.append(SinkTraffic(name, each.sent, each.in_flight, each.retries, each.seconds, error, failing))
        return found


class SinkNotes(ProcessNote):
    """The traffic of each sink, and its error while it is in trouble."""

    text = "what the sinks have sent could not be noted, which is tried again: %s"

    def __init__(self, context: Context, observer: TrafficObserver) -> None:
        super().__init__(context, TRAFFIC_INTERVAL)
        self._observer = observer

    def _measure(self, now: float) -> tuple[Any, ...]:
        return tuple(self._observer.list_totals())

    def _write(self, conn: Connection[Any], me: UUID, found: tuple[Any, ...], now: float) -> None:
        traffic.note(conn, self._context.schema, me, list(found))
