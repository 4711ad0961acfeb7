"""A URL as the place of an archive, by fsspec: `s3://bucket/prefix` and whatever else it has a library for."""

from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import NamedTemporaryFile
from typing import Any, BinaryIO, Final, cast
from uuid import uuid4

from partbox.archive.library import library
from partbox.archive.told import told
from partbox.errors import SettingsError
from partbox.rules.secrets import masked_url

WHOLE: Final = {"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oss", "oci", "memory"}
"""Protocols of stores in which a file appears once it is there whole; elsewhere it is renamed then."""
EXTRAS: Final = {"s3": "partbox[s3]", "s3a": "partbox[s3]", "gs": "gcsfs", "gcs": "gcsfs", "az": "adlfs", "abfs": "adlfs"}


class Remote:
    """A folder of a remote file system; files are written here first, and uploaded whole. See `Place`."""

    def __init__(self, url: str) -> None:
        self.shown = masked_url(url)
        self._scheme = url.partition("://")[0].lower()
        self._fs, self._root = self._opened(url)
        if not self._root.strip("/") and self._scheme in ("s3", "s3a", "gs", "gcs"):
            raise SettingsError(f"archive {self.shown!r} names no bucket: write {self._scheme}://BUCKET/PREFIX")

    def _opened(self, url: str) -> tuple[Any, str]:
        open_url = library("fsspec").core.url_to_fs
        try:
            fs, root = open_url(url)
        except ImportError:
            extra = EXTRAS.get(self._scheme)
            remedy = f"pip install '{extra}'" if extra else "install what fsspec needs for it"
            raise SettingsError(f"archive {self.shown!r}: the library for {self._scheme}:// is missing: {remedy}") from None
        except ValueError:
            raise SettingsError(
                f"archive {self.shown!r}: {self._scheme}:// is unknown: name a directory, or a URL such as s3://bucket/prefix"
            ) from None
        return fs, root.rstrip("/")

    @contextmanager
    def writing(self) -> Iterator[BinaryIO]:
        with told("the temporary folder"), NamedTemporaryFile("w+b", prefix="partbox-", suffix=".part") as file:
            yield cast(BinaryIO, file)

    def keep(self, file: BinaryIO, name: str) -> None:
        """Upload it."""
        path = f"{self._root}/{name}"
        with told(self.shown):
            file.flush()
            if self._scheme in WHOLE:
                self._fs.put_file(file.name, path)
            else:
                self._fs.makedirs(self._root, exist_ok=True)
                aside = f"{self._root}/.record-{uuid4().hex}.part"
                self._fs.put_file(file.name, aside)
                self._fs.mv(aside, path)

    def names(self) -> list[str]:
        with told(self.shown):
            self._fs.invalidate_cache()
            return [each["name"].rsplit("/", 1)[-1] for each in self._fs.ls(self._root, detail=True) if each["type"] == "file"]

    @contextmanager
    def reading(self, name: str) -> Iterator[BinaryIO]:
        with told(f"{self.shown}/{name}"), self._fs.open(f"{self._root}/{name}", "rb") as file:
            yield file
