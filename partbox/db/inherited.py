"""Connections that a forked process inherits: it must not use them, nor close them.

Both processes have the same sockets. What the child wrote would reach the parent's session, and libpq writes even when
a connection is merely forgotten: it takes leave of the server, which then ends the session of the parent.
"""

import os
from contextlib import suppress
from typing import Any
from weakref import WeakSet

from psycopg import Connection, Error

_open: WeakSet[Connection[Any]] = WeakSet()


def not_inherited(conn: Connection[Any]) -> None:
    """Of this connection no forked process keeps the socket."""
    _open.add(conn)


def _let_go() -> None:
    """Put nothing in the place of each socket: its number stays taken, for libpq may still write to it."""
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for conn in list(_open):
        with suppress(Error, OSError):
            os.dup2(nothing, conn.fileno(), inheritable=False)
    os.close(nothing)
    _open.clear()


os.register_at_fork(after_in_child=_let_go)
