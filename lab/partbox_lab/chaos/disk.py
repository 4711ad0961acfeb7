"""A disk small enough to be filled: a tmpfs, where the machine permits to mount one."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from partbox.errors import PartboxError

MOUNTED: Final = "only root can mount a disk that is small enough"
# Others write while the disk is filled, and then it is larger than the size asked for.
TRIES = 1_000


class SmallDisk:
    """A tmpfs mounted over `folder`. Filling it writes nothing: its size is reduced to the space used."""

    def __init__(self, folder: Path, megabytes: int) -> None:
        self.folder = folder
        self._size = megabytes << 20

    def fill(self) -> None:
        """Reduce the disk to the space used. Raise `PartboxError` if that fails `TRIES` times."""
        for _ in range(TRIES):
            if not self._resized(shutil.disk_usage(self.folder).used):
                return
        raise PartboxError(f"the disk of {self.folder} cannot be filled: {self._resized(1)}")

    def make_room(self) -> None:
        """Give the disk its full size again."""
        if problem := self._resized(self._size):
            raise PartboxError(f"the disk of {self.folder} gets no room: {problem}")

    def _resized(self, size: int) -> str:
        return _mount(self.folder, f"remount,size={size}")


@contextmanager
def mounted(folder: Path, megabytes: int, owner: tuple[int, int] | None = None) -> Iterator[SmallDisk]:
    """Mount a small disk over an empty folder, which only the user and group `owner` can enter, or anybody without
    `owner`. Raise `PartboxError` if none can be mounted."""
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
    """Run `mount` and return its error, or an empty string."""
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        return str(error)
    return (done.stderr.strip() or f"mount ended with code {done.returncode}") if done.returncode else ""
