"""Cut a connection whose server does not answer in time, by shutting down its socket.

A proxy that acknowledges packets and passes none on, or a stopped backend, keeps TCP content, and `statement_timeout`
is kept by the very peer that hangs. So one watchdog thread per process shuts the sockets of overdue statements. The
blocking call of libpq then returns, and the connection counts as lost."""

import os
import socket
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from math import inf
from types import TracebackType
from typing import Any, Final
from weakref import WeakSet, finalize

from psycopg import BaseConnection, OperationalError
from psycopg.abc import PQGen
from psycopg.pq import TransactionStatus

from partbox.db.driver import AsyncPlainConnection, PlainConnection
from partbox.platform import call_in_forked_children

# Seconds between two checks, at least and at most. Between the two bounds: a tenth of the shortest deadline.
CHECK_INTERVALS = (
    0.02,
    0.5,
)


class HungError(OperationalError):
    """Error: the server did not answer a statement in time, so the connection was cut."""


def deadline_for_lease(lease: float) -> float:
    """Return the seconds after which a connection with an unanswered statement is cut."""
    # The limit is longer than the server's `statement_timeout`, which equals the lease.
    return lease * 1.25 + 0.5


class Deadline:
    """A time limit for each SQL statement of a connection, which is cut when a statement takes longer.

    The limit is in seconds (`inf` for none). Each statement runs in a `with` block of the object. `is_cut` is True
    after the socket was shut."""

    def __init__(self, fd: int | None, limit: float) -> None:
        self.limit = limit
        self.is_cut = False
        self._expires_at = inf
        self._first_overdue = inf
        # A duplicate of our own: libpq may close its number at any time, and another file could get the number.
        self._fd = fd
        self._closing_lock = threading.Lock()

    def __enter__(self) -> None:
        self._expires_at = time.monotonic() + self.limit

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._expires_at = inf

    def shorten(self, limit: float) -> None:
        """Lower the time limit of the running statement and of all later ones, in seconds."""
        # An infinite limit stays.
        if self.limit < inf:
            self.limit = min(self.limit, limit)
        # If the statement ends at this moment, its socket is shut much later, at worst.
        if self._expires_at < inf:
            self._expires_at = min(self._expires_at, time.monotonic() + self.limit)

    def cut_if_overdue(self) -> None:
        """Shut the connection's socket if its statement exceeds the time limit at two checks in a row."""
        # At the first check the answer may have arrived already: its thread may wait for a handler that holds the GIL,
        # or the whole process was stopped.
        until = self._expires_at
        if until > time.monotonic():
            return
        if until == self._first_overdue:
            self._shut_socket()
        self._first_overdue = until

    def build_lost_error(self, error: str = "the server closed the connection") -> OperationalError:
        """Return the exception for a lost connection: `HungError` if the time limit cut it."""
        # Otherwise return `OperationalError` with the text `error`.
        if self.is_cut:
            return HungError(f"no answer within {self.limit:.1f} s, so the connection was cut")
        return OperationalError(error)

    def close(self) -> None:
        """Close this object's own duplicate of the connection's socket. Repeated calls do nothing."""
        with self._closing_lock:
            fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)

    def release_in_child(self) -> None:
        """Close the duplicate of the connection's socket in a forked child process."""
        # The thread that holds the lock does not exist there.
        self._closing_lock = threading.Lock()
        self.close()

    def _shut_socket(self) -> None:
        # Without the lock `close` could free the number, and another file could get it before the shutdown.
        with self._closing_lock:
            if self._fd is None:
                return
            self.is_cut = True
            end = socket.socket(fileno=self._fd)
            # The socket may not be connected any more.
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.detach()


NO_DEADLINE: Final = Deadline(None, inf)


