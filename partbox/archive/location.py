"""Places of an archive: a directory, S3, or a URL for which fsspec has a library, such as `gs://bucket/prefix`."""

import os
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, BinaryIO, Final, cast
from urllib.parse import unquote, urlsplit
from uuid import uuid4

from partbox.archive.errors import PROBE_CONTENT, PROBE_NAME, explain_location_errors, import_library
from partbox.errors import PartboxError, SettingsError
from partbox.text.dsn import query_of
from partbox.text.secrets import mask_url

ATOMIC_PROTOCOLS: Final = {"gs", "gcs", "az", "abfs", "abfss", "adl", "oss", "oci", "memory"}
"""Protocols of stores in which a file appears only when it is complete. Elsewhere a complete file is renamed."""
# The library that fsspec needs, by protocol.
LIBRARIES: Final = {"gs": "gcsfs", "gcs": "gcsfs", "az": "adlfs", "abfs": "adlfs", "sftp": "paramiko"}


@contextmanager
def open_temporary_file() -> Iterator[BinaryIO]:
    """Open a local temporary file for a later upload, which is deleted at the end of the context."""
    with (
        explain_location_errors("the temporary folder"),
        NamedTemporaryFile("w+b", prefix="partbox-", suffix=".part") as file,
    ):
        yield cast(BinaryIO, file)


class RemoteFolder:
    """An archive in a folder of a remote file system other than S3, accessed by fsspec.

    Files are written locally first. For the methods see `LocalDirectory`."""

    def __init__(self, url: str) -> None:
        self.display_name = mask_url(url)
        query_of(url, ())
        self._scheme = url.partition("://")[0].lower()
        opened = import_library("fsspec").core.url_to_fs
        try:
            with explain_location_errors(self.display_name):
                self._fs, root = opened(url)
        except PartboxError as error:
            raise SettingsError(self._explain(error)) from None
        self._root = root.rstrip("/")

    def _explain(self, error: PartboxError) -> str:
        if isinstance(error.__cause__, ImportError):
            missing = LIBRARIES.get(self._scheme, "what fsspec needs for it")
            return f"archive {self.display_name!r}: the library for {self._scheme}:// is missing: pip install {missing}"
        if isinstance(error.__cause__, ValueError):
            return (
                f"archive {self.display_name!r}: {self._scheme}:// is unknown: name a directory, or s3://BUCKET/PREFIX"
            )
        return str(error)

    open_new_file = staticmethod(open_temporary_file)

    def keep_file(self, file: BinaryIO, name: str) -> None:
        path = f"{self._root}/{name}"
        with explain_location_errors(self.display_name):
            file.flush()
            if self._scheme in ATOMIC_PROTOCOLS:
                self._fs.put_file(file.name, path)
            else:
                self._fs.makedirs(self._root, exist_ok=True)
                temporary_path = f"{self._root}/.record-{uuid4().hex}.part"
                self._fs.put_file(file.name, temporary_path)
                self._fs.mv(temporary_path, path)

    def check_writable(self) -> None:
        with self.open_new_file() as file:
            file.write(PROBE_CONTENT)
            self.keep_file(file, PROBE_NAME)
        # The place may allow files only to be added.
        with suppress(Exception):
            self._fs.rm_file(f"{self._root}/{PROBE_NAME}")

    def list_names(self) -> list[str]:
        with explain_location_errors(self.display_name):
            self._fs.invalidate_cache()
            found = self._fs.ls(self._root, detail=True)
            return [each["name"].rpartition("/")[2] for each in found if each["type"] == "file"]

    @contextmanager
    def open_file(self, name: str) -> Iterator[BinaryIO]:
        with (
            explain_location_errors(f"{self.display_name}/{name}"),
            self._fs.open(f"{self._root}/{name}", "rb") as file,
        ):
            yield file


