"""Partitions that an instance owns, and what its saves have stored."""

from datetime import datetime
from typing import Any
from uuid import UUID

import pytest
from ownership import Conn, join, seize
from psycopg.rows import dict_row

from partbox.protocol.rows import OwnedPartition, ParkedSave


@pytest.fixture
def me(conn) -> UUID:
    return join(conn)[0]


@pytest.fixture
def mine(conn, me) -> dict[int, OwnedPartition]:
    return seize(conn, me, range(10))


def parking(
    partition: int, id: int, state: str = "held", *, blocks: bool = True, attempts: int = 0, **more: Any
) -> ParkedSave:
    return ParkedSave(partition, id, "Order", "42", "OrderPlaced", state, blocks=blocks, attempts=attempts, **more)


def stored(conn: Conn, *partitions: int) -> list[tuple]:
    """(snapshot, last_id, floor_id, owner) of each partition, in their order."""
    return conn.execute(
        "select snapshot::text, last_id, floor_id, owner from partbox.partition"
        " where subscription = 'default' and partition = any (%s) order by partition",
        [list(partitions)],
    ).fetchall()


def rows(conn: Conn, where: str = "") -> dict[int, dict[str, Any]]:
    """The parked rows by record id."""
    with conn.cursor(row_factory=dict_row) as cursor:
        return {row["record_id"]: row for row in cursor.execute(f"select * from partbox.parked {where}")}


def everything(conn: Conn) -> tuple[list, dict]:
    partitions = conn.execute("select p, p.xmin::text from partbox.partition p order by p.partition").fetchall()
    return partitions, rows(conn)


def clock(conn: Conn) -> datetime:
    return conn.execute("select clock_timestamp()").fetchone()[0]


def setting(conn: Conn, name: str) -> str:
    return conn.execute("select current_setting(%s)", [name]).fetchone()[0]
