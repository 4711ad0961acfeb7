"""The connections of a node's membership: one that the server has ended is noticed without a question to it."""

from waiting import eventually

from partbox.settings import Settings
from partbox.supervisor.membership_pool import MembershipPool

GONE = "select not exists (select from pg_stat_activity where pid = %s)"


def test_a_connection_that_the_server_has_ended_is_not_handed_out(dsn, conn):
    pool = MembershipPool(Settings(), "default", lambda: dsn, "")
    pool.open()
    try:
        with pool.connection() as first:
            pid = first.info.backend_pid
        with pool.connection() as again:
            assert again.info.backend_pid == pid
        conn.execute("select pg_terminate_backend(%s)", [pid])
        eventually(lambda: conn.execute(GONE, [pid]).fetchone()[0])
        with pool.connection() as other:
            assert other.execute("select pg_backend_pid()").fetchone()[0] != pid
    finally:
        pool.close()
