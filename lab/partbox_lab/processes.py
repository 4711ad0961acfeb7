"""Find processes of other programs, and send signals to them."""

import os
from collections.abc import Iterable
from contextlib import suppress

import psutil

ENDED = (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)


def children(parent: int) -> list[int]:
    """Return the pids of a process's children, or none if it has ended."""
    with suppress(psutil.Error):
        return [child.pid for child in psutil.Process(parent).children()]
    return []


def group(leader: int) -> list[int]:
    """Return the pids of the process group of `leader` that have not ended."""
    # The group of macOS's pid 0 would be the caller's own.
    return [pid for pid in psutil.pids() if pid and _group_of(pid) == leader and alive(pid)]


def alive(pid: int) -> bool:
    """Return False if the process has ended, even if its parent has not reaped it yet."""
    with suppress(psutil.Error):
        return psutil.Process(pid).status() not in ENDED
    return False


def signal_all(pids: Iterable[int], signal: int) -> None:
    """Send a signal to all processes that have not ended."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal)


def _group_of(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except OSError:
        # The process has ended, or belongs to another user.
        return None
