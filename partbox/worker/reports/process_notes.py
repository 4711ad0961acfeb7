"""Notes in the row of a process, for people who look at the cluster: long handler runs, and the traffic of sinks."""

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
from partbox.text.printing import format_error_name, shorten_line, text_of
from partbox.text.secrets import mask_secrets
from partbox.worker.context import Context
from partbox.worker.engine.partition import Lane

LONG_RUN = 10.0  # seconds
# Handlers that are named; all others are counted.
MAX_NAMED = 10
# Seconds between two measurements. Handlers that all take a little longer come and go all the time.
RUNS_INTERVAL = 1.0
MAX_NAME_LENGTH = 100  # characters
TRAFFIC_INTERVAL = 2.0  # seconds
MAX_TEXT_LENGTH = 200  # characters


class ProcessNote(ABC):
    """Base class for facts about a worker process that operators read in the database. A fact is measured every
    `interval` seconds, and written when it has changed."""

    text: str
    """The message that is logged if writing fails, with a placeholder for the error."""

    def __init__(self, context: Context, interval: float) -> None:
        self._context = context
        self._interval = interval
        self._me: UUID | None = None
        # True if a note was written under this identity.
        self._was_noted = False
        # The content of the row, or None if that is unknown.
        self._last_noted: tuple[Any, ...] | None = ()
        self._looked_at = 0.0

    def restart(self, me: UUID | None) -> None:
        """Begin to write notes under the instance id `me`, on a new connection."""
        # Earlier notes may be lost, or belong to another id.
        self._was_noted = self._was_noted and me == self._me
        self._me, self._last_noted = me, None if self._was_noted else ()

    def refresh(self, conn: Connection[Any]) -> None:
        """Write the note to the database if its interval is over and its content has changed. Errors are logged, unless
        the connection is closed."""
        now = time.monotonic()
        if self._me is None or now < self._looked_at + self._interval:
            return
        # Set this even if nothing has changed. Measuring in each tick would cost an idle process noticeable time.
        self._looked_at = now
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


class LongRuns(ProcessNote):
    """A record in the database of the handlers of a process that have been running for long, the longest first."""

    text = "long-running handlers could not be recorded, which is tried again: %s"

    def __init__(self, context: Context) -> None:
        super().__init__(context, RUNS_INTERVAL)
        self._scheduler = context.engine.scheduler

    def _measure(self, now: float) -> tuple[Any, ...]:
        found: list[HandlerRun] = []
        for lane in self._scheduler.list_handling():
            # Read the event before its start: the start of another event is later.
            event = lane.current_event
            if event is not None and now - lane.started_at > LONG_RUN:
                found.append((lane.started_at, lane, event))
        return tuple(sorted(found, key=lambda run: run[0]))

    def _write(self, conn: Connection[Any], me: UUID, found: tuple[Any, ...], now: float) -> None:
        named = [self._describe_run(run, now) for run in found[:MAX_NAMED]]
        instances.note_running(conn, self._context.schema, me, named, len(found) - len(named))

    def _describe_run(self, run: HandlerRun, now: float) -> RunningHandler:
        since, lane, event = run
        handler = self._context.routes[event.route].handler
        return RunningHandler(
            handler=shorten_line(handler.name, MAX_NAME_LENGTH),
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
    # The first failure after the last acknowledgement.
    since: float = 0.0


class TrafficObserver(Observer):
    """An observer that sums up the messages, retries and errors of each sink, a handler that sends events to another
    system.

    One thread per sink writes its sums, and any thread may read them."""

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
            found.error = shorten_line(
                mask_secrets(f"{format_error_name(answer.error)}: {text_of(answer.error)}"), MAX_TEXT_LENGTH
            )

    def note_hanging(self, sink: str, why: str, since: float) -> None:
        """Record that a sink has not answered since the time `since`, with `why` as its error."""
        # `since` is a time of the observer's clock. An error that the sink already has is kept.
        found = self._totals[sink]
        if found.error is None:
            found.error, found.since = why, since

    def list_totals(self) -> list[SinkTraffic]:
        """Return each sink's messages sent and in flight, retries, seconds, and current error with its age."""
        found, now = [], self._clock()
        for sink, each in self._totals.copy().items():
            failing = None if (error := each.error) is None else max(0.0, now - each.since)
            name = shorten_line(sink, MAX_TEXT_LENGTH)
            found.append(SinkTraffic(name, each.sent, each.in_flight, each.retries, each.seconds, error, failing))
        return found


class SinkNotes(ProcessNote):
    """A record in the database of the messages sent by each sink (a handler that sends events elsewhere), and of its
    current error."""

    text = "the messages sent by sinks could not be recorded, which is tried again: %s"

    def __init__(self, context: Context, observer: TrafficObserver) -> None:
        super().__init__(context, TRAFFIC_INTERVAL)
        self._observer = observer

    def _measure(self, now: float) -> tuple[Any, ...]:
        return tuple(self._observer.list_totals())

    def _write(self, conn: Connection[Any], me: UUID, found: tuple[Any, ...], now: float) -> None:
        traffic.note_traffic(conn, self._context.schema, me, list(found))
