"""The connections of a node's membership: at most two, each cut when it hangs, while the lease still holds."""

import logging
import select
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from psycopg import Connection, Error
from psycopg_pool import ConnectionPool, PoolTimeout

from partbox.db import deadline as deadlines
from partbox.db.connect import ConnectPatience
from partbox.db.deadline import HungError, deadline_for_lease
from partbox.db.delivery import proof
from partbox.db.sql import Conn
from partbox.observe.logs.log_event import log_event
from partbox.protocol.lease import choose_statement_limit
from partbox.settings import Settings

log = logging.getLogger("partbox.supervisor")

MAX_CONNECTIONS = 2  # connections
SPARE_SECONDS = 10.0  # seconds until an unused second connection is closed
CLOSE_TIMEOUT = 1.0  # seconds that closing waits for connections that are being made
HUNG = "a connection hung, and no lease was renewed until now; the connection is reopened: %s"


class MembershipPool:
    """A pool of at most two database connections, over which a node sends its heartbeats.

    Each connection is opened with the DSN that is current then. The threads of the pool log by the pool's name alone,
    so the name includes the `database` if there are several."""

    def __init__(self, settings: Settings, subscription: str, dsn: Callable[[], str], database: str) -> None:
        self.dsn = dsn
        self._lease = settings.lease
        self._subscription = subscription
        # The limit begins long, as there is no lease yet that could be lost.
        self._statement_limit = deadline_for_lease(settings.lease)
        self._pool = _build_pool(settings, dsn, lambda: self._statement_limit, database)

    def open(self) -> None:
        """Begin to open the pool's database connections in the background, without waiting for them."""
        self._pool.open(wait=False)

    def close(self) -> None:
        """Close the pool's connections, and wait for up to `CLOSE_TIMEOUT` seconds for its threads."""
        self._pool.close(CLOSE_TIMEOUT)

    @contextmanager
    def connection(self) -> Iterator[Conn]:
        """Lend a tested connection during the `with` block. Raises `psycopg.Error` if the database is unreachable."""
        conn = self._get_working_conn()
        began = time.monotonic()
        try:
            yield conn
        except HungError as error:
            self._note_hung(error)
            raise
        except Error as error:
            if proof.ends_session(error):
                conn.close()
            raise
        finally:
            self._pool.putconn(conn)
        took, longest = time.monotonic() - began, deadline_for_lease(self._lease)
        self._statement_limit = choose_statement_limit(took, self._lease, longest)

    def _get_working_conn(self) -> Conn:
        # The pool's own check is not used: it pauses after a broken connection, and always asks the server.
        # All connections that the pool has kept may be broken.
        for _ in range(MAX_CONNECTIONS):
            try:
                return self._get_tested_conn()
            except PoolTimeout:
                raise
            except HungError as error:
                self._note_hung(error)
            except Error:
                pass
        return self._get_tested_conn()

    def _get_tested_conn(self) -> Conn:
        conn = self._pool.getconn(self._lease)
        try:
            deadlines.deadline_of(conn).limit = self._statement_limit
            if _has_waiting_data(conn):
                conn.execute("")
        except BaseException:
            self._pool.putconn(conn)
            raise
        return conn

    def _note_hung(self, error: HungError) -> None:
        # The hung connection was cut while the lease still holds. Later statements get more time, because the server
        # may just be slow.
        log_event(log, "connection_hung", HUNG, error, subscription=self._subscription, loop="membership")
        self._statement_limit = min(self._statement_limit * 2, deadline_for_lease(self._lease))


def _has_waiting_data(conn: Conn) -> bool:
    # Data that waits to be read on the connection means that the server closes it.
    # The server has announced its end or closed the connection. A silent loss is found by the next statement, which is
    # tried again soon.
    readable = select.poll()
    readable.register(conn.pgconn.socket, select.POLLIN)
    return bool(readable.poll(0))


def _build_pool(
    settings: Settings, dsn: Callable[[], str], statement_limit: Callable[[], float], database: str
) -> ConnectionPool[Conn]:
    patience = ConnectPatience()

    class MembershipConnection(Connection[Any]):
        @classmethod
        def connect(cls, conninfo: str = "", **_: Any) -> Any:
            name, lease, pooler = "partbox supervisor", settings.lease, settings.pooler
            conn = patience.connect(
                dsn(), lease=lease, pooler=pooler, name=name, prepared=True, limit=statement_limit()
            )
            patience.reset()
            return conn

    return ConnectionPool(
        "",
        connection_class=MembershipConnection,
        min_size=1,
        max_size=MAX_CONNECTIONS,
        open=False,
        name=f"partbox supervisor of {database}" if database else "partbox supervisor",
        reconnect_timeout=0.0,
        max_idle=SPARE_SECONDS,
    )
