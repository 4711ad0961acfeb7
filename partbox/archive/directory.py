"""A directory of this machine as the place of an archive."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import BinaryIO, Final, cast

from partbox.archive.errors import PROBE, place_errors

UNFINISHED: Final = (".record-", ".part")
"""The beginning and the end of the name of a file that is being written."""
ABANDONED: Final = 86_400.0
"""Seconds after which it is what a killed process has left."""


class Directory:
    """A directory; its files can be read by their owner alone. See `Place`."""

    def __init__(self, path: Path) -> None:
        self.shown = str(path)
        self._path = path

    @contextmanager
    def writing(self) -> Iterator[BinaryIO]:
        """A file in the directory, which is made if it is missing. Not its parents: a mount may be what is missing."""
        begin, end = UNFINISHED
        with place_errors(self.shown):
            self._path.mkdir(exist_ok=True)
            self._tidy()
            with NamedTemporaryFile("w+b", prefix=begin, suffix=end, dir=self._path, delete=False) as file:
                try:
                    yield cast(BinaryIO, file)
                finally:
                    with suppress(FileNotFoundError):
                        os.unlink(file.name)

    def keep(self, file: BinaryIO, name: str) -> None:
        """Sync, rename, and sync the name."""
        with place_errors(self.shown):
            file.flush()
            os.fsync(file.fileno())
            os.rename(file.name, self._path / name)
            self._sync()

    def probe(self) -> None:
        is_new = not self._path.exists()
        with self.writing() as file, place_errors(self.shown):
            file.write(PROBE)
            file.flush()
        if is_new:
            with suppress(OSError):  # somebody has written there meanwhile
                self._path.rmdir()

    def names(self) -> list[str]:
        with place_errors(self.shown):
            return [each.name for each in self._path.iterdir() if each.is_file()]

    @contextmanager
    def reading(self, name: str) -> Iterator[BinaryIO]:
        with place_errors(str(self._path / name)), open(self._path / name, "rb") as file:
            yield file

    def _sync(self) -> None:
        handle = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def _tidy(self) -> None:
        """Remove what killed processes have left."""
        begin, end = UNFINISHED
        for each in self._path.glob(f"{begin}*{end}"):
            with suppress(FileNotFoundError):
                if time.time() - each.stat().st_mtime > ABANDONED:
                    each.unlink()
