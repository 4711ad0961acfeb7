"""The connections of a node's membership: one that the server has ended is noticed without a question to it."""

import psycopg
import pytest
from waiting import eventually

from partbox.db.delivery import instances
from partbox.settings import Settings
from partbox.supervisor.membership_pool import MembershipPool

GONE = "select not exists (select from pg_stat_activity where pid = any (%s))"


@pytest.fixture
def pool(dsn):
    pool = MembershipPool(Settings(), "default", lambda: dsn, "")
    pool.open()
    yield pool
    pool.close()


def test_connections_that_the_server_has_ended_are_not_handed_out(pool, conn):
    with pool.connection() as one, pool.connection() as two:
        ended = [one.info.backend_pid, two.info.backend_pid]
    conn.execute("select pg_terminate_backend(pid) from unnest(%s::integer[]) as pid", [ended])
    eventually(lambda: conn.execute(GONE, [ended]).fetchone()[0])
    with pool.connection() as other:
        assert other.execute("select pg_backend_pid()").fetchone()[0] not in ended


def test_a_server_that_took_long_may_take_long_again_before_its_connection_is_cut(pool):
    for took in (0.0, 1.0, 3.0):  # the last is longer than a fast server may take
        with pool.connection() as own:
            own.execute("select pg_sleep(%s)", [took])
    with pool.connection() as own:
        own.execute("select 1")
    assert pool._statement_limit == pytest.approx(2.0, abs=0.1)


@pytest.mark.every_version("functions remember the types that tables had")
def test_a_session_that_remembers_a_table_in_the_place_of_ours_is_closed(pool, conn):
    def bury():
        with pool.connection() as own:
            return instances.bury_instances(own, "partbox", [], known_dead=False)

    with pool.connection():  # the pool may have two by now: while this one is out, each call has the other
        with conn.transaction():
            conn.execute("alter table partbox.partition rename to ours")
            conn.execute("create table partbox.partition (like partbox.ours)")
        bury()
        with conn.transaction():
            conn.execute("drop table partbox.partition")
            conn.execute("alter table partbox.ours rename to partition")
        with pytest.raises(psycopg.errors.InvalidParameterValue):
            bury()
        assert bury() == ([], 0)