class _Watchdog:
    """A background thread that cuts connections whose SQL statements exceed their time limits.

    The thread is a daemon. It runs only while there are deadlines."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.deadlines: WeakSet[Deadline] = WeakSet()
        self._thread: threading.Thread | None = None

    def watch(self, deadline: Deadline) -> None:
        with self._lock:
            self.deadlines.add(deadline)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="partbox-deadlines", daemon=True)
                self._thread.start()

    def forget(self, deadline: Deadline) -> None:
        with self._lock:
            self.deadlines.discard(deadline)

    def _run(self) -> None:
        pause = CHECK_INTERVALS[0]
        while True:
            time.sleep(pause)
            with self._lock:
                watched = list(self.deadlines)
                if not watched:
                    self._thread = None
                    return
            for each in watched:
                each.cut_if_overdue()
            shortest = min(each.limit for each in watched)
            pause = min(max(CHECK_INTERVALS[0], shortest / 10), CHECK_INTERVALS[1])


_watchdog = _Watchdog()


def _reset_watchdog() -> None:
    # This runs in a forked child process.
    # The parent's threads are gone, a lock may be held, and no socket may stay open.
    global _watchdog  # noqa: PLW0603  one a process
    for deadline in list(_watchdog.deadlines):
        deadline.release_in_child()
    _watchdog = _Watchdog()


call_in_forked_children(_reset_watchdog)


class WatchedConnection(PlainConnection[Any]):
    """A database connection that is cut if the server does not answer within a time limit."""

    # The attributes hold the state of the connection's session.

    deadline: Deadline = NO_DEADLINE
    is_lent: bool = False  # an application's code uses it too, and may change how values are converted
    incarnation: Any = None  # see db/delivery/server_incarnation.py
    baseline: Any = None  # see db/delivery/proof.py
    is_pooled = False  # no options of a session were sent, or a pooler dropped them
    search_path: str | None = None  # the role's `search_path`, if the session uses another one (see db/connect.py)
    bell: int | None = None  # the oid of the bell's sequence (see db/delivery/bell.py)
    # Names of prepared statements by text, least recently used first (see db/blocking.py).
    prepared: OrderedDict[bytes, bytes] | None = None

    def watch(self, limit: float) -> None:
        """Cut this connection from now on if a statement takes longer than `limit` seconds."""
        self.deadline = watch_connection(self, limit)

    def wait(self, gen: PQGen[Any], *args: Any, **kwargs: Any) -> Any:
        """Wait for the answer to an SQL statement. Raise `HungError` if the connection was cut after the time limit."""
        # Psycopg sends each statement through this method. `db.blocking` calls libpq itself.
        # Psycopg's own wait has no such limit. The deadline cuts the connection.
        try:
            with self.deadline:
                return super().wait(gen, *args, **kwargs)
        except OperationalError as error:
            if self.deadline.is_cut:
                raise self.deadline.build_lost_error() from error
            raise
        # Psycopg cancels the statement and reads the answer, unless Ctrl-C came between two reads of its own code. With
        # an unread answer nothing more can be sent, not even the rollback.
        except KeyboardInterrupt:
            if self.pgconn.transaction_status == TransactionStatus.ACTIVE:
                self.pgconn.finish()
            raise

    def close(self) -> None:
        try:
            super().close()
        finally:
            self._drop_deadline()

    def __exit__(self, *error: Any) -> None:
        try:
            super().__exit__(*error)
        finally:
            self._drop_deadline()

    def _drop_deadline(self) -> None:
        if self.closed:
            _watchdog.forget(self.deadline)
            self.deadline.close()


class WatchedAsyncConnection(AsyncPlainConnection[Any]):
    """An asyncio database connection that is cut if the server does not answer within a time limit."""

    # The application uses the connection, too.

    deadline: Deadline = NO_DEADLINE

    async def wait(self, gen: PQGen[Any], *args: Any, **kwargs: Any) -> Any:
        # Raise `HungError` if the connection was cut after the time limit.
        # Psycopg's own wait has no such limit. The deadline cuts the connection.
        try:
            with self.deadline:
                return await super().wait(gen, *args, **kwargs)
        except OperationalError as error:
            if self.deadline.is_cut:
                raise self.deadline.build_lost_error() from error
            raise


def watch_connection(conn: BaseConnection[Any], limit: float) -> Deadline:
    """Cut a psycopg connection from now on if a statement takes longer than `limit` seconds."""
    # Return the new deadline. Any psycopg connection is possible.
    deadline = Deadline(os.dup(conn.pgconn.socket), limit)
    finalize(conn, deadline.close)
    _watchdog.watch(deadline)
    return deadline


def deadline_of(conn: BaseConnection[Any]) -> Deadline:
    """Return the time limit of statements on a connection, or `NO_DEADLINE` if it has none."""
    return conn.deadline if isinstance(conn, WatchedConnection | WatchedAsyncConnection) else NO_DEADLINE


@contextmanager
def allow_long_statements(conn: BaseConnection[Any], limit: float = inf) -> Iterator[None]:
    """Within the block, allow statements on this connection to take `limit` seconds."""
    # This is for statements of an application, or others that are known to take long.
    deadline = deadline_of(conn)
    before = deadline.limit
    if deadline is not NO_DEADLINE:
        deadline.limit = limit
    try:
        yield
    finally:
        deadline.limit = before
