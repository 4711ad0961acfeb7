"""Stopping a server's process by a signal, at a moment when it holds nothing that others need."""

import os
import signal
import sys
from pathlib import Path

import pytest
from waiting import eventually


def stop_at_rest(pid: int) -> None:
    """SIGSTOP for a backend, or another process of a server, while it waits for a client, a latch or the time.

    Within a statement it may hold one of the locks inside PostgreSQL that end within microseconds, on a page or on the
    list of running transactions. Nobody gives those up for another: a stop just then stops the whole server.
    """
    if sys.platform != "linux":
        pytest.skip("where a process waits is read from /proc, which Linux has")
    eventually(lambda: _stopped(pid))


def _stopped(pid: int) -> bool:
    waits = _call(pid)
    if "epoll" not in _read(pid, "wchan"):
        return False
    os.kill(pid, signal.SIGSTOP)
    eventually(lambda: "(stopped)" in _read(pid, "status"), interval=0)
    if _call(pid) == waits:
        return True
    os.kill(pid, signal.SIGCONT)
    return False


def _call(pid: int) -> list[str]:
    """The number and arguments of the system call that it is in; what follows them is its stack."""
    return _read(pid, "syscall").split()[:7]


def _read(pid: int, what: str) -> str:
    return Path(f"/proc/{pid}/{what}").read_text()
