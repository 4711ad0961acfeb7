"""A statement may arrive after its connection was given up: held up by a proxy, or by a backend that was stopped."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from rig import DEFAULT, PARTITION, SCHEMA, Rig, write

from partbox.db.delivery import cursors
from partbox.protocol.rows import Park, Saving
from partbox.worker.engine.saves import gather

Conn = psycopg.Connection[Any]
OTHER = PARTITION + 1


@pytest.fixture
def rig(dsn: str) -> Iterator[Rig]:
    rig = Rig(dsn)
    yield rig
    rig.close()


def cursor(conn: Conn) -> Any:
    where = [PARTITION]
    return conn.execute("select last_id, snapshot::text from partbox.partition where partition = %s", where).fetchone()


def sent(rig: Rig) -> Saving:
    """The content of a save of the partition now."""
    with rig.engine.lock:
        return gather(rig.partition()).saving()


def test_a_save_that_arrives_late_takes_no_cursor_back(conn: Conn, rig: Rig) -> None:
    write(conn)
    rig.done(*rig.read_all())
    late = sent(rig)
    rig.reconnect()
    write(conn, 2)
    rig.done(*rig.read_all())
    rig.save()
    saved = cursor(conn)
    mine, _ = cursors.save(rig.conn, SCHEMA, DEFAULT, rig.me, [late])
    assert mine == set()
    assert cursor(conn) == saved


def test_a_park_that_arrives_late_does_not_bring_back_what_is_done(conn: Conn, rig: Rig) -> None:
    write(conn)
    (id,) = rig.read_all()
    late = sent(rig)
    row = Park(PARTITION, id, "__GLOBAL__", None, "Written", "retrying", blocks=False, attempts=1, delay=0.0)
    rig.reconnect()
    rig.done(*rig.read_all())
    rig.save()
    cursors.save(rig.conn, SCHEMA, DEFAULT, rig.me, [late], [row])
    assert conn.execute("select count(*) from partbox.parked").fetchone() == (0,)


def test_a_save_that_commits_while_a_session_begins_is_seen_by_it(dsn: str, conn: Conn, rig: Rig) -> None:
    """The new epoch waits for the rows that the save has locked, and reads what it has saved."""
    write(conn)
    rig.done(*rig.read_all())
    late = sent(rig)
    with psycopg.connect(dsn, autocommit=True) as slow, slow.transaction():
        mine, _ = cursors.save(slow, SCHEMA, DEFAULT, rig.me, [late])
        assert mine == {PARTITION}
        rig.conn.execute("set lock_timeout = '50ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            rig.reconnect()
    rig.conn.execute("reset lock_timeout")
    rig.reconnect()
    assert rig.partition().cursor.last_id == late.last_id
    assert rig.read_all() == []


def test_a_session_whose_beginning_was_not_answered_loses_nothing_at_the_next(conn: Conn, rig: Rig) -> None:
    write(conn)
    done = rig.read_all()
    rig.done(*done)
    cursors.take_up(rig.conn, SCHEMA, DEFAULT, rig.me, {PARTITION: rig.partition().epoch})  # its answer is lost
    rig.reconnect()
    assert not rig.partition().lost
    assert rig.read_all() == [], "what was done is remembered"
    assert rig.save() == {PARTITION}


def test_a_take_up_that_arrives_late_takes_nothing_from_its_own_process(conn: Conn, rig: Rig) -> None:
    late = {PARTITION: rig.partition().epoch}
    rig.reconnect()
    assert cursors.take_up(rig.conn, SCHEMA, DEFAULT, rig.me, late) == []
    write(conn)
    rig.done(*rig.read_all())
    assert rig.save() == {PARTITION}


def test_what_was_lost_by_mistake_is_taken_up_again_at_the_next_tick(conn: Conn, rig: Rig) -> None:
    """Nothing has changed in the database, whose digest is the one that is known."""
    write(conn)
    rig.done(*rig.read_all())
    rig.save()
    for _ in range(2):  # settled
        rig.ownership.tick(rig.conn)
    lost = rig.partition()
    rig.ownership.lose([lost.tenure])
    rig.ownership.tick(rig.conn)
    assert rig.partition() is not lost
    assert not rig.partition().lost
    write(conn, 2)
    rig.done(*rig.read_all())
    rig.save()
    assert rig.partition().cursor.last_id == 3


def test_a_claim_that_arrives_late_is_found_at_the_next_tick(conn: Conn, rig: Rig) -> None:
    conn.execute("update partbox.partition set assignee = %s where partition = %s", [rig.me, OTHER])
    assert [row.partition for row in cursors.claim(rig.conn, SCHEMA, DEFAULT, rig.me)] == [OTHER]  # its answer is lost
    write(conn, 1, OTHER)
    rig.ownership.tick(rig.conn)
    assert rig.read_all() == [1]
