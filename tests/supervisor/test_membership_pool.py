"""The connections of a node's membership: one that the server has ended is noticed without a question to it."""

from waiting import eventually

from partbox.settings import Settings
from partbox.supervisor.membership_pool import MembershipPool

GONE = "select not exists (select from pg_stat_activity where pid = any (%s))"


def test_connections_that_the_server_has_ended_are_not_handed_out(dsn, conn):
    pool = MembershipPool(Settings(), "default", lambda: dsn, "")
    pool.open()
    try:
        with pool.connection() as one, pool.connection() as two:
            ended = [one.info.backend_pid, two.info.backend_pid]
        conn.execute("select pg_terminate_backend(pid) from unnest(%s::integer[]) as pid", [ended])
        eventually(lambda: conn.execute(GONE, [ended]).fetchone()[0])
        with pool.connection() as other:
            assert other.execute("select pg_backend_pid()").fetchone()[0] not in ended
    finally:
        pool.close()
