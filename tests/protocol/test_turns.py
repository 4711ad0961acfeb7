"""The rule of limits: how much starts, who has a turn, and what is remembered."""

from collections import Counter
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partbox.protocol.limits import Limit, Rate
from partbox.protocol.turns import PermitQueues

A, B = ("charge", "a"), ("charge", "b")

shares = st.sampled_from([1 / 256, 0.1, 0.25, 0.5, 1.0])
rates = st.sampled_from([0.01, 0.5, 1.0, 7.0, 100.0])
pauses = st.sampled_from([0.0, 1e-4, 0.003, 0.05, 0.4, 1.0, 3.0, 500.0])


def turns_of(limit, share=1.0, handler="charge"):
    turns = PermitQueues(share)
    turns.replace_limits({handler: limit}, 0.0)
    return turns


def start_all(turns, now):
    """Start what may start; the places, in order."""
    started = []
    while (limit_key := turns.find_next_key(now)) is not None:
        turns.start_first(limit_key, now)
        started.append(limit_key)
    return started


def assert_within(starts, saved, pace):
    """Times of starts: in any window at most what is saved and what the window brings."""
    for first, at in enumerate(starts):
        for last in range(first, len(starts)):
            assert last - first + 1 <= saved + pace * (starts[last] - at) + 1e-4


@given(rates, shares, st.lists(st.tuples(pauses, st.integers(0, 3), st.sampled_from("ab")), max_size=30))
def test_starts_in_any_window_never_exceed_the_rate_and_the_burst_of_one_second(rate, share, steps):
    turns, now, starts = turns_of(Limit(Rate(rate), by="x"), share), 0.0, {"a": [], "b": []}
    for pause, more, value in steps:
        now += pause
        for _ in range(more * 20):
            turns.add(("charge", value), None, now)
        for limit_key in start_all(turns, now):
            starts[limit_key[1]].append(now)
            turns.end_call(limit_key, now)
    for each in starts.values():
        assert_within(each, max(1.0, rate * share), rate * share)


@given(st.sampled_from([8.0, 100.0]), st.lists(st.tuples(pauses, st.integers(0, 2), shares), max_size=25))
def test_all_processes_together_never_exceed_the_rate_however_partitions_move(rate, steps):
    processes, owned, now, starts = [turns_of(Limit(Rate(rate)), 0.0) for _ in range(3)], [0.0] * 3, 0.0, []
    for pause, one, share in steps:
        now += pause
        free = 1.0 - sum(owned) + owned[one]  # what it gives up others have later only, and more than is free nobody
        owned[one] = min(share, free) if rate * min(share, free) >= 1 else 0.0
        processes[one].change_share(owned[one], now)
        for turns in processes:
            for _ in range(10):
                turns.add(A, None, now)
            for limit_key in start_all(turns, now):
                starts.append(now)
                turns.end_call(limit_key, now)
    assert_within(starts, rate, rate)


@given(st.sampled_from([2.0, 100.0]), st.sampled_from([0.5, 1.0]), st.sampled_from([0.005, 0.02]))
def test_under_load_at_least_nine_tenths_of_the_rate_start(rate, share, look):
    turns, seconds = turns_of(Limit(Rate(rate)), share), 50 / (rate * share)
    for _ in range(60):
        turns.add(A, None, 0.0)
    started = sum(len(start_all(turns, step * look)) for step in range(int(seconds / look) + 2))
    assert 45 <= started <= 51 + rate * share * look


