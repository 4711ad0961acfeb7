"""The connections of one session of a worker: how they are made, and what is logged when they are lost."""

import logging
from collections.abc import Callable
from contextlib import ExitStack
from typing import NamedTuple

from psycopg import Error

from partbox.db.connect import connect
from partbox.db.deadline import HungError, WatchedConnection, deadline_for_lease
from partbox.db.delivery import proof, server_incarnation
from partbox.errors import PartboxError
from partbox.observe.logs.log_event import log_event
from partbox.platform import boottime
from partbox.worker.context import Context
from partbox.worker.fork_safety import exit_forked
from partbox.worker.slot import POLL_TICK

log = logging.getLogger("partbox.worker")

STOP_LIMIT = (1.0, 3)  # seconds, or this part of what a stop has left: a statement that takes the longer of them hangs


class Session(NamedTuple):
    """The poller's connection, and those that it lends to the saver and, if that needs one, to the transactor."""

    reading: WatchedConnection
    saving: WatchedConnection
    effects: WatchedConnection | None

    @property
    def connections(self) -> list[WatchedConnection]:
        """The connections, each once."""
        return list(dict.fromkeys(conn for conn in self if conn is not None))

    def begin_incarnation(self, schema: str) -> None:
        """Begin in the life that the server is in now, on the tables that it has: before anything else is read."""
        began, baseline = server_incarnation.begin(self.reading, schema), proof.begin(self.reading, schema)
        for conn in self.connections:
            server_incarnation.note(conn, began)
            conn.baseline = baseline


class SessionFactory:
    """Makes the connections of one process. The poller's thread, but for `limit_statements`."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._statement_limit = deadline_for_lease(context.settings.lease)  # seconds for a statement
        self._open_connections: list[WatchedConnection] = []

    def open(self, stack: ExitStack, close_effects: Callable[[WatchedConnection], None] | None) -> Session:
        """Connect; `stack` gets what closes the connections again. `close_effects`: the transactor needs one."""
        reading = stack.enter_context(self._connect("poller", prepared=True))
        saving = stack.enter_context(self._connect("saver", prepared=True))
        effects = None
        if close_effects is not None:
            effects = self._connect("effects", lent=True)
            if reading.pooled and not effects.pooled:  # by a pooler that nobody named
                effects.pooled, effects.prepare_threshold = True, None
            stack.callback(close_effects, effects)
        session = Session(reading, saving, effects)
        self._open_connections = session.connections
        self._shorten_limits()  # a stop may have begun while they were made
        return session

    def limit_statements(self, seconds_left: float) -> None:
        """There are `seconds_left` seconds to save what is done: find out in time if a connection hangs. Any thread."""
        self._statement_limit = min(self._statement_limit, max(STOP_LIMIT[0], seconds_left / STOP_LIMIT[1]))
        self._shorten_limits()

    def _shorten_limits(self) -> None:
        for conn in self._open_connections:
            conn.deadline.shorten(self._statement_limit)

    def _connect(self, role: str, *, lent: bool = False, prepared: bool = False) -> WatchedConnection:
        self._context.slot[POLL_TICK] = boottime()  # for as long as a connection may take
        dsn, settings = self._context.dsn(), self._context.settings
        if self._context.engine.is_forked:
            exit_forked(None)
        lease, pooler, name = settings.lease, settings.pooler, f"partbox {role}"
        return connect(
            dsn, lease=lease, pooler=pooler, name=name, lent=lent, prepared=prepared, limit=self._statement_limit
        )


def log_lost_connection(error: Error | PartboxError, subscription: str, loop: str) -> None:
    """Log the loss of the connection that `loop` works on.

    Of one that hung, that nothing went on there until now; of one that may not see everything, that nothing goes on.
    """
    if isinstance(error, HungError):
        text = "a connection hangs, and nothing went on in the %s until now; all are made anew: %s"
        log_event(log, "connection_hung", text, loop, error, subscription=subscription, loop=loop)
    elif isinstance(error, PartboxError) or proof.ends_session(error):
        text = (
            "not everything can be read or written, so nothing is, until this is mended (`partbox doctor` says how): %s"
        )
        log_event(log, "unseen", text, error, subscription=subscription)
    else:
        text = "the connection is lost and made anew: %s"
        log_event(log, "connection_lost", text, error, subscription=subscription)
