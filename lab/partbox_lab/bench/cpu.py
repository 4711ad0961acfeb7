"""CPU time of processes, and the share of it that a hypervisor stole."""

import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress

import psutil

from partbox_lab.bench.statements import Backend

ELSEWHERE = "the server runs on another machine, where the CPU of its processes cannot be read"
NEAR = 2.0  # seconds, by which two clocks may disagree on the start of a process


def cpu_seconds(pid: int) -> float:
    """Return the CPU seconds of a process, ended threads included. The precision is 1 ns on Linux, elsewhere a tick."""
    if sys.platform == "linux":
        with suppress(OSError):
            # The id of the process's clock, as clock_getcpuclockid(3) of libc returns it.
            return time.clock_gettime(~pid << 3 | 2)
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def by_process(pids: Iterable[int]) -> dict[int, float]:
    """Return the CPU seconds of each process that is still alive, by process id."""
    spent = {}
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            spent[pid] = cpu_seconds(pid)
    return spent


def total(pids: Iterable[int]) -> float:
    """Return the CPU seconds of all given processes that are still alive."""
    return sum(by_process(pids).values())


def between(before: Mapping[int, float], after: Mapping[int, float]) -> float:
    """Return the CPU seconds between two readings, of the processes that are in the second one."""
    return sum(spent - before.get(pid, 0.0) for pid, spent in after.items())


def is_here(backend: Backend) -> bool:
    """Return True if the server process runs on this machine, where its CPU time can be read."""
    with suppress(psutil.Error):
        return abs(psutil.Process(backend.pid).create_time() - backend.began) < NEAR
    return False


class StolenTime:
    """The share of CPU time that the hypervisor has taken since this object was created."""

    def __init__(self) -> None:
        self._before = psutil.cpu_times()

    def share(self) -> float | None:
        """Return the share from 0 to 1, or None if the kernel does not count stolen time."""
        now, before = psutil.cpu_times(), self._before
        if not hasattr(now, "steal"):
            return None
        # Guest time is already part of the user time.
        names = [name for name in now._fields if not name.startswith("guest")]
        passed = sum(getattr(now, name) - getattr(before, name) for name in names)
        return (now.steal - before.steal) / passed if passed > 0 else 0.0
