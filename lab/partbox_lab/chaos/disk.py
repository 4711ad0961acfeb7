"""A disk so small that it can be filled: a tmpfs of its own, where the machine lets one be mounted."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from partbox.errors import PartboxError

MOUNTED: Final = "only root can mount a disk that is small enough"
TRIES = 1_000
"""Others write while it is being filled, and then it is larger than it was to be."""


class SmallDisk:
    """Mounted over `folder`; see `mounted`."""

    def __init__(self, folder: Path, megabytes: int) -> None:
        self.folder = folder
        self._size = megabytes << 20

    def fill(self) -> None:
        """Leave no room at all: it becomes as small as what is on it."""
        for _ in range(TRIES):
            if not self._resized(shutil.disk_usage(self.folder).used):
                return
        raise PartboxError(f"the disk of {self.folder} cannot be filled: {self._resized(1)}")

    def make_room(self) -> None:
        if problem := self._resized(self._size):
            raise PartboxError(f"the disk of {self.folder} gets no room: {problem}")

    def _resized(self, size: int) -> str:
        """The reason that it did not work, or nothing."""
        return _mount(self.folder, f"remount,size={size}")


@contextmanager
def mounted(folder: Path, megabytes: int, owner: tuple[int, int] | None = None) -> Iterator[SmallDisk]:
    """One of this size over an empty folder, which the user and the group `owner` alone can enter; without it, anybody.

    Raises PartboxError where none can be mounted.
    """
    if os.geteuid() != 0:
        raise PartboxError(MOUNTED)
    rights = f"mode=0700,uid={owner[0]},gid={owner[1]}" if owner else "mode=0755"
    if problem := _mount(folder, f"size={megabytes}m,{rights}"):
        raise PartboxError(f"no tmpfs can be mounted here: {problem}")
    try:
        yield SmallDisk(folder, megabytes)
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def _mount(folder: Path, options: str) -> str:
    """The reason that it did not work, or nothing."""
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        return str(error)
    return (done.stderr.strip() or f"mount ended with code {done.returncode}") if done.returncode else ""
