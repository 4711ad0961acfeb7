"""The memory that a process has allocated and not freed, by its own account: without what its allocators only keep."""

import ctypes
import gc
import sys
import time
from pathlib import Path
from typing import NamedTuple

MEGABYTE = 1e6
FILE = "in_use"


class InUse(NamedTuple):
    """At a time (monotonic seconds): the small blocks that Python has allocated, and the MB of larger ones."""

    at: float
    blocks: int
    malloced: float


LIMITS = {"blocks": 1.02, "malloced": 1.1}
"""The factor by which a process at rest may have more in use than before.

A part of 1 % of the blocks comes and goes by chance; one object for each hundred events is 10 % of them after three
backlogs of a million. Dicts that kept the tables they had at their largest were a fifth of what is malloced after two
backlogs of 300,000 more, and a third after four.
"""


def grown(before: InUse, after: InUse) -> dict[str, tuple[float, float]]:
    """Each kind of memory in use beyond its limit: the value before, and after."""
    pairs = {name: (getattr(before, name), getattr(after, name)) for name in LIMITS}
    return {name: (least, most) for name, (least, most) in pairs.items() if most > least * LIMITS[name]}


FIELDS = ("arena", "ordblks", "smblks", "hblks", "mapped", "usmblks", "fsmblks", "used", "free", "keepcost")


class _MallInfo(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in FIELDS]


class Teller:
    """Writes it to a file of `folder` at most once a second."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / FILE
        self._next = 0.0
        # glibc's from 2.33 on; elsewhere nothing is known of malloc
        self._info = getattr(ctypes.CDLL(None), "mallinfo2", None)
        if self._info is not None:
            self._info.restype = _MallInfo

    def tell(self) -> None:
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + 1.0
        gc.collect()  # garbage in cycles waits for it, now more and now less
        new = self._file.with_suffix(f".{time.monotonic_ns()}")
        new.write_text(f"{now} {sys.getallocatedblocks()} {self._malloced()}")
        new.replace(self._file)

    def _malloced(self) -> float:
        if self._info is None:
            return 0.0
        info = self._info()
        return float((info.used + info.mapped) / MEGABYTE)


def told(folder: Path) -> InUse:
    """The last that was told; zeros before that."""
    try:
        at, blocks, malloced = (folder / FILE).read_text().split()
    except FileNotFoundError:
        return InUse(0.0, 0, 0.0)
    return InUse(float(at), int(blocks), float(malloced))
