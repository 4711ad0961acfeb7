"""A10: a standby lists no running transaction in its snapshots, so that a poll there would take them all for ended."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from servers import new_standby

from partbox import Outbox
from partbox.db.connect import check, connect
from partbox.errors import SchemaError


@pytest.fixture
def standby(own_server: Any, folder: Path) -> Iterator[str]:
    """The DSN of a standby of `own_server`, made from a base backup."""
    with new_standby(own_server.server, folder) as pgdata:
        yield make_conninfo(own_server.dsn, host=str(pgdata))


def test_a_worker_refuses_a_standby(standby: str, own_server: Any) -> None:
    with pytest.raises(psycopg.OperationalError, match="session is read-only"):
        connect(standby, lease=6)
    with psycopg.connect(standby, autocommit=True) as conn, pytest.raises(SchemaError, match="standby"):
        check(conn, "partbox")
    with connect(own_server.dsn, lease=6) as conn:
        check(conn, "partbox")


def test_an_operator_on_a_standby_is_sent_to_the_primary(standby: str, own_server: Any) -> None:
    with pytest.raises(SchemaError, match=r"^this server is a standby: partbox rebase runs on the primary"):
        Outbox(standby).rebase()
    with pytest.raises(SchemaError, match="standby: partbox dead runs on the primary only"):
        Outbox(standby).dead.list()
    with pytest.raises(psycopg.OperationalError, match="session is read-only"):
        Outbox(make_conninfo(own_server.dsn, options="-c default_transaction_read_only=on")).rebase()
    with pytest.raises(psycopg.OperationalError, match="failed: No such file"):
        Outbox(make_conninfo(standby, port=1)).rebase()
