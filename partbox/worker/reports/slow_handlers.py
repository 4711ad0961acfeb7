"""Notes in the row of the process which handlers have run for long, for people who look at the cluster."""

from typing import Any
from uuid import UUID

from psycopg import Connection

from partbox.db.delivery import instances
from partbox.db.delivery.instances import Running
from partbox.events import DeliveredEvent
from partbox.text.printing import printable_line
from partbox.worker.context import Context
from partbox.worker.engine.partition import Lane
from partbox.worker.reports.process_notes import Note

LONG = 10.0  # seconds
MOST = 10  # handlers that are named; the others are counted
RUNS_APART = 1.0  # seconds between two notes at least: handlers that all take a little longer come and go all the time
CUT = 100  # characters of a name

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
