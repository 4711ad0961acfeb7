"""A role without any right on the schema holds every advisory lock that partbox has ever taken: nobody waits for it."""

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from full_notification_queue import crowd
from ownership import DEFAULT, SCHEMA, join
from planted_records import Planter
from psycopg.conninfo import make_conninfo
from roles import cast_of, locks_held

from partbox import Outbox
from partbox.db.connect import connect
from partbox.db.delivery import instances, server_incarnation
from partbox.db.operator import archive, blocked, dead, subscriptions
from partbox.db.operator import purge as steps
from partbox.db.schema.migrate import migrate

Conn = psycopg.Connection[Any]


def plan(conn: Conn, dsn: str) -> None:
    (me,) = join(conn)
    assert instances.assign_partitions(conn, SCHEMA, DEFAULT, [me], [None] * 256, [me] * 256)


def pause(conn: Conn, dsn: str) -> None:
    assert subscriptions.pause(conn, SCHEMA, DEFAULT)


def replay(conn: Conn, dsn: str) -> None:
    record = Planter(conn).park("a")
    assert Outbox(dsn).subscriptions.replay(DEFAULT, from_id=record) > 0


def create(conn: Conn, dsn: str) -> None:
    Outbox(dsn).subscriptions.create("audit")


def purge(conn: Conn, dsn: str) -> None:
    for kind, more in (("keys", {}), ("inbox", {}), ("dead", {}), ("records", {"retain_dead": 0.0})):
        assert (
            steps.run_step(conn, kind, SCHEMA, steps.START_POSITION, retain=0.0, batch=1, dry_run=False, **more)
            is not None
        )


def segment(conn: Conn, dsn: str) -> None:
    row = conn.execute("select partbox.segment_add(50000000, 60000000), partbox.segment_exclude(null, null)").fetchone()
    assert row == (None, None)


def keep_archive(conn: Conn, dsn: str) -> None:
    archive.begin_archive(conn, SCHEMA)
    with archive.hold_archive_lock(conn, SCHEMA) as archive_lock:
        assert archive_lock


def begin_life(conn: Conn, dsn: str) -> None:
    with connect(dsn, lease=6) as own:
        assert server_incarnation.read_incarnation(own, SCHEMA) == server_incarnation.read_incarnation(own, SCHEMA)


def migrate_again(conn: Conn, dsn: str) -> None:
    assert migrate(dsn, SCHEMA) == []


def repair(conn: Conn, dsn: str) -> None:
    assert dead.replay(conn, SCHEMA, DEFAULT, [Planter(conn).park("a")]) == 1
    assert blocked.retry_now(conn, SCHEMA, blocked.Key(DEFAULT, "Order", "a")) is not None


DEEDS = (plan, pause, replay, create, purge, segment, keep_archive, begin_life, migrate_again, repair)


def do(deed: Callable[[Conn, str], None], dsn: str) -> None:
    impatient = make_conninfo(dsn, options="-c lock_timeout=20s")
    with psycopg.connect(impatient, autocommit=True) as conn:
        deed(conn, impatient)


@pytest.mark.parametrize("deed", DEEDS)
def test_advisory_locks_of_a_stranger_hold_up_no_operation(deed: Callable[[Conn, str], None], dsn: str) -> None:
    with locks_held(dsn):
        do(deed, dsn)


@pytest.mark.parametrize("deed", DEEDS)
def test_advisory_locks_of_a_stranger_and_a_full_notification_queue_hold_up_no_operation(
    deed: Callable[[Conn, str], None], crowded_dsn: str
) -> None:
    with locks_held(crowded_dsn), crowd(crowded_dsn):
        do(deed, crowded_dsn)


def test_only_one_session_at_a_time_holds_the_archive_lock(dsn: str, conn: Conn) -> None:
    with psycopg.connect(dsn, autocommit=True) as other, archive.hold_archive_lock(other, SCHEMA) as first:
        with archive.hold_archive_lock(conn, SCHEMA) as second:
            assert (first, second) == (True, False)
        has_xid = "select backend_xid is not null from pg_stat_activity where pid = %s"
        assert conn.execute(has_xid, [other.info.backend_pid]).fetchone() == (False,), "what archives waits for those"
    with archive.hold_archive_lock(conn, SCHEMA) as third:
        assert third


def test_a_stranger_cannot_take_any_lock_of_partbox(dsn: str, conn: Conn) -> None:
    with cast_of(dsn) as cast, psycopg.connect(cast.of("stranger")) as stranger:
        for statement in (
            "select from partbox.meta for update",
            "select from partbox.subscription for key share",
            "lock table partbox.archiving in access share mode",
            "select partbox.locked('purge')",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                stranger.execute(statement)
            stranger.rollback()


def test_a_lock_whose_row_is_gone_is_an_error_and_a_migration_brings_it_back(dsn: str, conn: Conn) -> None:
    conn.execute("delete from partbox.meta where key = 'lock purge'")
    with pytest.raises(psycopg.errors.RaiseException, match="lacks the row lock purge: run partbox migrate"):
        conn.execute("select partbox.locked('purge')")
    migrate(dsn, SCHEMA)
    assert conn.execute("select partbox.locked('purge')").fetchone() == (True,)
