"""Ctrl-C in the middle of a statement."""

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from partbox.db.connect import connect


def test_ctrl_c_between_two_reads_of_a_result_ends_the_transaction_without_a_warning(
    dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    """psycopg's own code is where Ctrl-C arrives, so it cannot read the answer to the end."""

    def interrupted(conn: Any) -> Iterator[Any]:
        conn.pgconn.send_query(b"select pg_sleep(60)")
        raise KeyboardInterrupt
        yield

    def transaction() -> None:
        with connect(dsn, lease=60) as conn, conn.transaction():
            conn.execute("select 1")
            conn.wait(interrupted(conn))

    with caplog.at_level(logging.DEBUG, "psycopg"), pytest.raises(KeyboardInterrupt):
        transaction()
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []
