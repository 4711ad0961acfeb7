"""A URL as the place of an archive: `s3://bucket/prefix`, and by fsspec whatever else it has a library for."""

from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from tempfile import NamedTemporaryFile
from typing import Any, BinaryIO, Final, cast
from urllib.parse import urlsplit
from uuid import uuid4

from partbox.archive.errors import PROBE, PROBED, library, place_errors
from partbox.errors import PartboxError, SettingsError
from partbox.text.dsn import query_of
from partbox.text.secrets import masked_url

WHOLE: Final = {"gs", "gcs", "az", "abfs", "abfss", "adl", "oss", "oci", "memory"}
"""Protocols of stores in which a file appears once it is there whole; elsewhere it is renamed then."""
LIBRARIES: Final = {"gs": "gcsfs", "gcs": "gcsfs", "az": "adlfs", "abfs": "adlfs", "sftp": "paramiko"}


@contextmanager
def temporary_file() -> Iterator[BinaryIO]:
    """A file of this machine, in its temporary folder, to be uploaded whole."""
    with place_errors("the temporary folder"), NamedTemporaryFile("w+b", prefix="partbox-", suffix=".part") as file:
        yield cast(BinaryIO, file)


class Remote:
    """A folder of another remote file system; files are written here first, and uploaded whole. See `Place`."""

    def __init__(self, url: str) -> None:
        self.shown = masked_url(url)
        query_of(url, ())
        self._scheme = url.partition("://")[0].lower()
        opened = library("fsspec").core.url_to_fs
        try:
            with place_errors(self.shown):
                self._fs, root = opened(url)
        except PartboxError as error:
            raise SettingsError(self._remedied(error)) from None
        self._root = root.rstrip("/")

    def _remedied(self, error: PartboxError) -> str:
        if isinstance(error.__cause__, ImportError):
            missing = LIBRARIES.get(self._scheme, "what fsspec needs for it")
            return f"archive {self.shown!r}: the library for {self._scheme}:// is missing: pip install {missing}"
        if isinstance(error.__cause__, ValueError):
            return f"archive {self.shown!r}: {self._scheme}:// is unknown: name a directory, or s3://BUCKET/PREFIX"
        return str(error)

    writing = staticmethod(temporary_file)

    def keep(self, file: BinaryIO, name: str) -> None:
        """Upload it."""
        path = f"{self._root}/{name}"
        with place_errors(self.shown):
            file.flush()
            if self._scheme in WHOLE:
                self._fs.put_file(file.name, path)
            else:
                self._fs.makedirs(self._root, exist_ok=True)
                aside = f"{self._root}/.record-{uuid4().hex}.part"
                self._fs.put_file(file.name, aside)
                self._fs.mv(aside, path)

    def probe(self) -> None:
        with self.writing() as file:
            file.write(PROBE)
            self.keep(file, PROBED)
        with suppress(Exception):  # a place may be one that files are only added to
            self._fs.rm_file(f"{self._root}/{PROBED}")

    def names(self) -> list[str]:
        with place_errors(self.shown):
            self._fs.invalidate_cache()
            found = self._fs.ls(self._root, detail=True)
            return [each["name"].rpartition("/")[2] for each in found if each["type"] == "file"]

    @contextmanager
    def reading(self, name: str) -> Iterator[BinaryIO]:
        with place_errors(f"{self.shown}/{name}"), self._fs.open(f"{self._root}/{name}", "rb") as file:
            yield file


class S3:
    """A bucket, and a prefix in it, by boto3, with credentials as it finds them. See `Place`.

    `?endpoint=URL` names another server that speaks S3's protocol. What it needs: PutObject to write; ListBucket and
    GetObject to read back. A file appears there once it is uploaded whole.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.shown = masked_url(url)
        self._bucket = parts.netloc
        self._prefix = parts.path.strip("/")
        if not self._bucket or "@" in self._bucket:
            raise SettingsError(f"archive {self.shown!r} names no bucket: write s3://BUCKET/PREFIX")
        endpoint = query_of(url, ("endpoint",)).get("endpoint")
        with place_errors(self.shown):
            self._client: Any = library("boto3", "s3").client("s3", endpoint_url=endpoint)

    writing = staticmethod(temporary_file)

    def keep(self, file: BinaryIO, name: str) -> None:
        """Upload it."""
        with place_errors(self.shown):
            file.flush()
            self._client.upload_file(file.name, self._bucket, self._key(name))

    def probe(self) -> None:
        with place_errors(self.shown):
            self._client.put_object(Bucket=self._bucket, Key=self._key(PROBED), Body=PROBE)
        with suppress(Exception):  # DeleteObject is nothing that an archive needs
            self._client.delete_object(Bucket=self._bucket, Key=self._key(PROBED))

    def names(self) -> list[str]:
        with place_errors(self.shown):
            found = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=self._key(""), Delimiter="/"
            )
            return [each["Key"].rpartition("/")[2] for page in found for each in page.get("Contents", ())]

    @contextmanager
    def reading(self, name: str) -> Iterator[BinaryIO]:
        with place_errors(f"{self.shown}/{name}"):
            answer = self._client.get_object(Bucket=self._bucket, Key=self._key(name))
            with closing(answer["Body"]) as body:
                yield cast(BinaryIO, body)

    def _key(self, name: str) -> str:
        return f"{self._prefix}/{name}" if self._prefix else name
