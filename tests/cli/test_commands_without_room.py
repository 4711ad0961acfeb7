"""Commands beside a server whose disk is full: one line, nothing half done, and a second call does it."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest
from next_migration import NEWEST, known
from planted_records import divide
from psycopg.conninfo import make_conninfo
from servers import OwnServer, execute
from small_disk import small_disk

from partbox import Outbox
from partbox.db.schema import migrate as migrations
from partbox_lab.chaos.disk import SmallDisk

pytestmark = pytest.mark.every_version("errors of the server")

FULL = "a disk of the PostgreSQL server is full"
PLANT = """
insert into partbox.record (partition, event_id, event_type, payload, created_at)
select g % 256, gen_random_uuid(), 'Placed', '{}', now() - interval '8 days' from generate_series(1, 1000) g
"""
EVERYTHING = """
select c.oid::regclass::text, c.relfilenode::text from pg_class c where c.relnamespace = 'partbox'::regnamespace
union all select p.oid::regprocedure::text, md5(p.prosrc) from pg_proc p where p.pronamespace = 'partbox'::regnamespace
union all select m.key, m.value from partbox.meta m where m.key <> 'segments_failed'
union all select id::text, event_id::text from partbox.record
order by 1
"""

Conn = psycopg.Connection[Any]


@pytest.fixture
def disk() -> Iterator[SmallDisk]:
    with small_disk(64) as disk:
        yield disk


@pytest.fixture
def own(disk: SmallDisk, own_server: OwnServer, monkeypatch: pytest.MonkeyPatch) -> str:
    """The DSN of an empty database on that disk; the WAL is elsewhere."""
    with psycopg.connect(own_server.dsn, autocommit=True) as conn:
        conn.execute(f"create tablespace small location '{disk.folder}'")
    execute(own_server.server.dsn, "create database small tablespace small")
    dsn = make_conninfo(own_server.dsn, dbname="small")
    monkeypatch.setenv("PARTBOX_DSN", dsn)
    return dsn


@pytest.fixture
def conn(own: str) -> Iterator[Conn]:
    with closing(psycopg.connect(own, autocommit=True)) as conn:
        yield conn


def everything(conn: Conn) -> list[Any]:
    there = conn.execute("select to_regnamespace('partbox') is not null").fetchone() == (True,)
    return conn.execute(EVERYTHING).fetchall() if there else []


def test_a_purge_on_a_full_disk_changes_nothing_and_succeeds_when_there_is_space_again(partbox, disk, own, conn):
    migrations.migrate(own)
    divide(conn)
    conn.execute(PLANT)
    conn.execute("update partbox.partition set last_id = 1000, floor_id = 1000, snapshot = pg_current_snapshot()")
    before = everything(conn)
    # From PostgreSQL 19 on, a query may extend the visibility map, so the purge fails before it comes to segments.
    reads = conn.info.server_version < 190_000
    disk.fill()
    for _ in range(2):
        ran = partbox("purge")
        assert (ran.code, ran.err.count("\n")) == (1, 1)
        assert FULL in ran.err
        if reads:
            assert ran.out == "nothing was purged\n"
            assert f"segments of the log were not changed: {FULL}: make room there" in ran.err
        assert everything(conn) == before
    disk.make_room()
    assert (FULL in partbox("doctor").out) == reads
    assert partbox("purge").out.startswith("purged 10 segments of ")
    assert FULL not in partbox("doctor").out


@pytest.mark.parametrize("since", [0, NEWEST])
def test_a_migration_on_a_full_disk_changes_nothing_and_succeeds_when_there_is_space_again(
    partbox, disk, own, conn, monkeypatch, since
):
    if since:
        migrations.migrate(own)
        conn.execute(PLANT)
        monkeypatch.setattr(migrations, "migrations", known)
    before = everything(conn)
    disk.fill()
    for _ in range(2):
        assert FULL in partbox("migrate" if since else "init").error
        assert everything(conn) == before
    disk.make_room()
    assert partbox("migrate" if since else "init").code == 0
    with conn.transaction():
        Outbox(own).publish(conn, "Placed", 1)
