"""The DSN `embedded:` or `embedded:./some/folder`: a PostgreSQL 18 of our own, started at first use.

All processes that name a folder share its server: the first starts it, the last to exit stops it. Each holds a lock
that vanishes with it, so a killed process counts as gone; if it was the last, the server stays until the next one
that uses it exits.
"""

import atexit
import os
import threading
from pathlib import Path
from typing import IO

from partbox.embedded import server_user
from partbox.embedded.processes import alone, shared
from partbox.embedded.server import Server

PREFIX = "embedded:"

_used: dict[Path, IO[bytes]] = {}
_using = threading.Lock()


def resolve(dsn: str) -> str:
    """Return a DSN that libpq understands; starts the server if `dsn` is an embedded one.

    The server then runs at least until this process exits. Raises PartboxError if it cannot.
    """
    if not dsn.startswith(PREFIX):
        return dsn
    server = Server(folder(dsn))
    with _using, server.guarded():
        if server.data not in _used:  # before the start: an interrupted start is cleaned up too
            _used[server.data] = shared(server.data / "users.lock")
            atexit.register(_leave, server, os.getpid())
        server.start_guarded()
    return server.dsn


def folder(dsn: str) -> Path:
    """The folder that an embedded DSN names; relative ones are below the current folder."""
    path = dsn.removeprefix(PREFIX)
    return Path(path).expanduser().resolve() if path else default_folder()


def default_folder() -> Path:
    """The data folder of plain `embedded:`: in the user's state folder, or in the system's for root."""
    if os.geteuid() == 0:
        return server_user.STATE / "db"
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser() / "partbox" / "db"


def _leave(server: Server, pid: int) -> None:
    """Stop the server if no other process uses it."""
    if os.getpid() != pid or not server.data.exists():  # a fork is not a user of its own
        return
    with server.guarded(), _used.pop(server.data) as hold:
        if alone(hold):
            server.stop_guarded()
