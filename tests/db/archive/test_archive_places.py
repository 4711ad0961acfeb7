"""Places of an archive: S3 by a server that speaks its protocol, and whatever fsspec has a library for."""

import sys
from collections.abc import Callable, Iterator
from typing import Any

import boto3
import fsspec
import psycopg
import pytest
from moto.server import ThreadedMotoServer
from purgeable import Planted, many

from partbox.archive.files import open_source
from partbox.archive.location import location_of
from partbox.errors import PartboxError, SettingsError
from partbox.imports import ImportFilter, restore_events
from partbox.operations.purge import Purged
from partbox.settings import load

Conn = psycopg.Connection[Any]
Purge = Callable[..., Purged]


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of a bucket of a server in this process."""
    for name, value in (("ACCESS_KEY_ID", "x"), ("SECRET_ACCESS_KEY", "x"), ("DEFAULT_REGION", "us-east-1")):
        monkeypatch.setenv(f"AWS_{name}", value)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    try:
        boto3.client("s3", endpoint_url=endpoint).create_bucket(Bucket="archive")
        yield f"s3://archive/of/shop?endpoint={endpoint}"
    finally:
        server.stop()


@pytest.fixture
def memory() -> Iterator[str]:
    yield "memory://archive/of/shop"
    fsspec.filesystem("memory").store.clear()


@pytest.mark.parametrize("kind", ["bucket", "memory"])
def test_an_archive_in_remote_storage_is_written_and_read(
    planted: Planted, conn: Conn, purged: Purge, dsn: str, kind: str, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue(kind)
    many(conn, 30)
    conn.execute("select setval('partbox.record_id_seq', 30)")
    planted.consume(30)

    done = purged(archive=url)

    assert (done.archived, done.unarchived, planted.left()) == (30, None, [])
    (name,) = location_of(url).list_names()
    assert name.startswith("record-0000000000000000001-0000000000000000030-")
    assert restore_events(lambda: dsn, load(), open_source(url), ImportFilter()).imported == 30


def test_records_stay_in_the_log_when_the_archive_bucket_does_not_exist(
    planted: Planted, conn: Conn, purged: Purge, bucket: str
) -> None:
    planted.record(1)
    conn.execute("select setval('partbox.record_id_seq', 1)")
    planted.consume(1)
    problem = purged(archive=bucket.replace("//archive", "//gone")).unarchived
    assert problem
    assert "The specified bucket does not exist" in problem
    assert planted.left() == [1]
    with pytest.raises(PartboxError, match="The specified bucket does not exist"):
        open_source(bucket.replace("//archive", "//gone"))


def test_libraries_that_are_missing_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(SettingsError, match=r"needs the library boto3: pip install 'partbox\[s3\]'"):
        location_of("s3://bucket/prefix")
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(SettingsError, match=r"needs the library fsspec: pip install 'partbox\[archive\]'"):
        location_of("memory://x")


def test_a_password_in_a_url_is_not_shown() -> None:
    assert "secret" not in location_of("memory://user:secret@host/x").display_name
