"""Processes of others: what they are, and signals to them."""

import os
from collections.abc import Iterable
from contextlib import suppress

import psutil

ENDED = (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)


def arguments(pid: int) -> list[str]:
    """The command line of a process; empty if there is none."""
    try:
        return psutil.Process(pid).cmdline()
    except psutil.Error:
        return []


def children(parent: int) -> list[int]:
    """The pids of the processes whose parent is `parent`."""
    try:
        return [child.pid for child in psutil.Process(parent).children()]
    except psutil.Error:
        return []


def group(leader: int) -> list[int]:
    """The pids of the process group of `leader` that have not ended."""
    return [pid for pid in psutil.pids() if pid and _group_of(pid) == leader and alive(pid)]  # of macOS's pid 0, ours


def alive(pid: int) -> bool:
    """False if the process has ended, also if nobody has collected it yet."""
    return _status(pid) not in (None, *ENDED)


def stopped(pid: int) -> bool:
    """True if the kernel says that it is stopped (SIGSTOP, a debugger)."""
    return _status(pid) in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)


def signal_all(pids: Iterable[int], signal: int) -> None:
    """Send `signal` to each process that still exists."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal)


def _group_of(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except OSError:  # it has ended, or is none of ours to ask about
        return None


def _status(pid: int) -> str | None:
    try:
        return psutil.Process(pid).status()
    except psutil.Error:
        return None
