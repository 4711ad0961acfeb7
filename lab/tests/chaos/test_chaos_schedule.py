"""The schedule is a pure function of seed, length and faults; the list of faults is read with care."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partbox.errors import SettingsError
from partbox_lab.chaos.faults import FAULTS, chosen, possible
from partbox_lab.chaos.schedule import FIRST, LAST, PAUSE, schedule

seeds = st.integers(0, 2**32)
lengths = st.floats(1, 300)
some_faults = st.lists(st.sampled_from(sorted(FAULTS)), unique=True)


@given(seeds, lengths, some_faults, st.randoms(use_true_random=False))
def test_the_same_seed_gives_the_same_schedule_in_whatever_order_the_faults_are_named(seed, seconds, faults, dice):
    again = dice.sample(faults, len(faults))
    assert schedule(seed, seconds, faults) == schedule(seed, seconds, again)


@given(seeds, lengths, some_faults)
def test_a_schedule_has_only_the_chosen_faults_in_order_of_time_at_a_bounded_pace(seed, seconds, faults):
    steps = schedule(seed, seconds, faults)
    times = [step.at for step in steps]
    pauses = [later - sooner for sooner, later in pairwise(times)]
    assert all(FIRST <= at < seconds - LAST + 0.001 for at in times)
    assert all(PAUSE[0] - 0.002 <= pause <= PAUSE[1] + 0.002 for pause in pauses)
    assert {step.fault for step in steps} <= set(faults)
    for step in steps:
        least, most = FAULTS[step.fault].lasts
        assert least - 0.001 <= step.lasts <= most + 0.001
        assert 0 <= step.who < 1
        assert 0 <= step.how < 1


@given(seeds, lengths, st.floats(0, 100), some_faults)
def test_a_longer_run_begins_as_a_shorter_one_does(seed, seconds, more, faults):
    short, long = schedule(seed, seconds, faults), schedule(seed, seconds + more, faults)
    assert long[: len(short)] == short


@given(seeds, some_faults.filter(bool))
def test_every_fault_has_its_turn_before_any_comes_again(seed, faults):
    steps = schedule(seed, 100, faults)
    for first in range(0, len(steps) - len(faults), len(faults)):
        assert {step.fault for step in steps[first : first + len(faults)]} == set(faults)


def test_different_seeds_give_different_schedules():
    assert len({schedule(seed, 60, tuple(FAULTS)) for seed in range(20)}) == 20


def test_faults_are_chosen_by_name_or_all_or_none():
    assert chosen("hang, kill-node") == ("kill-node", "hang")
    assert chosen("all") == tuple(FAULTS)
    assert chosen("none") == ()


@pytest.mark.parametrize(
    ("text", "remedy"), [("kill-nod", "did you mean kill-node"), ("xyz!", "there are all, none"), (" ,", "no fault")]
)
def test_an_unknown_fault_is_refused_with_the_list_of_faults(text, remedy):
    with pytest.raises(SettingsError, match=remedy):
        chosen(text)


def test_faults_whose_needs_are_not_met_are_left_out_with_the_reason():
    names = ("kill-node", "restart-fast", "clock")
    assert possible(names, {"--embedded": "not ours", "proxy": "closed"}) == (
        ("kill-node", "clock"),
        {"restart-fast": "not ours"},
    )
