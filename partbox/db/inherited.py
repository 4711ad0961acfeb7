"""Connections that a forked process inherits: it must neither use nor close them.

Both processes have the same sockets. What the child writes reaches the parent's session, and libpq writes even when a
connection is merely garbage-collected: it sends Terminate, and the server ends the parent's session.
"""

import os
from contextlib import suppress
from typing import Any
from weakref import WeakSet

from psycopg import Connection, Error

from partbox.platform import in_forked_children

_open: WeakSet[Connection[Any]] = WeakSet()


def not_inherited(conn: Connection[Any]) -> None:
    """Keep the socket of this connection out of forked processes."""
    _open.add(conn)


def _let_go() -> None:
    """Replace each socket by /dev/null: its number stays taken, since libpq may still write to it."""
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for conn in list(_open):
        with suppress(Error, OSError):
            os.dup2(nothing, conn.fileno(), inheritable=False)
    os.close(nothing)
    _open.clear()


in_forked_children(_let_go)
