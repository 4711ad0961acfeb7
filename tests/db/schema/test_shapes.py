"""Schemas that are less than a whole outbox: without a subscription, or nothing but an inbox."""

from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import psycopg
import pytest

from partbox import Outbox, inbox
from partbox.db.operator import purge as steps
from partbox.db.schema import migrate as migrations
from partbox.db.schema.migrate import check_schema_version, is_inbox_only, migrate, migrate_inbox
from partbox.errors import PartboxError, SchemaError

NAMES = [each.name for each in migrations.migrations()]
EVENT = UUID(int=7)
TABLES = """
select table_name, column_name, data_type, column_default, is_nullable from information_schema.columns
 where table_schema = 'partbox' order by 1, ordinal_position
"""
INDEXES = "select indexdef from pg_indexes where schemaname = 'partbox' order by 1"
HOSTILE = "o'x\"; drop schema partbox; -- %s {x} \\"


@pytest.fixture
def conn(empty_dsn):
    with psycopg.connect(empty_dsn, autocommit=True) as conn:
        yield conn


def subscriptions(conn) -> int:
    return conn.execute("select count(*) from partbox.subscription").fetchone()[0]


def shape(conn) -> tuple[list, list]:
    return conn.execute(TABLES).fetchall(), conn.execute(INDEXES).fetchall()


def test_a_writer_only_schema_has_no_subscription_and_publishing_works(empty_dsn, conn):
    assert migrate(empty_dsn, writer_only=True) == NAMES
    check_schema_version(conn)
    assert subscriptions(conn) == 0
    assert conn.execute("select count(*) from partbox.partition").fetchone() == (0,)
    with conn.transaction():
        Outbox(empty_dsn).publish(conn, "Placed", 1)
    conn.execute("select partbox.publish('Placed', '1')")
    assert conn.execute("select count(*) from partbox.record").fetchone() == (2,)
    assert migrate(empty_dsn, writer_only=True) == migrate(empty_dsn) == []
    assert subscriptions(conn) == 0


def test_a_schema_with_subscriptions_does_not_become_writer_only(empty_dsn, conn):
    migrate(empty_dsn)
    before = shape(conn)
    with pytest.raises(SchemaError, match=r"has subscriptions \(default\).*subscription drop.*nothing was changed"):
        migrate(empty_dsn, writer_only=True)
    assert (shape(conn), subscriptions(conn)) == (before, 1)


def test_concurrent_migrations_that_disagree_on_the_shape_make_one_schema(empty_dsn, conn):
    def one(number: int) -> object:
        try:
            return migrate(empty_dsn, writer_only=number % 2 == 0)
        except SchemaError as error:
            return str(error)

    with ThreadPoolExecutor(10) as pool:
        answers = [*pool.map(one, range(10))]
    assert answers.count(NAMES) == 1
    refused = sum("has subscriptions" in str(answer) for answer in answers)
    assert (subscriptions(conn), refused) in ((1, 5), (0, 0))


def served(dsn: str) -> Outbox:
    """An outbox with a handler."""
    outbox = Outbox(dsn)
    outbox.register(print, "Placed")
    return outbox


def test_workers_refuse_a_writer_only_outbox_and_name_the_remedy(empty_dsn):
    migrate(empty_dsn, writer_only=True)
    supervisor = served(empty_dsn).supervisor(processes=1)
    with pytest.raises(SchemaError, match=r"no subscription 'default'.*`partbox subscription create default`"):
        supervisor.start()


