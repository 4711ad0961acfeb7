"""The pauses of partitions, from what was sent and what was delivered."""

import pytest

from partbox_lab.bench.handlers import Noted
from partbox_lab.bench.handover import PARTITIONS, Change, distribution, judge, told

SECOND = 1_000_000_000


def note(beat: int, partition: int, at: float, pid: int) -> Noted:
    return Noted(beat * PARTITIONS + partition, int(at * SECOND), partition, pid)


BEATS = [int(at * SECOND) for at in (0.0, 1.0, 2.0, 3.0, 4.0)]
"""Beats of one second; the change is from 2 to 4 s."""
CHANGE = Change(2 * SECOND, 2 * SECOND, 4 * SECOND)
NOTES = [
    *(note(beat, 7, beat + 0.1, pid=1) for beat in range(5)),  # stays
    note(0, 9, 0.2, pid=1),
    note(1, 9, 1.3, pid=1),
    note(2, 9, 3.5, pid=2),  # moves, and waits
    note(3, 9, 3.6, pid=2),
    note(4, 9, 4.9, pid=2),  # sent after it
]


def test_a_moving_partition_pauses_until_its_new_process_has_handled_the_waiting_events():
    found = judge(NOTES, BEATS, CHANGE)
    assert found.settled == pytest.approx([1.5])
    assert found.moved == pytest.approx([1.5])
    assert found.unmoved == pytest.approx([0.1])
    assert found.before == pytest.approx([0.1, 0.3])


def test_a_repeated_delivery_does_not_count_as_late():
    again = [*NOTES, note(1, 7, 4.5, pid=1)]
    assert judge(again, BEATS, CHANGE) == judge(NOTES, BEATS, CHANGE)


def test_a_partition_that_moves_twice_is_settled_when_its_last_process_handles_its_first_event():
    found = judge([*NOTES[:-1], note(4, 9, 4.4, pid=3)], BEATS, CHANGE._replace(ended=5 * SECOND))
    assert found.settled == pytest.approx([2.4])
    assert found.moved == pytest.approx([1.5])


def test_a_change_that_moves_no_partition_is_settled_at_once():
    found = judge(NOTES[:5], BEATS, CHANGE)
    assert (found.moved, found.settled) == ([], [0.0])


def test_pauses_of_several_changes_are_merged_and_reported_as_quantiles():
    found = judge(NOTES, BEATS, CHANGE)
    found.add(judge(NOTES, BEATS, CHANGE))
    assert len(found.settled) == 2
    assert distribution([3.0, 1.0, 2.0]) == [2.0, 3.0, 3.0, 3.0]
    assert told({"2 to 3": [0.5], "none": []}, "ms", 1e3) == "2 to 3 500 / 500 / 500 / 500 ms (1)"
