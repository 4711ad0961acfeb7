"""A heartbeat of a node draws one transaction id, however many processes it renews."""

import os

import psycopg
import pytest

from partbox.settings import load
from partbox.supervisor.membership import Membership, RegisteredProcess
from partbox.worker.slot import Slot

ROUNDS = 5


@pytest.mark.parametrize("processes", [1, 6])
def test_a_round_of_an_idle_node_draws_one_transaction_id(
    dsn: str, conn: psycopg.Connection[tuple[int]], processes: int
) -> None:
    def next_xid() -> int:
        (found,) = conn.execute("select pg_snapshot_xmax(pg_current_snapshot())::text::bigint").fetchone() or (0,)
        return found

    membership = Membership(load(dsn=dsn), "default", lambda: dsn)
    membership.open()
    try:
        members = [RegisteredProcess(Slot.create_local(), os.getpid() + number) for number in range(processes)]
        membership.tick(members)
        membership.tick(members)
        drawn = []
        for _ in range(ROUNDS):
            before = next_xid()
            membership.tick(members)
            drawn.append(next_xid() - before)
    finally:
        membership.close()
    # Another session, such as autovacuum, may draw one in some of the rounds.
    assert min(drawn) == 1, drawn
