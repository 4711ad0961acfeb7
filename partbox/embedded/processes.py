"""Facts about processes from /proc, readable for those of other users too."""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_GONE = (FileNotFoundError, ProcessLookupError)


def arguments(pid: int) -> list[str]:
    """The command line of a process; empty if there is none."""
    try:
        return os.fsdecode(Path(f"/proc/{pid}/cmdline").read_bytes()).split("\0")
    except _GONE:
        return []


def children(parent: int) -> list[int]:
    """The pids of the processes whose parent is `parent`."""
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [pid for pid in pids if _status(pid)[1:2] == [str(parent)]]


def group(leader: int) -> list[int]:
    """The pids of the process group of `leader` that have not ended."""
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [pid for pid in pids if (found := _status(pid))[2:3] == [str(leader)] and found[0] not in ("Z", "X")]


def alive(pid: int) -> bool:
    """False if the process has ended, also if nobody has collected it yet."""
    return _status(pid)[:1] not in ([], ["Z"], ["X"])


def signal_all(pids: Iterable[int], signal: int) -> None:
    """Send `signal` to each process that still exists."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal)


def _status(pid: int) -> list[str]:
    """State, parent and more; empty if there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes().decode(errors="replace")
    except _GONE:
        return []
    return text.rpartition(")")[2].split()  # the name before it may hold anything
