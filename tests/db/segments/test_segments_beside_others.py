"""Who may use the log for an hour, one by one: what goes on, what is left for later, and that nobody waits."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import psycopg
import pytest
from purgeable import Planted, divide

from partbox.segments import SegmentReport, maintain_segments
from partbox.settings import load

DONE = 10_000  # an id beyond every segment


class Use(NamedTuple):
    """What somebody does and does not end, and what goes on beside it."""

    statements: tuple[str, ...]
    made: bool = True
    emptied: bool = True
    dropped: bool = True


USES = {
    "a writer that has not published": Use(("select pg_current_xact_id()",)),
    "a publisher": Use(("select partbox.publish('T', '{}')",), dropped=False),
    "a publisher into the default segment": Use(
        ("select setval('partbox.record_id_seq', 1500000)", "select partbox.publish('T', '{}')"),
        made=False,
        dropped=False,
    ),
    "a reader of the log": Use(("select from partbox.record",), made=False, emptied=False, dropped=False),
    "pg_dump": Use(
        (
            "set transaction isolation level repeatable read, read only",
            "lock table partbox.record, partbox.partition, partbox.parked, partbox.meta in access share mode",
        ),
        made=False,
        emptied=False,
        dropped=False,
    ),
    "an autovacuum of the segment": Use(
        ("lock table only partbox.record_1 in share update exclusive mode",), emptied=False
    ),
    "an autovacuum of the default segment": Use(
        ("lock table only partbox.record_default in share update exclusive mode",), made=False, dropped=False
    ),
}


def prepare(conn: psycopg.Connection[Any]) -> None:
    """Have something to make, to empty and to drop, and a segment for what is published."""
    conn.execute("create table partbox.record_1000 partition of partbox.record for values from (1000) to (2000)")
    planted = Planted(conn)
    planted.record(10)
    planted.consume(DONE)


@pytest.fixture
def due(small: psycopg.Connection[Any]) -> None:
    prepare(small)


@contextmanager
def using(dsn: str, statements: tuple[str, ...]) -> Iterator[None]:
    with psycopg.connect(dsn) as user:
        for each in statements:
            user.execute(each)
        yield
        user.rollback()


def goes_on(dsn: str) -> None:
    """A publisher and a poll wait for nobody."""
    with psycopg.connect(dsn, autocommit=True, options="-c lock_timeout=1") as other:
        other.execute("select partbox.publish('T', '{}')")
        other.execute("select count(*) from partbox.record")


def done(found: SegmentReport) -> tuple[bool, bool, bool]:
    return bool(found.made), bool(found.emptied), bool(found.dropped)


@pytest.mark.parametrize("name", USES)
def test_maintenance_beside_a_long_user_of_the_log_does_what_it_can_and_the_rest_afterwards(due, look, dsn, name):
    use = USES[name]
    with using(dsn, use.statements):
        assert done(look()) == (use.made, use.emptied, use.dropped)
        goes_on(dsn)
    assert done(look()) == (not use.made, not use.emptied, True)


def test_maintenance_beside_a_prepared_transaction_postpones_only_the_drop(due, look, dsn):
    """It has no process, and no end until somebody says so."""
    with psycopg.connect(dsn, autocommit=True) as publisher:
        publisher.execute("begin")
        publisher.execute("select partbox.publish('T', '{}')")
        publisher.execute("prepare transaction 'kept'")
        try:
            assert done(look()) == (True, True, False)
            goes_on(dsn)
        finally:
            publisher.execute("rollback prepared 'kept'")
    assert done(look()) == (False, False, True)


def test_maintenance_beside_an_sql_cursor_held_after_its_transaction_does_everything(due, look, dsn):
    with psycopg.connect(dsn, autocommit=True) as reader:
        reader.execute("declare kept cursor with hold for select id from partbox.record order by id")
        assert done(look()) == (True, True, True)
        goes_on(dsn)
        assert reader.execute("fetch all from kept").fetchone() == (10,)


def test_maintenance_beside_an_unread_logical_replication_slot_does_everything(own_server):
    with psycopg.connect(own_server.dsn, autocommit=True) as conn:
        conn.execute("alter system set wal_level = logical")
    own_server.server.stop()
    own_server.server.start()
    with psycopg.connect(own_server.dsn, autocommit=True) as conn:
        conn.execute("select pg_create_logical_replication_slot('left', 'pgoutput')")
        divide(conn)
        prepare(conn)
        assert done(maintain_segments(lambda: own_server.dsn, load())) == (True, True, True)
        goes_on(own_server.dsn)
