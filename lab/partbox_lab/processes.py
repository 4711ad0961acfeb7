import os
from collections.abc import Iterable
from contextlib import suppress

import psutil

ENDED = (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)


def children(parent: int) -> list[int]:
    with suppress(psutil.Error):
        return [child.pid for child in psutil.Process(parent).children()]
    return []


def group(leader: int) -> list[int]:
    return [pid for pid in psutil.pids() if pid and _group_of(pid) == leader and alive(pid)]


def alive(pid: int) -> bool:
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
    except OSError:
        return None
