"""A fence says which ids are drawn: neither more than are, nor one before the first ."""

import re
from typing import Any

import psycopg
import pytest
from rig import SCHEMA, Rig, write

from partbox.db.delivery import idle_check
from partbox.db.sql import folder, query

pytestmark = pytest.mark.every_version("what a snapshot sees, and what a crash takes back")

Conn = psycopg.Connection[Any]


# The value in the sequence's row can be ahead of ids that are not drawn yet; reading it is no fence.
def test_nothing_selects_from_the_sequence() -> None:
    for path in folder().rglob("*.sql"):
        text = re.sub(r"--.*", "", path.read_text(encoding="utf-8"))
        assert not re.search(r"\blast_value\s+from\b", text), f"{path.name} reads last_value"
        assert not re.search(r"\bfrom\s+(\{schema\}\.record_id_seq|\{sequence\})", text), f"{path.name} selects from it"


def test_a_fence_takes_the_buffer_lock_of_the_sequence() -> None:
    assert b"pg_sequence_last_value(" in query("fence", SCHEMA)


# A sequence that was never called says 1 before id 1 exists.
@pytest.mark.parametrize("first", [1, 500])
def test_a_fence_before_the_first_event_does_not_hide_it(conn: Conn, rig: Rig, first: int) -> None:
    conn.execute("select setval('partbox.record_id_seq', %s, false)", [first])
    assert idle_check.run(rig.conn, SCHEMA, []).fence.drawn < first
    assert rig.read_all() == []
    write(conn)
    assert rig.read_all() == [first]
