"""When a blocked key leaves its events in the log, and when it reads them again; see also the engine's machine."""

import pytest

from partbox.protocol.parking import Chain, ParkedRow, RowStage, RowState
from partbox.protocol.spill import Spill

SIZE = 4


def chain_of(
    *ids: int, state: RowState = RowState.HELD, stage: RowStage = RowStage.WAITING, spill: Spill | None
) -> Chain:
    return Chain([ParkedRow(id, state, 0, True, stage=stage) for id in ids], spill=spill)


def test_only_records_from_its_start_on_pass_without_a_row() -> None:
    spill = Spill(10, SIZE, consumed_id=0)
    assert not spill.pass_record(9, SIZE)
    assert spill.pass_record(10, SIZE)
    assert spill.pass_record(11, 0)
    assert spill.last_passed_id == 11


def test_after_a_refill_found_the_last_record_new_ones_have_rows_until_there_are_too_many() -> None:
    spill = Spill(10, SIZE, consumed_id=0)
    spill.pass_record(10, SIZE)
    spill.note_refilled(11, is_end=True)
    assert not spill.pass_record(12, SIZE - 1)
    assert spill.pass_record(13, SIZE)
    assert spill.pass_record(14, 0)


def test_it_may_end_only_after_a_save_of_the_last_record_that_passed() -> None:
    spill = Spill(10, SIZE, consumed_id=0)
    spill.pass_record(12, SIZE)
    assert not spill.may_end()
    spill.consumed_id = 11
    assert not spill.may_end()
    spill.consumed_id = 12
    assert spill.may_end()


def test_no_row_from_its_start_on_may_run_and_the_key_is_not_caught_up() -> None:
    chain = chain_of(1, 2, 9, spill=Spill(9, SIZE, consumed_id=0))
    assert [row.id for row in chain.list_runnable(0.0)] == [1, 2]
    assert chain_of(9, spill=Spill(9, SIZE, consumed_id=0, last_passed_id=9)).wakes_at() is None
    assert not chain_of(spill=Spill(9, SIZE, consumed_id=0)).is_caught_up()


@pytest.mark.parametrize(
    ("rows", "state", "stage", "refills"),
    [
        ((), RowState.HELD, RowStage.WAITING, True),
        ((1,), RowState.HELD, RowStage.WAITING, True),
        ((1,), RowState.RETRYING, RowStage.LOADED, True),
        ((1,), RowState.RETRYING, RowStage.WAITING, False),  # it is not due, so the key does not go on
        ((1,), RowState.DEAD, RowStage.WAITING, False),
        ((1, 2), RowState.HELD, RowStage.WAITING, False),  # half of the rows are left
        ((1, 11, 12, 13), RowState.HELD, RowStage.WAITING, True),  # most of them may not run before a refill
    ],
)
def test_a_key_that_goes_on_is_refilled_when_fewer_than_half_of_its_rows_are_left(
    rows: tuple[int, ...], state: RowState, stage: RowStage, refills: bool
) -> None:
    chain = chain_of(*rows, state=state, stage=stage, spill=Spill(10, SIZE, consumed_id=20, last_passed_id=30))
    if state is RowState.RETRYING and stage is RowStage.WAITING:
        chain.rows[0].due = 5.0
    assert chain.needs_refill() is refills
    assert (chain.wakes_at() == 0.0) is (refills or state is RowState.HELD)


def test_without_consumed_records_a_refill_is_needed_only_to_end_the_spill() -> None:
    assert not chain_of(spill=Spill(10, SIZE, consumed_id=9, last_passed_id=10)).needs_refill()
    assert chain_of(spill=Spill(10, SIZE, consumed_id=9)).needs_refill()
