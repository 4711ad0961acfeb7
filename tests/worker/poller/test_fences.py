"""A fence says which ids are drawn, and asks for them so that it never says more."""

import re

from partbox.db.sql import load_query, sql_folder


# The value in the sequence's row can be ahead of ids that are not drawn yet; reading it is no fence.
def test_nothing_selects_from_the_sequence() -> None:
    for path in sql_folder().rglob("*.sql"):
        text = re.sub(r"--.*", "", path.read_text(encoding="utf-8"))
        assert not re.search(r"\blast_value\s+from\b", text), f"{path.name} reads last_value"
        assert not re.search(r"\bfrom\s+(\{schema\}\.record_id_seq|\{sequence\})", text), f"{path.name} selects from it"


def test_a_fence_takes_the_buffer_lock_of_the_sequence() -> None:
    assert b"pg_sequence_last_value(" in load_query("fence", "partbox")
