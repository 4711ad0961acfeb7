"""Snapshots that list thousands of open transactions: how they are read and stored."""

import re
from pathlib import Path

import pytest

from partbox.db.sql import sql_folder

FILES = sorted(path for folder in ("queries", "functions") for path in (sql_folder() / folder).glob("*.sql"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_no_statement_makes_a_snapshot_for_each_of_many_transactions(path: Path) -> None:
    """PostgreSQL calls a stable function again for each row, unless the function stands in a subquery."""
    each = r"pg_visible_in_snapshot\((?:[^()]|\([^()]*\))*,\s*pg_current_snapshot\(\)"
    assert not re.search(each, path.read_text("utf-8"))


def test_saved_snapshots_are_stored_without_compression(conn) -> None:
    """Compressing the numbers of 5,000 transactions takes 15 times as long as writing them, at every save."""
    found = conn.execute(
        "select attrelid::regclass::text, attstorage::text from pg_attribute"
        " where atttypid = 'pg_snapshot'::regtype and attrelid::regclass::text like 'partbox.%' and attnum > 0"
    ).fetchall()
    assert sorted(found) == [("partbox.partition", "e"), ("partbox.progress_note", "e")]
