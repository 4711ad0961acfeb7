"""The connections of a node's membership: two at most, each cut when it hangs while the lease still holds."""

import logging
import select
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from psycopg import Connection, Error
from psycopg_pool import ConnectionPool, PoolTimeout

from partbox.db import deadline as deadlines
from partbox.db.connect import connect
from partbox.db.deadline import HungError, allowed
from partbox.db.delivery import proof
from partbox.db.sql import Conn
from partbox.observe.logs.log_event import log_event
from partbox.settings import Settings

log = logging.getLogger("partbox.supervisor")

MOST = 2  # connections
SPARE_FOR = 10.0  # seconds that a second one is kept when one is enough
CLOSING = 1.0  # seconds that closing waits for connections that are being made
LEAST_PATIENCE = 0.5  # seconds that a statement may take before it counts as hanging; longer leases allow more:
PATIENCE_OF_LEASE = 3  # the lease divided by this
HUNG = "a connection hangs, and no lease was renewed until now; it is made anew: %s"


class MembershipPool:
    """A pool whose connections have the DSN of the moment they are opened, and the options of a worker's.

    The pool's own threads log by its name alone, so the name includes the `database`, if there are several.
    """

    def __init__(self, settings: Settings, subscription: str, dsn: Callable[[], str], database: str) -> None:
        self.dsn = dsn
        self._lease = settings.lease
        self._subscription = subscription
        self._patience = allowed(settings.lease)  # there is no lease yet that could be lost
        self._pool = _pool(settings, dsn, lambda: self._patience, database)

    def open(self) -> None:
        """Begin to connect, in the background."""
        self._pool.open(wait=False)

    def close(self) -> None:
        self._pool.close(CLOSING)

    @contextmanager
    def connection(self) -> Iterator[Conn]:
        """A connection that works. psycopg.Error when the database cannot be reached."""
        conn = self._working()
        try:
            yield conn
        except HungError as error:
            self._hung(error)
            raise
        except Error as error:
            if proof.ends_session(error):
                conn.close()
            raise
        finally:
            self._pool.putconn(conn)
        self._patience = max(LEAST_PATIENCE, self._lease / PATIENCE_OF_LEASE)

    def _working(self) -> Conn:
        """The pool's own check would rest for a second after a broken connection, and ask the server each time."""
        for _ in range(MOST):  # all that the pool may have kept can be broken
            try:
                return self._checked()
            except PoolTimeout:
                raise
            except HungError as error:
                self._hung(error)
            except Error:
                pass
        return self._checked()

    def _checked(self) -> Conn:
        conn = self._pool.getconn(self._lease)
        try:
            deadlines.of(conn).limit = self._patience
            if _has_news(conn):
                conn.execute("")
        except BaseException:
            self._pool.putconn(conn)
            raise
        return conn

    def _hung(self, error: HungError) -> None:
        """The connection was cut while the lease still holds. All may just be slow: the next one has longer."""
        log_event(log, "connection_hung", HUNG, error, subscription=self._subscription, loop="membership")
        self._patience = min(self._patience * 2, allowed(self._lease))


def _has_news(conn: Conn) -> bool:
    """True if the server has sent what nobody asked for: it has said that it ends, or closed the connection.

    What breaks without a word is found by the statement that comes next, which is tried again soon.
    """
    readable = select.poll()
    readable.register(conn.pgconn.socket, select.POLLIN)
    return bool(readable.poll(0))


def _pool(
    settings: Settings, dsn: Callable[[], str], patience: Callable[[], float], database: str
) -> ConnectionPool[Conn]:
    class MembershipConnection(Connection[Any]):
        @classmethod
        def connect(cls, conninfo: str = "", **_: Any) -> Any:
            name = "partbox supervisor"
            return connect(
                dsn(), lease=settings.lease, pooler=settings.pooler, name=name, prepared=True, limit=patience()
            )

    return ConnectionPool(
        "",
        connection_class=MembershipConnection,
        min_size=1,
        max_size=MOST,
        open=False,
        name=f"partbox supervisor of {database}" if database else "partbox supervisor",
        reconnect_timeout=0.0,
        max_idle=SPARE_FOR,
    )
