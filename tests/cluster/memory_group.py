"""A control group whose processes have so much memory and no more: the kernel kills who asks for more."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

import pytest
from waiting import eventually

ROOT = Path("/sys/fs/cgroup")


class MemoryGroup:
    """A control group with a limit of memory, in its `folder`; of version 1 or 2."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add(self, pid: int) -> None:
        """Count the memory that the process and its children allocate from now on."""
        (self.folder / "cgroup.procs").write_text(str(pid))

    def kills(self) -> int:
        """The number of processes that the kernel has killed here for want of memory."""
        found = next(path for name in ("memory.events", "memory.oom_control") if (path := self.folder / name).exists())
        return int(dict(line.split() for line in found.read_text().splitlines())["oom_kill"])


@contextmanager
def memory_group(megabytes: int) -> Iterator[MemoryGroup]:
    """One with so much memory and no swap; skips the test where none can be made."""
    first = ROOT / "memory" if (ROOT / "memory/memory.limit_in_bytes").exists() else ROOT
    folder = first / f"partbox-{uuid4().hex[:8]}"
    try:
        if first == ROOT:
            (ROOT / "cgroup.subtree_control").write_text("+memory")
        folder.mkdir()
        limit = next(path for name in ("memory.max", "memory.limit_in_bytes") if (path := folder / name).exists())
        limit.write_text(str(megabytes << 20))
    except (OSError, StopIteration) as error:
        with suppress(OSError):
            folder.rmdir()
        # In a container without rights on /sys/fs/cgroup; the kernel kills nothing there that a test could ask for.
        pytest.skip(f"no control group with a limit of memory can be made here: {error!r}")
    for name, value in (("memory.swap.max", "0"), ("memory.memsw.limit_in_bytes", str(megabytes << 20))):
        with suppress(OSError):  # where swap is not counted
            (folder / name).write_text(value)
    try:
        yield MemoryGroup(folder)
    finally:
        eventually(lambda: _removed(folder))


def _removed(folder: Path) -> bool:
    """True once no process is left in it."""
    with suppress(OSError):
        os.rmdir(folder)
    return not folder.exists()
