"""After a lost connection what was done is remembered until it is read again, or known to have been saved."""

from collections.abc import Iterator

import pytest
from rig import DEFAULT, PARTITION, SCHEMA, Rig, write

from partbox.db.delivery import cursors
from partbox.protocol.horizon import Page
from partbox.protocol.parking import ParkedRow, RowState
from partbox.protocol.rows import Stored
from partbox.worker.engine.partition import Partition
from partbox.worker.engine.saves import gather


@pytest.fixture
def rig(dsn) -> Iterator[Rig]:
    made = Rig(dsn)
    yield made
    made.close()


def tick(rig: Rig) -> None:
    rig.ownership.tick(rig.conn)


def save_unheard(rig: Rig) -> None:
    """A save that is committed, and whose answer is lost with the connection."""
    with rig.engine.lock:
        batches = [gather(partition) for partition in rig.engine.partitions.values()]
    cursors.save(rig.conn, SCHEMA, DEFAULT, rig.me, [batch.saving() for batch in batches])
    rig.reconnect()


def test_what_was_saved_after_all_is_forgotten_with_the_next_save(rig, conn):
    partition = rig.partition()
    for _ in range(3):
        write(conn, 20)
        rig.done(*rig.read_all(3))
        save_unheard(rig)
        assert len(partition.resumption.remembered) == 20
        tick(rig)
        rig.read_all(3)
        rig.save()
        assert (partition.resumption.remembered, partition.resumption._unsure) == (set(), set())


def test_what_was_not_saved_is_remembered_until_it_is_read_again(rig, conn):
    partition = rig.partition()
    write(conn, 20)
    rig.done(*rig.read_all(3))
    rig.reconnect()
    tick(rig)
    rig.save()  # of nothing: it passes none of them
    assert len(partition.resumption.remembered) == 20
    assert rig.read_all(3) == []
    assert partition.resumption.remembered == set()
    write(conn, 1)
    assert rig.read_all(3) == [21]


def passed(partition: Partition, id: int) -> None:
    """A cursor is saved whose floor and last id are this one."""
    partition.parked.due_read = True
    partition.resumption.saved(Page("1:1:", id), id, partition.parked)


def test_what_another_transaction_may_still_add_to_is_kept(rig):
    """Below the floor nothing becomes visible any more; above it a record may come late, and be one of these."""
    partition = rig.partition()
    with rig.engine.lock:
        partition.resumption.remembered = {(5, b"e")}
        partition.resumption._unsure = {(5, b"e")}
        passed(partition, 4)
        assert partition.resumption.remembered == {(5, b"e")}
        passed(partition, 5)
        assert partition.resumption.remembered == set()


@pytest.mark.parametrize("key", ["k", None])
def test_a_parked_record_that_was_done_is_remembered_while_its_row_is_there(rig, key):
    partition = rig.partition()
    row = ParkedRow(3, RowState.READY, 0, key is not None)
    stored = Stored(PARTITION, 3, "A", key, "ready", 0, None, False, None)
    with rig.engine.lock:
        partition.resumption.remembered = {(3, b"e"), (2, b"e")}
        partition.resumption._unsure = set(partition.resumption.remembered)
        if key is None:
            partition.parked.taken[3] = row
        else:
            partition.parked.load([stored], 1, 0.0)
        passed(partition, 9)
    assert partition.resumption.remembered == {(3, b"e")}


def test_nothing_is_forgotten_before_it_is_known_what_is_parked(rig, conn):
    partition = rig.partition()
    write(conn, 20)
    rig.done(*rig.read_all(3))
    save_unheard(rig)
    partition.parked.due_read = False
    rig.save()
    assert len(partition.resumption.remembered) == 20
