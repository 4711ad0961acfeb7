"""The DSN `embedded:` or `embedded:./some/folder`. All processes that name a folder share its PostgreSQL server: the
first process starts the server, and the last one stops it at its exit."""

import atexit
import os
import threading
from pathlib import Path
from typing import IO

from partbox.embedded import server_user
from partbox.embedded.processes import lock_shared, try_lock_alone
from partbox.embedded.server import Server

PREFIX = "embedded:"

_locks: dict[Path, IO[bytes]] = {}
_locks_guard = threading.Lock()


def resolve(dsn: str) -> str:
    """Return a DSN for libpq. If the given DSN is embedded (`embedded:`), start the PostgreSQL server of its folder
    first."""
    # Programs of others import this function by its name, to have a server for their own tests.
    # That server then runs at least until this process exits. PartboxError is raised if the server cannot run.
    # Each process holds a lock that disappears with the process, so a killed process counts as gone. If the last
    # process is killed, the server runs until the next process that uses the server exits.
    if not dsn.startswith(PREFIX):
        return dsn
    server = Server(folder_of(dsn))
    with _locks_guard, server.guard_folder():
        # Locked before the start, so that an interrupted start is cleaned up too.
        if server.data_folder not in _locks:
            _locks[server.data_folder] = lock_shared(server.data_folder / "users.lock")
            atexit.register(_release_server, server, os.getpid())
        server.start_guarded()
    return server.dsn


def folder_of(dsn: str) -> Path:
    """Return the data folder that a DSN such as `embedded:FOLDER` names, relative to the current folder."""
    path = dsn.removeprefix(PREFIX)
    return Path(path).expanduser().resolve() if path else find_default_folder()


def find_default_folder() -> Path:
    """Return the data folder of the embedded server for a DSN that names no folder (`embedded:`)."""
    # The folder is in the user's state folder, or in the system's for root.
    if os.geteuid() == 0:
        return server_user.STATE / "db"
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser() / "partbox" / "db"


def _release_server(server: Server, pid: int) -> None:
    # A forked child is not a user of its own.
    if os.getpid() != pid or not server.data_folder.exists():
        return
    with server.guard_folder(), _locks.pop(server.data_folder) as hold:
        if try_lock_alone(hold):
            server.stop_guarded()
