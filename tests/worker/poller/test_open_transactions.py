"""A transaction that stays open, anywhere in the database, delays nothing, however many ids are drawn meanwhile.

The range searched for late records is cut after a stretch of ids, which is small here.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from rig import PARTITION, Rig, write

from partbox import Outbox
from partbox.db.delivery import records
from partbox.protocol import cursor as cursor_rules

pytestmark = pytest.mark.every_version("what a snapshot sees")

Conn = psycopg.Connection[Any]
MANY = 60
"""Records, several stretches of them."""


@pytest.fixture(autouse=True)
def _small_stretch(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (records, cursor_rules):
        monkeypatch.setattr(module, "STRETCH", 20)


@contextmanager
def left_open(dsn: str) -> Iterator[Conn]:
    """A transaction that has written to a table of the application's, and stays open."""
    with psycopg.connect(dsn) as conn:
        conn.execute("create table if not exists unrelated (n int)")
        conn.commit()
        conn.execute("insert into unrelated values (1)")
        yield conn
        conn.rollback()


def delivered(rig: Rig) -> None:
    """Read what there is, finish and save it."""
    rig.done(*rig.read_all())
    rig.save()


def test_after_a_restart_new_records_are_read(dsn: str, conn: Conn, rig_with: Callable[..., Rig]) -> None:
    before = rig_with()
    with left_open(dsn):
        write(conn, MANY)
        delivered(before)
        heir = rig_with()
        write(conn, 5)
        assert heir.read_all() == list(range(MANY + 1, MANY + 6))
        assert heir.partition().cursor.lockstep


def test_after_a_lost_connection_new_records_are_read(dsn: str, conn: Conn, rig_with: Callable[..., Rig]) -> None:
    rig = rig_with()
    with left_open(dsn):
        write(conn, MANY)
        delivered(rig)
        rig.reconnect()
        write(conn, 5)
        assert rig.read_all() == list(range(MANY + 1, MANY + 6))


def test_a_partition_that_joins_others_is_read_with_them(dsn: str, conn: Conn, rig_with: Callable[..., Rig]) -> None:
    other = PARTITION + 1
    before = rig_with(partitions=(PARTITION, other))
    with left_open(dsn):
        write(conn, MANY, PARTITION)
        write(conn, MANY, other)
        delivered(before)
        rig = rig_with(partitions=(PARTITION,))
        assert rig.read_all() == []
        rig.conn.execute("update partbox.partition set assignee = %s where partition = %s", [rig.me, other])
        rig.ownership.tick(rig.conn)
        write(conn, 1, PARTITION)
        write(conn, 1, other)
        assert sorted(rig.read_all()) == [2 * MANY + 1, 2 * MANY + 2]
        assert all(each.cursor.lockstep for each in rig.engine.partitions.values())


def test_when_the_first_of_two_ends_new_records_are_read(dsn: str, conn: Conn, rig_with: Callable[..., Rig]) -> None:
    rig = rig_with()
    with left_open(dsn), left_open(dsn) as first:
        write(conn, MANY)
        delivered(rig)
        first.rollback()
        write(conn, 5)
        assert rig.read_all() == list(range(MANY + 1, MANY + 6))
        assert rig.partition().cursor.lockstep


@pytest.mark.parametrize("beside", [True, False])
def test_after_a_jump_of_the_sequence_and_a_restart_new_records_are_read(
    dsn: str, conn: Conn, rig_with: Callable[..., Rig], beside: bool
) -> None:
    rig = rig_with()
    with left_open(dsn) as other:
        if not beside:
            other.rollback()
        write(conn, 5)
        delivered(rig)
        conn.execute("select setval('partbox.record_id_seq', 4 * %s)", [MANY])
        write(conn, 2)
        delivered(rig)
        heir = rig_with()
        write(conn, 2)
        assert heir.read_all() == [4 * MANY + 3, 4 * MANY + 4]


def test_a_prepared_transaction_that_nobody_ends_holds_nothing_back(
    dsn: str, conn: Conn, rig_with: Callable[..., Rig]
) -> None:
    before = rig_with()
    orphan = conn.info.dbname
    with psycopg.connect(dsn) as other:
        write(other)
        other.execute(f"prepare transaction '{orphan}'")
    try:
        write(conn, MANY)
        delivered(before)
        heir = rig_with()
        write(conn, 2)
        assert heir.read_all() == [MANY + 2, MANY + 3]
        conn.execute(f"commit prepared '{orphan}'")
        orphan = ""
        assert heir.read_all() == [1], "late, and found all the same"
    finally:
        if orphan:
            conn.execute(f"rollback prepared '{orphan}'")


def test_what_the_open_transaction_has_published_is_found_when_it_commits(
    dsn: str, conn: Conn, rig_with: Callable[..., Rig]
) -> None:
    before = rig_with()
    with psycopg.connect(dsn) as late:
        write(late, 2)
        write(conn, MANY)
        write(late, 2)
        delivered(before)
        heir = rig_with()
        write(conn, 3)
        assert heir.read_all() == [MANY + 5, MANY + 6, MANY + 7]
        write(late)
        late.commit()
    assert heir.read_all() == [1, 2, MANY + 3, MANY + 4, MANY + 8]


def test_a_late_record_that_is_done_before_its_cut_page_is_through_is_saved_when_it_is(
    dsn: str, conn: Conn, rig_with: Callable[..., Rig]
) -> None:
    """It is the page's end that lets the cursor pass it, and nothing may be read after that for long."""
    rig = rig_with()
    with psycopg.connect(dsn) as late:
        write(late)
        write(conn, MANY)
        delivered(rig)
        late.commit()
    pages = [rig.read()]
    while rig.partition().cursor.cut is not None or not any(pages):
        rig.done(*pages[-1])
        rig.save(all=False)
        pages.append(rig.read())
    assert pages[-1] == [], "it came with a piece before the last"
    rig.save(all=False)
    assert conn.execute("select id from partbox.record_status where status <> 'done'").fetchall() == []


def test_a_subscription_created_beside_it_from_now_on_gets_what_comes(
    dsn: str, conn: Conn, rig_with: Callable[..., Rig]
) -> None:
    before = rig_with()
    with psycopg.connect(dsn) as late:
        write(late)
        write(conn, MANY)
        delivered(before)
        conn.execute("delete from partbox.partition")
        conn.execute("delete from partbox.subscription")
        Outbox(dsn).subscriptions.create("default", start="now")
        heir = rig_with()
        write(conn, 2)
        assert heir.read_all() == [MANY + 2, MANY + 3]
        late.commit()
    assert heir.read_all() == [1], "it was published before, and committed after"
