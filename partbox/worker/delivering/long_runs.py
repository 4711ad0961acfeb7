"""Notes in the row of the process which handlers have run for long, so that who looks at the cluster can name them.

The poller's thread does it, which no handler holds up, unless one keeps the interpreter to itself. Where none runs for
long no statement is sent.
"""

import logging
import time
from typing import Any
from uuid import UUID

from psycopg import Connection, Error

from partbox.db.delivery import running
from partbox.db.delivery.running import Running
from partbox.events import DeliveredEvent
from partbox.handlers import Routes
from partbox.observe.logs.log_event import log_event
from partbox.text.printing import printable_line
from partbox.worker.delivering.dispatcher import Dispatcher
from partbox.worker.delivering.endpoint import Endpoint
from partbox.worker.state.partition import Lane

log = logging.getLogger("partbox.worker")

LONG = 10.0  # seconds
MOST = 10  # handlers that are named; the others are counted
APART = 1.0  # seconds between two notes at least: handlers that all take a little longer come and go all the time
CUT = 100  # characters of a name

Run = tuple[float, Lane, DeliveredEvent]  # since when, by the monotonic clock
Runs = frozenset[tuple[float, int]]


class LongRuns:
    """Those of one process. The poller's thread calls."""

    def __init__(self, dispatcher: Dispatcher, routes: Routes[Endpoint], schema: str, subscription: str) -> None:
        self._dispatcher = dispatcher
        self._routes = routes
        self._schema = schema
        self._subscription = subscription
        self._me: UUID | None = None
        self._ever = False  # something was noted under this identity
        self._noted: Runs | None = frozenset()  # what the row says; None: nobody knows
        self._noted_at = 0.0

    def restart(self, me: UUID | None) -> None:
        """A session begins: what was noted before may be lost. The row of a new identity says nothing yet."""
        self._ever = self._ever and me == self._me
        self._me, self._noted = me, None if self._ever else frozenset()

    def look(self, conn: Connection[Any]) -> None:
        """Note what runs for long, if that has changed."""
        now = time.monotonic()
        runs = self._long(now)
        which = frozenset((since, event.id) for since, _, event in runs)
        if which == self._noted or self._me is None or now < self._noted_at + APART:
            return
        self._noted_at = now
        try:
            named = [self._named(run, now) for run in runs[:MOST]]
            running.note(conn, self._schema, self._me, named, len(runs) - len(named))
        except Error as error:
            if conn.closed:
                raise
            text = "which handlers run for long could not be noted, which is tried again: %s"
            log_event(log, "not_noted", text, error, subscription=self._subscription)
        else:
            self._noted, self._ever = which, True

    def _long(self, now: float) -> list[Run]:
        """The handlers that have run for long, the longest first."""
        found: list[Run] = []
        for lane in self._dispatcher.handling():
            event = lane.current  # before its start: that of another event is later
            if event is not None and now - lane.started > LONG:
                found.append((lane.started, lane, event))
        return sorted(found, key=lambda run: run[0])

    def _named(self, run: Run, now: float) -> Running:
        since, lane, event = run
        handler = self._routes[event.route].handler
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
