"""Places of an archive: a directory, S3, or a URL of what fsspec has a library for, such as `gs://bucket/prefix`."""

import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import BinaryIO, Final, Protocol, cast
from urllib.parse import unquote, urlsplit

from partbox.archive.errors import PROBE, place_errors
from partbox.archive.remote import S3, Remote
from partbox.errors import SettingsError
from partbox.text.dsn import query_of

UNFINISHED: Final = (".record-", ".part")
"""The beginning and the end of the name of a file that is being written."""
ABANDONED: Final = 86_400.0
"""Seconds after which it is what a killed process has left."""


class Place(Protocol):
    """Holds files by their names. Errors are PartboxError, with the place and a remedy."""

    shown: str

    def writing(self) -> AbstractContextManager[BinaryIO]:
        """A file to write to, which is none of the place yet; unless it is kept, it is gone in the end."""
        ...

    def keep(self, file: BinaryIO, name: str) -> None:
        """Keep what was written to it under this name: once this returns, no crash takes it back."""
        ...

    def probe(self) -> None:
        """Write a file there, and take it away again as far as that is allowed; an error if nothing can be written."""
        ...

    def names(self) -> list[str]:
        """The names of its files."""
        ...

    def reading(self, name: str) -> AbstractContextManager[BinaryIO]:
        """One of its files, to be read."""
        ...


class Directory:
    """A directory of this machine; its files can be read by their owner alone. See `Place`."""

    def __init__(self, path: Path) -> None:
        self.shown = str(path)
        self._path = path

    @contextmanager
    def writing(self) -> Iterator[BinaryIO]:
        """A file in the directory, which is made if it is missing. Not its parents: a mount may be what is missing."""
        begin, end = UNFINISHED
        with place_errors(self.shown):
            self._path.mkdir(exist_ok=True)
            for each in self._path.glob(f"{begin}*{end}"):  # what killed processes have left, too
                with suppress(FileNotFoundError):
                    if time.time() - each.stat().st_mtime > ABANDONED:
                        each.unlink()
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


def place_of(text: str) -> Place:
    """The place: a directory, `file://…`, or a URL; SettingsError if it is none, or its library is missing."""
    scheme, mark, _ = text.partition("://")
    if not mark:
        return Directory(Path(text))
    if scheme.lower() != "file":
        return S3(text) if scheme.lower() == "s3" else Remote(text)
    parts = urlsplit(text)
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise SettingsError(f"archive {text!r} is no path of this machine: write file:///srv/archive, or just the path")
    query_of(text, ())
    return Directory(Path(unquote(parts.path)))
