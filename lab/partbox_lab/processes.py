"""Processes of others: which there are, and signals to them."""

import os
from collections.abc import Iterable
from contextlib import suppress

import psutil

ENDED = (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)


def children(parent: int) -> list[int]:
    """The pids of the children of a process; none if it has ended."""
    with suppress(psutil.Error):
        return [child.pid for child in psutil.Process(parent).children()]
    return []


def group(leader: int) -> list[int]:
    """The pids of the process group of `leader` that have not ended."""
    return [pid for pid in psutil.pids() if pid and _group_of(pid) == leader and alive(pid)]  # of macOS's pid 0, ours


def alive(pid: int) -> bool:
    """False if the process has ended, also if nobody has collected it yet."""
    with suppress(psutil.Error):
        return psutil.Process(pid).status() not in ENDED
    return False


def signal_all(pids: Iterable[int], signal: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal)


def _group_of(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except OSError:  # it has ended, or is none of ours to ask about
        return None
