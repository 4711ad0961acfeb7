"""Snapshots that list thousands of open transactions: how they are read and stored."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest

from partbox.db.sql import load_query, sql_folder

RECORDS = 2_000
FILES = sorted(path for folder in ("queries", "functions") for path in (sql_folder() / folder).glob("*.sql"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_no_statement_makes_a_snapshot_for_each_of_many_transactions(path: Path) -> None:
    """PostgreSQL calls a stable function again for each row, unless the function stands in a subquery."""
    each = r"pg_visible_in_snapshot\((?:[^()]|\([^()]*\))*,\s*pg_current_snapshot\(\)"
    compared = r"[<>=]\s*pg_snapshot_xm(?:in|ax)\(pg_current_snapshot\(\)"
    assert not re.search(f"{each}|{compared}", path.read_text("utf-8"))


def test_saved_snapshots_are_stored_without_compression(conn) -> None:
    """Compressing the numbers of 5,000 transactions takes 15 times as long as writing them, at every save."""
    found = conn.execute(
        "select attrelid::regclass::text, attstorage::text from pg_attribute"
        " where atttypid = 'pg_snapshot'::regtype and attrelid::regclass::text like 'partbox.%' and attnum > 0"
    ).fetchall()
    assert sorted(found) == [("partbox.partition", "e"), ("partbox.progress_note", "e")]


def pages_read(plan: dict[str, Any]) -> int:
    """The pages that a statement looks at, those of values that are stored out of line among them."""
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


@pytest.mark.parametrize("name", ["outstanding", "left_over", "page_pending", "stats_overview"])
def test_a_long_snapshot_is_read_once_and_not_for_each_record_above_the_floor(
    conn: psycopg.Connection[Any], name: str
) -> None:
    """A snapshot of 5,000 transactions has 20 pages out of line. Reading it for each record of a log took 15 s."""
    conn.execute(
        "insert into partbox.record (partition, event_id, event_type, payload)"
        " select 7, gen_random_uuid(), 'Placed', '{}' from generate_series(1, %s)",
        [RECORDS],
    )
    conn.execute("vacuum analyze partbox.record")
    xmin = conn.execute("select (pg_snapshot_xmax(pg_current_snapshot())::text::bigint)").fetchall()[0][0]

    def read(listed: Sequence[int]) -> int:
        snapshot = f"{xmin}:{xmin + 10_000}:{','.join(map(str, listed))}"
        conn.execute(
            "update partbox.partition set last_id = %s, snapshot = %s where partition = 7", [RECORDS, snapshot]
        )
        values = {"subscription": "default", "limit": 10_000, "after": 0, "named": []}
        values |= {"listed": 1, "working": False}
        with conn.transaction():
            conn.execute(load_query("stats_plan", "partbox"), {"limit": None})
            explain = b"explain (analyze, buffers, format json, costs off, timing off) "
            ((found,),) = conn.execute(explain + load_query(name, "partbox"), values).fetchall()
        return pages_read(found[0]["Plan"])

    read([xmin])
    assert read(range(xmin, xmin + 10_000, 2)) < read([xmin]) + RECORDS