@given(st.integers(1, 9), shares, st.lists(st.booleans(), max_size=60))
def test_calls_at_once_never_exceed_the_share_rounded_up_and_reach_it_while_others_wait(at_once, share, steps):
    turns, running, waiting = turns_of(Limit(at_once=at_once), share), 0, 0
    most = -int(-at_once * share // 1)
    assert most >= 1
    for ends in steps:
        turns.add(A, None, 0.0)
        if ends and running:
            turns.end_call(A, 0.0)
            running -= 1
        started = len(start_all(turns, 0.0))
        running, waiting = running + started, waiting + 1 - started
        assert running == most or (running < most and not waiting)


@given(st.lists(st.sampled_from("abcde"), min_size=1, max_size=60))
def test_every_waiting_value_has_a_turn_before_another_has_two(values):
    turns, waiting = turns_of(Limit(at_once=1_000)), Counter(values)
    for value in values:
        turns.add(("charge", value), None, 0.0)
    since = Counter()
    while (limit_key := turns.find_next_key(0.0)) is not None:
        turns.start_first(limit_key, 0.0)
        value = limit_key[1]
        waiting[value] -= 1
        since[value] = 0
        for other, left in waiting.items():
            if left and other != value:
                since[other] += 1
                assert since[other] < len(waiting)
    assert not any(waiting.values())


def test_calls_with_the_same_limit_key_start_in_the_order_in_which_they_came():
    turns = turns_of(Limit(Rate(1_000)))
    for item in range(5):
        turns.add(A, item, 0.0)
    found = []
    for now in (0.1, 0.2):
        while (limit_key := turns.find_next_key(now)) is not None:
            found.append(turns.start_first(limit_key, now))
    assert found == [0, 1, 2, 3, 4]


@given(rates, shares, shares, pauses)
def test_a_change_of_the_share_or_of_the_limit_never_adds_a_start(rate, before, after, pause):
    kept, changed = turns_of(Limit(Rate(rate)), before), turns_of(Limit(Rate(rate)), before)
    changed.change_share(after, pause)
    changed.replace_limits({"charge": Limit(Rate(rate * 5))}, pause)
    for turns in (kept, changed):
        for _ in range(200):
            turns.add(A, None, pause)
    most = len(start_all(kept, pause))
    assert len(start_all(changed, pause)) <= most
    assert most <= max(1, rate * before) + 1e-6


def test_a_process_begins_without_credit_and_saves_at_most_one_call_where_the_rate_is_low():
    turns = turns_of(Limit(Rate(0.01)), 0.5)
    turns.add(A, None, 0.0)
    assert turns.find_next_key(0.0) is None
    assert turns.find_next_start() == pytest.approx(200.0)
    assert start_all(turns, 199.0) == []
    assert start_all(turns, 200.1) == [A]
    for _ in range(3):
        turns.add(A, None, 9_000.0)
    assert start_all(turns, 9_000.0) == [A]


def test_a_process_that_owns_nothing_starts_nothing():
    for limit in (Limit(Rate(100)), Limit(at_once=5)):
        turns = turns_of(limit, 0.0)
        turns.add(A, None, 0.0)
        assert start_all(turns, 1_000.0) == []
        assert turns.find_next_start() is None
        turns.change_share(1.0, 1_000.0)
        assert start_all(turns, 1_001.0) == [A]


@given(st.sampled_from([0.5, 20.0]), st.lists(st.integers(0, 500), max_size=200))
def test_values_that_come_once_are_forgotten(rate, values):
    turns, ticket = turns_of(Limit(Rate(rate), by="x")), count()
    now = 0.0
    for value in values:
        now += 2.5
        turns.add(("charge", f"{value}-{next(ticket)}"), None, now)
        for limit_key in start_all(turns, now):
            turns.end_call(limit_key, now)
    assert len(turns._handlers["charge"].buckets) <= 3


def test_a_value_that_occurs_for_the_first_time_has_the_credit_of_one_that_was_never_used():
    turns = turns_of(Limit(Rate(10.0), by="x"))
    for now, limit_key, items in ((0.2001, A, 20), (5.0, B, 20)):
        for _ in range(items):
            turns.add(limit_key, None, now)
        assert Counter(start_all(turns, now))[limit_key] == (2 if limit_key == A else 10)


def test_a_value_is_not_forgotten_while_it_has_less_credit_than_one_that_was_never_used():
    turns = turns_of(Limit(Rate(10.0), by="x"))
    for _ in range(15):
        turns.add(A, None, 5.0)
        for limit_key in start_all(turns, 5.0):
            turns.end_call(limit_key, 5.0)
    assert [len(bucket.waiting) for _, bucket in turns.iter_waiting()] == [5]


def test_a_process_that_gives_up_partitions_gives_up_the_credit_saved_for_them():
    turns = turns_of(Limit(Rate(10.0)))
    turns.change_share(0.3, 5.0)
    turns.change_share(0.9, 5.0)
    for _ in range(20):
        turns.add(A, None, 5.0)
    assert len(start_all(turns, 5.0)) == 3


def test_an_item_that_is_taken_into_the_call_of_another_costs_no_start():
    turns = turns_of(Limit(Rate(1.0)))
    for item in range(5):
        turns.add(A, item, 0.0)
    assert turns.start_first(turns.find_next_key(1.0), 1.0) == 0
    assert turns.take_joining(A, lambda item: item != 2, 3) == [1, 3]
    assert turns.start_first(turns.find_next_key(2.0), 2.0) == 2
    assert turns.start_first(turns.find_next_key(3.0), 3.0) == 4
    assert turns.take_joining(B, lambda item: True, 3) == []


def test_a_removed_item_leaves_its_queue_and_those_behind_it_move_up():
    turns = turns_of(Limit(at_once=1))
    for item in range(6):
        turns.add(A if item % 2 else B, item, 0.0)
    gone = turns.remove_matching(lambda item, ahead, bounds: item in (0, 1) or (item == 5 and ahead == 1), 0.0)
    assert gone == [(B, 0), (A, 1), (A, 5)]
    assert [item for _, bucket in turns.iter_waiting() for item in bucket.waiting] == [2, 4, 3]
    assert Counter(start_all(turns, 0.0)) == {A: 1, B: 1}


def test_items_of_a_handler_that_has_no_limit_any_more_are_released_and_others_stay_queued():
    turns = PermitQueues(1.0)
    turns.replace_limits({"charge": Limit(Rate(1.0)), "mail": Limit(at_once=1)}, 0.0)
    turns.add(A, 1, 0.0)
    turns.add(("mail", None), 2, 0.0)
    turns.add(("mail", None), 3, 0.0)
    assert start_all(turns, 0.5) == [("mail", None)]
    assert turns.replace_limits({"mail": Limit(at_once=1)}, 0.5) == [1]
    turns.end_call(A, 0.5)
    assert start_all(turns, 0.5) == []
    turns.end_call(("mail", None), 0.5)
    assert start_all(turns, 0.5) == [("mail", None)]


def test_a_raised_limit_lets_waiting_items_start_sooner():
    turns = turns_of(Limit(Rate(0.01)))
    turns.add(A, None, 0.0)
    turns.replace_limits({"charge": Limit(Rate(10.0))}, 1.0)
    assert turns.find_next_start() == pytest.approx(1.099)
    assert start_all(turns, 1.1) == [A]


@given(st.lists(st.tuples(st.sampled_from(["add", "first", "start", "take", "remove"]), st.integers(0, 3))))
def test_items_added_as_first_stay_before_the_others_whatever_leaves_the_queue(steps):
    turns, first, others = turns_of(Limit(at_once=1_000)), [], []
    turns.add(A, -1, 0.0)
    others.append(-1)
    for item, (step, which) in enumerate(steps):
        line = first + others
        if step in ("add", "first"):
            turns.add(A, item, 0.0, first=step == "first")
            (first if step == "first" else others).append(item)
            continue
        if step == "start" and line:
            gone = [turns.start_first(A, 0.0)]
            assert gone == line[:1]
        elif step == "take":
            gone = turns.take_joining(A, lambda item, which=which: item % 4 == which, 5)
        else:
            gone = [item for _, item in turns.remove_matching(lambda item, _, __, which=which: item % 4 == which, 0.0)]
        first, others = [x for x in first if x not in gone], [x for x in others if x not in gone]
        waiting = [item for _, bucket in turns.iter_waiting() for item in bucket.waiting]
        assert (waiting, turns.count_waiting(A)) == (first + others, (len(waiting), len(first)))
