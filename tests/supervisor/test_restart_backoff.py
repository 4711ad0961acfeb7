"""What follows when processes die."""

import pytest

from partbox.supervisor.restart_backoff import RestartBackoff


def test_each_death_in_a_row_delays_the_restart_longer_up_to_ten_seconds():
    deaths = RestartBackoff()
    pauses = [deaths.note_death(float(at), lived=1.0) for at in range(9)]
    assert pauses == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0])


def test_a_process_that_had_lived_for_long_is_replaced_at_once():
    deaths = RestartBackoff()
    for at in range(4):
        deaths.note_death(float(at), lived=1.0)
    assert deaths.note_death(100.0, lived=11.0) == pytest.approx(0.1)


def test_five_deaths_within_a_minute_are_a_crash_loop_until_a_minute_has_passed():
    deaths = RestartBackoff()
    for at in (0.0, 10.0, 20.0, 30.0):
        deaths.note_death(at, lived=1.0)
        assert not deaths.is_looping(at)
    deaths.note_death(61.0, lived=1.0)
    assert (deaths.count_recent(61.0), deaths.is_looping(61.0)) == (4, False)
    deaths.note_death(62.0, lived=1.0)
    assert (deaths.count_recent(62.0), deaths.is_looping(62.0)) == (5, True)
    assert deaths.is_looping(121.9)
    assert not deaths.is_looping(122.0)
    assert deaths.count_recent(200.0) == 0
