"""Heartbeats beside claims and buries of the same instances."""

from ownership import SCHEMA, assign, background, blocked, bury, claim, join, worker

from partbox.db import instances


def test_two_heartbeats_at_once_do_not_deadlock_with_a_bury_and_a_claim(dsn, conn):
    """The claim's key share keeps the row's old version locked, and a heartbeat must not come back to that one."""
    (me,) = join(conn)
    assign(conn, me)
    with (
        worker(dsn) as first, worker(dsn) as second, worker(dsn) as claiming, worker(dsn) as burying,
        background() as run,
    ):
        with claiming.transaction():
            with first.transaction():
                instances.heartbeat(first, SCHEMA, {me: False})
                claim(claiming, me)
                renewed = run(instances.heartbeat, second, SCHEMA, {me: False})
                blocked(conn, second)
                buried = run(bury, burying, [me])
                blocked(conn, burying)
            blocked(conn, burying)
        assert renewed.result() == {me}
        assert buried.result() == ([], 0)
