"""S3 as the place of an archive: `s3://bucket/prefix` by boto3, with credentials as it finds them.

`?endpoint=URL` names another server that speaks S3's protocol. What it needs: PutObject to write; ListBucket and
GetObject to read back.
"""

from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any, BinaryIO, cast
from urllib.parse import urlsplit

from partbox.archive.errors import PROBE, PROBED, library, place_errors
from partbox.archive.remote import temporary_file
from partbox.errors import SettingsError
from partbox.text.secrets import masked_url
from partbox.text.url_query import query_of


class S3:
    """A bucket, and a prefix in it. A file appears there once it is uploaded whole. See `Place`."""

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
