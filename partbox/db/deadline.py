"""Deadlines of the client's own: a statement that nobody answers is cut off, by shutting down its socket.

A proxy that acknowledges and passes nothing, or a backend that is stopped, keeps TCP content, and `statement_timeout`
is kept by the very peer that hangs. With the socket shut down the blocking call of libpq returns, and the connection is
lost as any other is. One thread of a process looks after all of its connections; a statement costs two stores.
"""

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

CHECK_INTERVALS = (
    0.02,
    0.5,
)  # seconds between two looks at least and at most, a tenth of the shortest deadline between


class HungError(OperationalError):
    """The peer did not answer a statement in time, and the connection was cut."""


def deadline_for_lease(lease: float) -> float:
    """The deadline of a statement whose `statement_timeout` is `lease`: later, so the server's error comes first."""
    return lease * 1.25 + 0.5


class Deadline:
    """The deadline of a connection; each statement runs in a `with` block of it. `limit` in seconds; inf: no limit."""

    def __init__(self, fd: int | None, limit: float) -> None:
        self.limit = limit
        self.is_cut = False
        self._expires_at = inf
        self._first_overdue = inf
        self._fd = fd  # a duplicate of our own: libpq may close its own at any time, and the number be another's
        self._closing = threading.Lock()

    def __enter__(self) -> None:
        self._expires_at = time.monotonic() + self.limit

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._expires_at = inf

    def shorten(self, limit: float) -> None:
        """Lower the limit to so many seconds from now on, also for the running statement."""
        if self.limit < inf:
            self.limit = min(self.limit, limit)
        if self._expires_at < inf:  # a statement that ends just now has its socket shut down much later at the worst
            self._expires_at = min(self._expires_at, time.monotonic() + self.limit)

    def cut_if_overdue(self) -> None:
        """Cut a statement that is overdue at two checks in a row.

        At the first the answer may have arrived: its thread may wait for a handler that holds the interpreter lock,
        or the whole process was stopped.
        """
        until = self._expires_at
        if until > time.monotonic():
            return
        if until == self._first_overdue:
            self._shut_socket()
        self._first_overdue = until

    def lost_error(self, error: str = "the server closed the connection") -> OperationalError:
        """The error that says why the connection was lost."""
        if self.is_cut:
            return HungError(f"no answer within {self.limit:.1f} s, so the connection was cut")
        return OperationalError(error)

    def close(self) -> None:
        """Release the socket when the connection is closed; idempotent."""
        with self._closing:
            fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)

    def release_in_child(self) -> None:
        """Release the socket in a forked child, where the holder of the lock does not exist."""
        self._closing = threading.Lock()
        self.close()

    def _shut_socket(self) -> None:
        with self._closing:
            if self._fd is None:
                return
            self.is_cut = True
            end = socket.socket(fileno=self._fd)
            with suppress(OSError):  # not connected any more
                end.shutdown(socket.SHUT_RDWR)
            end.detach()


NO_DEADLINE: Final = Deadline(None, inf)


class _Watchdog:
    """The watching thread; it runs while there is anything to watch."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.watched: WeakSet[Deadline] = WeakSet()
        self._thread: threading.Thread | None = None

    def watch(self, deadline: Deadline) -> None:
        with self._lock:
            self.watched.add(deadline)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="partbox-deadlines", daemon=True)
                self._thread.start()

    def forget(self, deadline: Deadline) -> None:
        with self._lock:
            self.watched.discard(deadline)

    def _run(self) -> None:
        pause = CHECK_INTERVALS[0]
        while True:
            time.sleep(pause)
            with self._lock:
                watched = list(self.watched)
                if not watched:
                    self._thread = None
                    return
            for each in watched:
                each.cut_if_overdue()
            shortest = min(each.limit for each in watched)
            pause = min(max(CHECK_INTERVALS[0], shortest / 10), CHECK_INTERVALS[1])


_watchdog = _Watchdog()


def _reset_watchdog() -> None:
    """Start afresh in a forked child: its threads are gone, a lock may be held for ever, and it must keep no socket."""
    global _watchdog  # noqa: PLW0603  one a process
    for deadline in list(_watchdog.watched):
        deadline.release_in_child()
    _watchdog = _Watchdog()


call_in_forked_children(_reset_watchdog)


class WatchedConnection(PlainConnection[Any]):
    """A connection with a deadline. psycopg sends every statement by `wait`, db/blocking.py by libpq's own call."""

    deadline: Deadline = NO_DEADLINE
    lent: bool = False  # an application's code gets it too, and may change how it converts values
    incarnation: Any = None  # see db/delivery/server_incarnation.py
    baseline: Any = None  # see db/delivery/proof.py
    pooled = False  # no session options were sent
    path: str | None = None  # the role's search_path, where ours is another: see db/connect.py
    bell: int | None = None  # see db/delivery/bell.py
    prepared: OrderedDict[bytes, bytes] | None = None  # see db/blocking.py: names of what is prepared, by texts

    def watch(self, limit: float) -> None:
        """Give it a deadline of `limit` seconds a statement."""
        self.deadline = watched(self, limit)

    def wait(self, gen: PQGen[Any], *args: Any, **kwargs: Any) -> Any:
        try:
            with self.deadline:
                return super().wait(gen, *args, **kwargs)
        except OperationalError as error:
            if self.deadline.is_cut:
                raise self.deadline.lost_error() from error
            raise
        except KeyboardInterrupt:
            # psycopg cancels the statement, and reads the answer unless Ctrl-C met its own code between two reads. With
            # the answer unread nothing more can be sent, not even the rollback.
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
    """An asynchronous connection with a deadline, which an application's code gets, too."""

    deadline: Deadline = NO_DEADLINE

    async def wait(self, gen: PQGen[Any], *args: Any, **kwargs: Any) -> Any:
        try:
            with self.deadline:
                return await super().wait(gen, *args, **kwargs)
        except OperationalError as error:
            if self.deadline.is_cut:
                raise self.deadline.lost_error() from error
            raise


def watched(conn: BaseConnection[Any], limit: float) -> Deadline:
    """A deadline of `limit` seconds a statement for any connection of psycopg, from now on."""
    deadline = Deadline(os.dup(conn.pgconn.socket), limit)
    finalize(conn, deadline.close)
    _watchdog.watch(deadline)
    return deadline


def of(conn: BaseConnection[Any]) -> Deadline:
    """The deadline of a connection; one that never expires if it has none."""
    return conn.deadline if isinstance(conn, WatchedConnection | WatchedAsyncConnection) else NO_DEADLINE


@contextmanager
def allow_long_statements(conn: BaseConnection[Any], limit: float = inf) -> Iterator[None]:
    """Allow statements up to `limit` seconds: for an application's statements, or those known to be long."""
    deadline = of(conn)
    before = deadline.limit
    if deadline is not NO_DEADLINE:
        deadline.limit = limit
    try:
        yield
    finally:
        deadline.limit = before
