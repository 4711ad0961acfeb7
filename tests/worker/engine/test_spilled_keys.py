"""What a partition does with new records of a key that has enough rows."""

import pytest
from contexts import row

from partbox.codecs import Codecs
from partbox.events import ClaimContext, DeliveredEvent
from partbox.events.checks import MAX_ID
from partbox.protocol.horizon import Page
from partbox.protocol.rows import LooseRows, OwnedPartition, RefilledKey, SpillStart, StoredRow, StoredSpill
from partbox.worker.engine.partition import Partition

NAMES = ("Key", "k")


@pytest.fixture
def partition() -> Partition:
    """Two rows of the key wait for another attempt, and with two rows it has enough."""
    owned = OwnedPartition(5, 1, "1:1:", 3, 3, 0, None)
    partition = Partition(owned, 0.0, window=100, dead_letters=False, spill_after=2)
    loaded(partition)
    return partition


def loaded(partition: Partition, *spills: StoredSpill) -> None:
    rows = [StoredRow(5, id, *NAMES, "retrying", 1, 60.0, False, None) for id in (1, 2)]
    partition.parked.load_rows(rows, LooseRows(), 0.0, spills)
    partition.parked.version, partition.parked.has_read_due = 1, True


def event(id: int, key: str = "k") -> DeliveredEvent:
    return DeliveredEvent(row(id, key), ClaimContext(1, "default", Codecs()))


def test_a_record_that_passes_is_finished_and_the_next_save_says_where_the_spill_starts(partition: Partition) -> None:
    assert partition.parked.pass_spilled(event(4), 0)
    assert partition.parked.pass_spilled(event(5), 0)
    assert partition.progress.has_finished(4)
    unsaved = partition.parked.take_unsaved()
    assert (unsaved.parks, unsaved.spills) == ([], [SpillStart(5, *NAMES, 4)])
    assert not partition.parked.take_unsaved().spills


def test_no_spill_starts_at_a_record_that_was_read_before_a_lost_connection(partition: Partition) -> None:
    """It may have run: a refill would insert a row for it, and it would run again."""
    assert not partition.parked.pass_spilled(event(4), 4)
    assert partition.parked.pass_spilled(event(5), 4)


def test_a_key_whose_name_had_to_be_shortened_is_not_spilled(partition: Partition) -> None:
    """Its records could not be found by the name that the row has."""
    long = "k" * (MAX_ID + 1)
    first = event(4, long)
    partition.parked.park_behind(first)
    partition.parked.park_behind(event(5, long))
    assert not partition.parked.pass_spilled(event(6, long), 0)


def test_a_reload_drops_spills_that_an_operator_has_removed_and_keeps_unsaved_ones(partition: Partition) -> None:
    partition.parked.pass_spilled(event(4), 0)
    loaded(partition)
    assert list(partition.parked.spills.chains) == [NAMES]
    partition.parked.take_unsaved()
    loaded(partition, StoredSpill(5, *NAMES, 4))
    assert partition.parked.spills.find_first_id() == 4
    loaded(partition)
    assert not partition.parked.spills.chains


def test_a_key_without_rows_stays_blocked_until_its_spill_has_ended(partition: Partition) -> None:
    loaded(partition, StoredSpill(5, *NAMES, 3))
    partition.parked.load_rows([], LooseRows(), 0.0, [StoredSpill(5, *NAMES, 3)])
    assert not partition.parked.chains[NAMES].is_caught_up()
    partition.parked.note_refilled(RefilledKey(*NAMES, 4, False, [3]))
    assert [each.id for each in partition.parked.chains[NAMES].list_runnable(0.0)] == [3]
    partition.parked.note_refilled(RefilledKey(*NAMES, None, True, []))
    assert (partition.parked.spills.chains, partition.parked.open_count) == ({}, 1)


def test_done_records_are_remembered_while_they_may_wait_in_the_log(partition: Partition) -> None:
    """A crash of the server may have undone the refill that had made their rows."""
    partition.resumption.remembered = {(2, b"e"), (8, b"e")}
    partition.resumption._unconfirmed = {(2, b"e"), (8, b"e")}
    partition.parked.load_rows([], LooseRows(), 0.0, [StoredSpill(5, *NAMES, 7)])
    partition.resumption.note_saved(Page("1:1:", 9), 9, partition.parked)
    assert partition.resumption.remembered == {(8, b"e")}


def test_rows_that_wait_behind_the_spill_do_not_make_refills_smaller(partition: Partition) -> None:
    """Such rows may be many, after a crash. With few rows to run, each refill would fetch a single one."""
    chain = partition.parked.chains[NAMES]
    partition.parked.pass_spilled(event(4), 0)
    for id in range(10, 20):
        partition.parked.park_behind(event(id))
    assert len(chain.rows) == 12
    assert chain.count_before_spill() == 2


def test_a_partition_is_kept_while_a_done_record_waits_in_the_log_without_its_row(partition: Partition) -> None:
    """A crash of the server may lose the row of an event that has run. Another owner would run the event again."""
    partition.parked.pass_spilled(event(4), 0)
    partition.reset(0.0)
    partition.begin_reading(OwnedPartition(5, 2, "1:1:", 3, 3, 0, None), 0.0)
    loaded(partition, StoredSpill(5, *NAMES, 4))
    assert partition.resumption.is_recheck_over(partition.parked, 100.0, 1.0)
    partition.resumption.remembered.add((4, b"4"))
    assert not partition.resumption.is_recheck_over(partition.parked, 100.0, 1.0)
