"""A partition without a row is an error, statement by statement, and not a partition without work."""

from collections.abc import Callable
from uuid import UUID

import pytest
from ownership import DEFAULT, SCHEMA, Conn, join
from psycopg.errors import ObjectNotInPrerequisiteState

from partbox.db.delivery import cursors, proof
from partbox.db.delivery.outstanding import read_outstanding
from partbox.db.operator import subscriptions
from partbox.observe import Observers
from partbox.protocol.rows import CursorSave
from partbox.supervisor.planner import Planner

WITHOUT_A_CURSOR: dict[str, Callable[[Conn, UUID], object]] = {
    "a session": lambda conn, _: proof.check_intact(conn, SCHEMA),
    "a claim": lambda conn, me: cursors.claim_partitions(conn, SCHEMA, DEFAULT, me),
    "a save": lambda conn, me: cursors.save(conn, SCHEMA, DEFAULT, me, [CursorSave(3, 1, None, None, 0, False)]),
    "a plan": lambda conn, me: Planner(SCHEMA, DEFAULT, Observers([])).plan(conn),
    "whether all is delivered": lambda conn, _: read_outstanding(conn, SCHEMA, DEFAULT),
}


@pytest.mark.parametrize("gone", ["partition = 3", "true"])
@pytest.mark.parametrize("name", WITHOUT_A_CURSOR)
def test_a_partition_whose_row_is_missing_is_an_error_and_does_not_count_as_idle(
    conn: Conn, name: str, gone: str
) -> None:
    (me,) = join(conn)
    subscriptions.create(conn, SCHEMA, "audit", False, None, None)
    conn.execute(f"delete from partbox.partition where subscription = 'default' and {gone}")
    left = 0 if gone == "true" else 255
    with pytest.raises(ObjectNotInPrerequisiteState, match=rf"are gone, of subscription default \({left} of 256\)"):
        WITHOUT_A_CURSOR[name](conn, me)
