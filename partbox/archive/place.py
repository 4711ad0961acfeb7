"""Places of an archive: a directory, S3, or a URL of what fsspec has a library for, such as `gs://bucket/prefix`."""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import BinaryIO, Protocol
from urllib.parse import unquote, urlsplit

from partbox.archive.directory import Directory
from partbox.archive.remote import S3, Remote
from partbox.errors import SettingsError
from partbox.text.url_query import query_of


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
