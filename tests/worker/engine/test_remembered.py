"""What is remembered over a lost connection is kept until nothing can come again; see the scenario `remembered`."""

from collections.abc import Collection

import pytest

from partbox.protocol.horizon import Page
from partbox.protocol.parking import ParkedRow, RowState
from partbox.protocol.rows import LooseRows, OwnedPartition, StoredRow
from partbox.worker.engine.partition import Partition
from partbox.worker.engine.resumption import RecordIdentity


@pytest.fixture
def partition() -> Partition:
    partition = Partition(OwnedPartition(5, 1, "1:1:", 0, 0, 0, None), 0.0, window=100, dead_letters=False)
    partition.parked.version, partition.parked.has_read_due = 1, True
    return partition


def remembering(partition: Partition, *ids: int) -> set[RecordIdentity]:
    resumption = partition.resumption
    resumption.remembered = {(id, b"e") for id in ids}
    resumption._unconfirmed = set(resumption.remembered)
    return resumption.remembered


def kept(partition: Partition, saved: int) -> Collection[int]:
    """The ids that are remembered when a cursor is saved whose floor and last id are this one."""
    partition.resumption.note_saved(Page("1:1:", saved), saved, partition.parked)
    return {id for id, _ in partition.resumption.remembered}


def test_a_done_record_above_the_floor_stays_remembered(partition: Partition) -> None:
    """Below the floor nothing becomes visible any more; above it a record may come late, and be one of these."""
    remembering(partition, 5)
    assert kept(partition, 4) == {5}
    assert kept(partition, 5) == set()


@pytest.mark.parametrize("key", ["k", None])
def test_a_parked_record_that_was_done_is_remembered_while_its_row_is_there(
    partition: Partition, key: str | None
) -> None:
    remembering(partition, 2, 3)
    if key is None:
        partition.parked.loose_rows[3] = ParkedRow(3, RowState.READY, 0, False)
    else:
        partition.parked.load_rows([StoredRow(5, 3, "A", key, "ready", 0, None, False, None)], LooseRows(), 0.0)
    assert kept(partition, 9) == {3}


def test_no_done_record_is_forgotten_before_the_parked_rows_are_known(partition: Partition) -> None:
    remembering(partition, 1)
    partition.parked.has_read_due = False
    assert kept(partition, 9) == {1}
