"""Servers that crash, and standbys that follow one."""

import os
import signal
import time

from partbox.embedded import server_user
from partbox.embedded.server import Server
from partbox_lab import processes

PATIENCE = 60.0  # seconds


def follow(standby: Server, primary: Server) -> str:
    """Start a server as a standby of one that runs, from a base backup of it; returns its DSN."""
    with standby.guarded():
        server_user.private_folder(standby._pgdata, standby._programs.user)
        source = ["-h", str(primary._socket.parent), "-p", "5432", "-U", "postgres", "-c", "fast", "-X", "stream"]
        standby._programs.run("pg_basebackup", standby._pgdata, *source, "-R", "--no-sync")
        standby.start_guarded()
    return standby.dsn


def crash(server: Server) -> None:
    """End the server as a crash would, by SIGKILL, and wait until all its processes have ended."""
    postmaster = server._postmaster
    if postmaster is None:
        return
    os.kill(postmaster, signal.SIGSTOP)  # no new children from here on
    # It goes last: a commit that waits for a standby ends its wait when it sees it gone, and is visible then.
    family = [*processes.children(postmaster), postmaster]
    processes.signal_all(family, signal.SIGKILL)
    until = time.monotonic() + PATIENCE
    while any(map(processes.alive, family)):
        if time.monotonic() > until:
            raise TimeoutError(f"the killed server does not end within {PATIENCE:g} s")
        time.sleep(0.01)