class S3Folder:
    """An archive in an S3 bucket below a prefix, accessed by boto3 with the credentials that boto3 finds.

    For the methods see `LocalDirectory`. `?endpoint=URL` names another server with the protocol of S3. Writing needs
    PutObject. Reading back needs ListBucket and GetObject. A file appears only when its upload is complete."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.display_name = mask_url(url)
        self._bucket = parts.netloc
        self._prefix = parts.path.strip("/")
        if not self._bucket or "@" in self._bucket:
            raise SettingsError(f"archive {self.display_name!r} names no bucket: write s3://BUCKET/PREFIX")
        endpoint = query_of(url, ("endpoint",)).get("endpoint")
        with explain_location_errors(self.display_name):
            self._client: Any = import_library("boto3", "s3").client("s3", endpoint_url=endpoint)

    open_new_file = staticmethod(open_temporary_file)

    def keep_file(self, file: BinaryIO, name: str) -> None:
        with explain_location_errors(self.display_name):
            file.flush()
            self._client.upload_file(file.name, self._bucket, self._key_of(name))

    def check_writable(self) -> None:
        with explain_location_errors(self.display_name):
            self._client.put_object(Bucket=self._bucket, Key=self._key_of(PROBE_NAME), Body=PROBE_CONTENT)
        # The credentials need no DeleteObject.
        with suppress(Exception):
            self._client.delete_object(Bucket=self._bucket, Key=self._key_of(PROBE_NAME))

    def list_names(self) -> list[str]:
        with explain_location_errors(self.display_name):
            found = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=self._key_of(""), Delimiter="/"
            )
            return [each["Key"].rpartition("/")[2] for page in found for each in page.get("Contents", ())]

    @contextmanager
    def open_file(self, name: str) -> Iterator[BinaryIO]:
        with explain_location_errors(f"{self.display_name}/{name}"):
            answer = self._client.get_object(Bucket=self._bucket, Key=self._key_of(name))
            with closing(answer["Body"]) as body:
                yield cast(BinaryIO, body)

    def _key_of(self, name: str) -> str:
        return f"{self._prefix}/{name}" if self._prefix else name


UNFINISHED_NAME: Final = (".record-", ".part")
"""The beginning and the end of the name of a file that is being written."""
ABANDONED_AFTER: Final = 86_400.0
"""Seconds after which an unfinished file counts as left by a killed process."""


class LocalDirectory:
    """An archive in a local directory that only its owner can read.

    All methods raise `PartboxError`, with the place and a remedy."""

    def __init__(self, path: Path) -> None:
        self.display_name = str(path)
        self._path = path

    @contextmanager
    def open_new_file(self) -> Iterator[BinaryIO]:
        """Open a temporary file in the archive's directory. The file is deleted after the context unless `keep_file`
        keeps it."""
        # The directory is created if it is missing, but not its parents: a mount may be missing.
        begin, end = UNFINISHED_NAME
        with explain_location_errors(self.display_name):
            self._path.mkdir(exist_ok=True)
            # Killed processes leave files behind too.
            for each in self._path.glob(f"{begin}*{end}"):
                with suppress(FileNotFoundError):
                    if time.time() - each.stat().st_mtime > ABANDONED_AFTER:
                        each.unlink()
            with NamedTemporaryFile("w+b", prefix=begin, suffix=end, dir=self._path, delete=False) as file:
                try:
                    yield cast(BinaryIO, file)
                finally:
                    with suppress(FileNotFoundError):
                        os.unlink(file.name)

    def keep_file(self, file: BinaryIO, name: str) -> None:
        """Add a written file to the archive under this name. It then survives any crash."""
        with explain_location_errors(self.display_name):
            file.flush()
            os.fsync(file.fileno())
            os.rename(file.name, self._path / name)
            self._sync_directory()

    def check_writable(self) -> None:
        """Check that the archive's directory is writable, by writing a file. Raise an error if it is not."""
        # The file is deleted again, as far as that is allowed.
        is_new = not self._path.exists()
        with self.open_new_file() as file, explain_location_errors(self.display_name):
            file.write(PROBE_CONTENT)
            file.flush()
        if is_new:
            # Another process may have written to the new directory meanwhile.
            with suppress(OSError):
                self._path.rmdir()

    def list_names(self) -> list[str]:
        """Return the names of all files in the directory of the archive."""
        with explain_location_errors(self.display_name):
            return [each.name for each in self._path.iterdir() if each.is_file()]

    @contextmanager
    def open_file(self, name: str) -> Iterator[BinaryIO]:
        """Open a file of the archive in this directory for reading."""
        with explain_location_errors(str(self._path / name)), open(self._path / name, "rb") as file:
            yield file

    def _sync_directory(self) -> None:
        handle = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


Location = LocalDirectory | RemoteFolder | S3Folder
"""A place that holds files by name. All three classes have the methods of `LocalDirectory`."""


def location_of(text: str) -> Location:
    """Return the archive location for a path or URL. Raise `SettingsError` if the URL is not supported."""
    # A location is a directory (a path or `file://…`), a bucket or a remote folder. A missing library raises
    # `SettingsError` as well.
    scheme, mark, _ = text.partition("://")
    if not mark:
        return LocalDirectory(Path(text))
    if scheme.lower() != "file":
        return S3Folder(text) if scheme.lower() == "s3" else RemoteFolder(text)
    parts = urlsplit(text)
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise SettingsError(f"archive {text!r} is no path of this machine: write file:///srv/archive, or just the path")
    query_of(text, ())
    return LocalDirectory(Path(unquote(parts.path)))