def test_an_inbox_alone_serves_consumers_and_is_purged(empty_dsn, conn):
    assert migrate_inbox(empty_dsn) is True
    assert migrate_inbox(empty_dsn) is True
    assert is_inbox_only(conn, "partbox")
    tables = conn.execute("select tablename from pg_tables where schemaname = 'partbox' order by 1").fetchall()
    assert tables == [("inbox",), ("meta",)]
    with conn.transaction():
        assert inbox.first_time(conn, EVENT, "billing")
        assert not inbox.first_time(conn, EVENT, "billing")
    conn.execute("update partbox.inbox set created_at = now() - interval '31 days'")
    outbox = Outbox(empty_dsn)
    assert outbox.purge(dry_run=True).inbox == 1
    purged = outbox.purge()
    assert (purged.inbox, purged.total, purged.complete) == (1, 1, True)
    assert conn.execute("select from partbox.inbox").rowcount == 0


def test_an_inbox_alone_is_no_outbox_to_workers_and_publishers(empty_dsn, conn):
    migrate_inbox(empty_dsn)
    with pytest.raises(SchemaError, match=r"nothing but an inbox: run `partbox init` to make it a whole outbox"):
        check_schema_version(conn)
    with pytest.raises(SchemaError, match="run `partbox init`"):
        served(empty_dsn).supervisor(processes=1).start()
    with conn.transaction(force_rollback=True), pytest.raises(SchemaError, match="run `partbox init`"):
        Outbox(empty_dsn).publish(conn, "Placed", 1)


@pytest.mark.parametrize("writer_only", [True, False])
def test_an_inbox_alone_becomes_a_whole_outbox_and_keeps_its_rows_and_grants(empty_dsn, conn, writer_only):
    migrate(empty_dsn, writer_only=writer_only)
    whole = shape(conn)
    conn.execute("drop schema partbox cascade")
    migrate_inbox(empty_dsn)
    with conn.transaction():
        inbox.first_time(conn, EVENT, "billing")
    conn.execute("grant select on partbox.inbox to pg_monitor")
    assert migrate(empty_dsn, writer_only=writer_only) == NAMES
    check_schema_version(conn)
    assert shape(conn) == whole
    assert not is_inbox_only(conn, "partbox")
    assert conn.execute("select has_table_privilege('pg_monitor', 'partbox.inbox', 'select')").fetchone() == (True,)
    assert conn.execute("select xmin = xid::xid from partbox.meta where key = 'marker'").fetchone() == (True,)
    with conn.transaction():
        assert not inbox.first_time(conn, EVENT, "billing")
        Outbox(empty_dsn).publish(conn, "Placed", 1)
    assert migrate(empty_dsn) == []


def test_a_whole_outbox_stays_whole_when_an_inbox_is_asked_for(empty_dsn, conn):
    migrate(empty_dsn)
    before = shape(conn)
    assert migrate_inbox(empty_dsn) is False
    assert shape(conn) == before
    check_schema_version(conn)


def test_any_name_can_hold_an_inbox(empty_dsn, conn):
    for name in (HOSTILE, "Ünï cödé"):
        assert migrate_inbox(empty_dsn, name)
        with conn.transaction():
            assert inbox.first_time(conn, EVENT, "billing", schema=name)
        assert steps.run_step(conn, "inbox", name, steps.START_POSITION, retain=0, batch=9, dry_run=False) == (1, None)
        assert migrate(empty_dsn, name) == NAMES


def test_concurrent_migrations_of_an_inbox_make_one_inbox(empty_dsn, conn):
    with ThreadPoolExecutor(10) as pool:
        assert [*pool.map(migrate_inbox, [empty_dsn] * 10)] == [True] * 10


def test_a_schema_of_somebody_else_gets_no_inbox(empty_dsn, conn):
    conn.execute("create schema partbox")
    conn.execute("create table partbox.inbox (id int)")
    with pytest.raises(PartboxError, match=r"holds an object that partbox did not make .*: choose another name"):
        migrate_inbox(empty_dsn)
    conn.execute("create table partbox.meta (id int)")
    with pytest.raises(PartboxError, match="choose another schema name"):
        migrate_inbox(empty_dsn)
    assert conn.execute("select count(*) from pg_tables where schemaname = 'partbox'").fetchone() == (2,)
