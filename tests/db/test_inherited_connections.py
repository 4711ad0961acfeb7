"""A worker's connection in a process that was forked: whatever that does with it, the parent's session stays."""

import os
import warnings
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from partbox.db.connect import connect


def in_a_child(call: Callable[[], Any]) -> int:
    """The exit code of a forked process that calls this: 0 if it returns, 1 after an error of the database, else 2."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of newer Pythons: this process has threads
        child = os.fork()
    if child == 0:
        code = 2
        try:
            call()
            code = 0
        except psycopg.Error:
            code = 1
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize(
    "close", [lambda conn: conn.close(), lambda conn: conn.pgconn.finish()], ids=["psycopg", "libpq"]
)
def test_a_child_that_closes_a_connection_does_not_end_the_session_of_its_parent(dsn: str, close: Any) -> None:
    with connect(dsn, lease=10) as conn:
        before = conn.execute("select pg_backend_pid()").fetchone()
        assert in_a_child(lambda: close(conn)) == 0
        assert conn.execute("select pg_backend_pid()").fetchone() == before


def test_a_child_process_cannot_use_the_session_of_its_parent(dsn: str) -> None:
    with connect(dsn, lease=10) as conn, psycopg.connect(dsn, autocommit=True) as other:
        other.execute("create table public.said (by text)")
        assert in_a_child(lambda: conn.execute("insert into public.said values ('child')")) == 1
        conn.execute("insert into public.said values ('parent')")
        assert other.execute("select by from public.said").fetchall() == [("parent",)]
