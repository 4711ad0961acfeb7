"""A disk so small that it can be filled: a tmpfs of its own, where the machine lets one be mounted."""

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from servers import new_folder

from partbox.embedded import server_user

PIECES = (1 << 20, 4096)
"""Bytes that are written at once, as long as there is room for as much."""


class SmallDisk:
    """Mounted at `folder`, for the server's user."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ballast = folder / "ballast"

    def fill(self) -> None:
        """Leave no room at all."""
        with self._ballast.open("ab", buffering=0) as file:
            for piece in PIECES:
                while _written(file.fileno(), piece):
                    pass

    def make_room(self) -> None:
        self._ballast.unlink()


def _written(file: int, count: int) -> bool:
    try:
        return os.write(file, bytes(count)) == count
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        return False


@contextmanager
def small_disk(megabytes: int) -> Iterator[SmallDisk]:
    """One of this size; skips the test where none can be mounted."""
    if os.geteuid() != 0:
        pytest.skip("a small disk is mounted by root alone")
    user = server_user.server_user()
    assert user is not None
    with new_folder() as folder:
        server_user.open_folder(folder)
        options = f"size={megabytes}m,mode=0700,uid={user.pw_uid},gid={user.pw_gid}"
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], capture_output=True, text=True, check=False
        )
        if done.returncode:
            pytest.skip(f"no tmpfs can be mounted here: {done.stderr.strip()}")
        try:
            yield SmallDisk(folder)
        finally:
            subprocess.run(["umount", "--lazy", folder], check=True)
