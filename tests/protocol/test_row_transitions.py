"""The transitions of a parked row are those that `protocol.parking` draws."""

import json
from collections import Counter

import orjson
import pytest

from partbox.protocol.parking import ParkedRow, RowStage, RowState, Suspicion


def row_at(stage: RowStage, state: RowState = RowState.READY, suspicion: Suspicion = Suspicion.NONE) -> ParkedRow:
    return ParkedRow(1, state, 0, True, stage=stage, suspicion=suspicion)


@pytest.mark.parametrize(
    ("verb", "moves"),
    [
        ("mark_loaded", {"WAITING": "LOADED"}),
        ("mark_changed", {"WAITING": "UNSAVED"}),
        ("keep_running", {"UNSAVED": "RUNS_ON", "WAITING": "LOADED"}),
        ("put_back", {"LOADED": "WAITING", "RUNS_ON": "UNSAVED"}),
        ("note_saved", {"UNSAVED": "WAITING", "RUNS_ON": "LOADED", "WAITING": "WAITING", "LOADED": "LOADED"}),
    ],
)
def test_a_row_moves_between_database_and_memory_only_as_the_diagram_shows(verb, moves):
    for stage in RowStage:
        row = row_at(stage)
        if stage.name in moves:
            getattr(row, verb)()
            assert row.stage.name == moves[stage.name]
        else:
            with pytest.raises(AssertionError):
                getattr(row, verb)()


@pytest.mark.parametrize("before", RowState)
@pytest.mark.parametrize("after", RowState)
def test_only_a_loaded_row_is_parked_anew_never_as_scheduled_and_a_dead_one_only_by_its_handler(before, after):
    allowed = after != "scheduled" and (before != "dead" or after in ("retrying", "deferred", "dead"))
    for stage in RowStage:
        row = row_at(stage, before, Suspicion.CHARGED)
        if allowed and row.is_loaded:
            row.park(after, 1, blocks=False)
            assert row == ParkedRow(1, after, 1, False, stage=RowStage.UNSAVED)
        else:
            with pytest.raises(AssertionError):
                row.park(after, 1, blocks=False)


def test_a_trial_charges_a_row_once_and_ends_with_the_suspicion_that_it_began_with():
    for before in (Suspicion.SUSPECT, Suspicion.ACCUSED):
        row = row_at(RowStage.WAITING, suspicion=before)
        row.start_trial()
        assert row.is_charged
        assert row.is_accused == (before is Suspicion.ACCUSED)
        for verb in (row.start_trial, row.mark_suspect):
            with pytest.raises(AssertionError):
                verb()
        row.end_trial()
        assert row.suspicion is before
    with pytest.raises(AssertionError):
        row_at(RowStage.WAITING).start_trial()


def test_a_row_state_is_shown_as_its_plain_string_everywhere():
    assert repr(Counter([RowState.DEAD])) == "Counter({'dead': 1})"
    assert f"{RowState.HELD} {RowState.READY!s} {RowState.DEAD!r}" == "held ready 'dead'"
    assert json.dumps({RowState.HELD: RowState.READY}) == '{"held": "ready"}'
    assert orjson.dumps([RowState.DEAD]) == b'["dead"]'
