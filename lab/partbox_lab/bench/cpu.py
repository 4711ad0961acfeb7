"""CPU time of processes, and the share of it that a hypervisor stole."""

import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress

import psutil

from partbox_lab.bench.statements import Backend

ELSEWHERE = "the server runs on another machine, where the CPU of its processes cannot be read"
NEAR = 2.0  # seconds between two opinions on when a process began


def cpu_seconds(pid: int) -> float:
    """Seconds of CPU that a process has used, threads that have ended included; to the nanosecond on Linux, else to
    the tick of the kernel."""
    if sys.platform == "linux":
        with suppress(OSError):
            return time.clock_gettime(~pid << 3 | 2)  # the clock that clock_getcpuclockid(3) of libc gives
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def by_process(pids: Iterable[int]) -> dict[int, float]:
    """Seconds of CPU that each process has used, by its pid; a process that has ended is left out."""
    spent = {}
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            spent[pid] = cpu_seconds(pid)
    return spent


def total(pids: Iterable[int]) -> float:
    """Seconds of CPU that all of the processes have used together."""
    return sum(by_process(pids).values())


def between(before: Mapping[int, float], after: Mapping[int, float]) -> float:
    """Seconds of CPU from one reading by process to another, of processes that are there at the end."""
    return sum(spent - before.get(pid, 0.0) for pid, spent in after.items())


def is_here(backend: Backend) -> bool:
    """True if the server process runs on this machine, where its CPU time can be read."""
    with suppress(psutil.Error):
        return abs(psutil.Process(backend.pid).create_time() - backend.began) < NEAR
    return False


class StolenTime:
    """The share of the machine's time, from now on, that its host gave to others."""

    def __init__(self) -> None:
        self._before = psutil.cpu_times()

    def share(self) -> float | None:
        """0 to 1; None where the kernel does not count it."""
        now, before = psutil.cpu_times(), self._before
        if not hasattr(now, "steal"):
            return None
        # Time of guests is a part of user and nice.
        names = [name for name in now._fields if not name.startswith("guest")]
        passed = sum(getattr(now, name) - getattr(before, name) for name in names)
        return (now.steal - before.steal) / passed if passed > 0 else 0.0
