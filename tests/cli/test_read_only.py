"""A server that takes no writes for a while is told as that, and not as a wrong DSN."""

from collections.abc import Iterator

import psycopg
import pytest
from psycopg.errors import OperationalError, ReadOnlySqlTransaction

from partbox.cli.shell.output import format_error_line

COMMANDS = [
    "status",
    "purge",
    "purge --dry-run",
    "dead list",
    "segments",
    "actions",
    "subscription list",
    "doctor",
]
SEVERAL = """connection failed: connection to server at "10.0.0.1", port 5432 failed: Connection refused
\tIs the server running on that host and accepting TCP/IP connections?
connection to server at "10.0.0.2", port 5432 failed: session is read-only"""
STARTING = (
    'connection failed: connection to server on socket "/run/s" failed: FATAL:  the database system is starting up'
)


@pytest.fixture
def read_only(conn: psycopg.Connection, dsn: str) -> Iterator[str]:
    """A database whose sessions may not write, for a while."""
    conn.execute(f"alter database {conn.info.dbname} set default_transaction_read_only = on")
    yield dsn
    conn.execute(f"alter database {conn.info.dbname} reset default_transaction_read_only")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_says_that_the_server_takes_no_writes_now(partbox, read_only, command):
    ran = partbox(*command.split(), "--dsn", read_only)
    said = ran.out + ran.err
    assert ran.code != 0
    assert "takes no writes now" in said
    assert "repeat the command when that is over" in " ".join(said.split())
    assert "check --dsn" not in said


def test_an_error_of_a_read_only_transaction_says_that_the_server_takes_no_writes_now():
    said = format_error_line(ReadOnlySqlTransaction("cannot execute UPDATE in a read-only transaction"))
    assert "cannot execute UPDATE in a read-only transaction: the server takes no writes now" in said


def test_with_several_servers_the_error_names_the_one_that_answered():
    said = format_error_line(OperationalError(SEVERAL))
    assert "10.0.0.2" in said
    assert "Connection refused" not in said


def test_an_error_of_a_server_that_is_starting_up_says_that_it_passes():
    said = format_error_line(OperationalError(STARTING))
    assert "the database system is starting up: repeat the command in a moment" in said
    assert "check --dsn" not in said
