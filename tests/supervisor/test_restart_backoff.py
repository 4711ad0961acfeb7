"""What follows when processes die."""

import pytest

from partbox.supervisor.restart_backoff import RestartBackoff


def test_each_death_in_a_row_waits_longer_up_to_ten_seconds():
    deaths = RestartBackoff()
    pauses = [deaths.note(float(at), lived=1.0) for at in range(9)]
    assert pauses == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0])


def test_one_that_had_lived_for_long_is_replaced_at_once():
    deaths = RestartBackoff()
    for at in range(4):
        deaths.note(float(at), lived=1.0)
    assert deaths.note(100.0, lived=11.0) == pytest.approx(0.1)


def test_five_within_a_minute_are_a_crash_loop_until_a_minute_has_passed():
    deaths = RestartBackoff()
    for at in (0.0, 10.0, 20.0, 30.0):
        deaths.note(at, lived=1.0)
        assert not deaths.looping(at)
    deaths.note(61.0, lived=1.0)
    assert (deaths.lately(61.0), deaths.looping(61.0)) == (4, False)
    deaths.note(62.0, lived=1.0)
    assert (deaths.lately(62.0), deaths.looping(62.0)) == (5, True)
    assert deaths.looping(121.9)
    assert not deaths.looping(122.0)
    assert deaths.lately(200.0) == 0
