"""A server with the smallest queue of notifications, and a session that lets it fill up."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psycopg
import pytest
from psycopg.errors import ProgramLimitExceeded
from servers import TEMPLATE, binaries, new_database, new_server
from waiting import eventually

from partbox.embedded.server import Server

SIZES = {"max_notify_queue_pages": "64"}
USAGE = "select pg_notification_queue_usage() < 0.2"


@pytest.fixture(scope="session")
def crowded_server() -> Iterator[Server]:
    """One whose queue is full after half a megabyte; before PostgreSQL 17 that takes eight gigabytes."""
    if b"max_notify_queue_pages" not in (binaries() / "postgres").read_bytes():
        pytest.skip("the size of the notification queue is fixed before PostgreSQL 17")
    with new_server(SIZES) as server:
        yield server


@pytest.fixture
def crowded_dsn(crowded_server: Server) -> Iterator[str]:
    """A database with the schema there, in whose server the queue is empty."""
    with new_database(crowded_server.dsn, TEMPLATE) as dsn:
        yield dsn


@contextmanager
def crowd(dsn: str, name: str = "forgotten") -> Iterator[int]:
    """Within the block the queue is full; the pid of the session that listens in an open transaction."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        with psycopg.connect(dsn, autocommit=True, application_name=name) as stuck:
            stuck.execute("listen other")  # from PostgreSQL 19 on, a listener to another channel keeps nothing
            stuck.execute("begin")
            fill(conn)
            yield stuck.info.backend_pid
        eventually(lambda: conn.execute(USAGE).fetchone() == (True,))  # who listens elsewhere is behind by a few pages


def fill(conn: psycopg.Connection[tuple[float]]) -> None:
    with suppress(ProgramLimitExceeded):
        for number in range(1_000_000):  # short ones, too, for what is left of the last page
            conn.execute("select pg_notify('other', %s)", [f"{number}{'x' * (7_000 if number % 2 else 1)}"])
