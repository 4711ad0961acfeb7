"""Sessions: the connections of a worker, how they are opened, and the log lines when they are lost."""

import logging
from collections.abc import Callable
from contextlib import ExitStack
from typing import NamedTuple

from psycopg import Error

from partbox.db.connect import ConnectPatience
from partbox.db.deadline import HungError, WatchedConnection, deadline_for_lease
from partbox.db.delivery import proof, server_incarnation
from partbox.errors import PartboxError
from partbox.observe.logs.log_event import log_event
from partbox.platform import boottime
from partbox.worker.context import Context
from partbox.worker.fork_safety import exit_forked
from partbox.worker.slot import POLL_TICK

log = logging.getLogger("partbox.worker")

# While the worker stops, a statement hangs if it takes longer than this many seconds, and longer than the remaining
# time divided by the second number.
STOP_LIMIT = (1.0, 3)


class Session(NamedTuple):
    """The database connections of one worker: the poller's own, and the connections for the saver and for transactional
    handlers."""

    # The poller lends the others. `effects`, the connection of the thread of transactional handlers (the transactor),
    # is None if it is not needed.

    reading: WatchedConnection
    saving: WatchedConnection
    effects: WatchedConnection | None

    @property
    def connections(self) -> list[WatchedConnection]:
        return list(dict.fromkeys(conn for conn in self if conn is not None))

    def begin_incarnation(self, schema: str) -> None:
        """Record the server's start and the tables that the new connections see, so that a later change is noticed."""
        # This must run before anything else is read.
        began, baseline = (
            server_incarnation.read_incarnation(self.reading, schema),
            proof.begin_baseline(self.reading, schema),
        )
        for conn in self.connections:
            server_incarnation.note_incarnation(conn, began)
            conn.baseline = baseline


class SessionFactory:
    """The factory of a worker's database connections. Only the poller's thread uses it, except for
    `limit_statements`."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._statement_limit = deadline_for_lease(context.settings.lease)
        self._patience = ConnectPatience()
        self._open_connections: list[WatchedConnection] = []

    def open(self, stack: ExitStack, close_effects: Callable[[WatchedConnection], None] | None) -> Session:
        """Open the database connections of a worker; `stack` closes them."""
        # If `close_effects` is given, transactional handlers get a connection of their own.
        reading = stack.enter_context(self._connect("poller", prepared=True))
        saving = stack.enter_context(self._connect("saver", prepared=True))
        effects = None
        if close_effects is not None:
            effects = self._connect("effects", lent=True)
            # The first connection has detected a pooler that the settings do not name.
            if reading.is_pooled and not effects.is_pooled:
                effects.is_pooled, effects.prepare_threshold = True, None
            stack.callback(close_effects, effects)
        session = Session(reading, saving, effects)
        self._open_connections = session.connections
        self._patience.reset()
        # A stop may have begun while the connections were made.
        self._shorten_limits()
        return session

    def limit_statements(self, seconds_left: float) -> None:
        """Shorten the time limit of SQL statements to detect a hung connection sooner. Any thread may call this."""
        # The worker must stop within `seconds_left`.
        self._statement_limit = min(self._statement_limit, max(STOP_LIMIT[0], seconds_left / STOP_LIMIT[1]))
        self._shorten_limits()

    def _shorten_limits(self) -> None:
        for conn in self._open_connections:
            conn.deadline.shorten(self._statement_limit)

    def _connect(self, role: str, *, lent: bool = False, prepared: bool = False) -> WatchedConnection:
        # Tick before each connection, since connecting may take long.
        self._context.slot[POLL_TICK] = boottime()
        dsn, settings = self._context.dsn(), self._context.settings
        if self._context.engine.is_forked:
            exit_forked(None)
        lease, pooler, name = settings.lease, settings.pooler, f"partbox {role}"
        return self._patience.connect(
            dsn, lease=lease, pooler=pooler, name=name, is_lent=lent, prepared=prepared, limit=self._statement_limit
        )


def log_lost_connection(error: Error | PartboxError, subscription: str, loop: str) -> None:
    """Log why a thread lost its database connection: the connection hung or broke, or may no longer see all rows."""
    # `loop` is the name of the thread.
    if isinstance(error, HungError):
        text = "a connection hung, and the %s made no progress until now; all connections are reopened: %s"
        log_event(log, "connection_hung", text, loop, error, subscription=subscription, loop=loop)
    elif isinstance(error, PartboxError) or proof.ends_session(error):
        text = (
            "some data cannot be read or written, so nothing is delivered until this is fixed (`partbox doctor` says "
            "how): %s"
        )
        log_event(log, "unseen", text, error, subscription=subscription)
    else:
        text = "the connection was lost and is reopened: %s"
        log_event(log, "connection_lost", text, error, subscription=subscription)
