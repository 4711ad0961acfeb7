"""A process's trust in its lease, and a supervisor's in a child: it stops vouching for it, or kills it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partbox.protocol.lease import (
    IDLE_LEASES,
    ChildSigns,
    HeartbeatStreak,
    Patience,
    choose_statement_limit,
    idle_limit,
    should_kill,
    should_renew_lease,
    trust_deadline,
)

LEASE, TIMEOUT, DRAIN = 6.0, 300.0, 15.0
PATIENCE = Patience(lease=LEASE, handler_timeout=TIMEOUT, drain_timeout=DRAIN)

seconds = st.floats(0, 1e6)
some_signs = st.builds(ChildSigns, silent_for=seconds, handler_seconds=st.none() | seconds, is_stopped=st.booleans())
some_patience = st.builds(
    Patience, lease=st.floats(0.1, 1e3), handler_timeout=st.floats(0.1, 1e5), drain_timeout=st.floats(0, 1e3)
)


@given(st.floats(0, 1e9), st.floats(0.5, 3600))
def test_trust_ends_before_the_lease_does_and_after_most_of_it(sent_at, lease):
    assert sent_at + lease / 2 < trust_deadline(sent_at, lease) < sent_at + lease


@given(st.floats(0, 1e3), st.floats(0.5, 3600))
def test_a_statement_may_take_as_long_as_the_last_heartbeat_took_and_hangs_early_on_a_fast_server(took, lease):
    longest = lease * 1.25 + 0.5
    limit = choose_statement_limit(took, lease, longest)
    assert min(2 * took, longest) <= limit <= longest
    assert choose_statement_limit(0.0, lease, longest) == max(0.5, lease / 3)
    assert choose_statement_limit(took + 1, lease, longest) >= limit


@given(st.floats(0, 1e6), st.floats(0, 1e3), st.floats(0.5, 3600))
def test_a_later_renewal_is_trusted_at_least_as_long(sent_at, later, lease):
    assert trust_deadline(sent_at + later, lease) >= trust_deadline(sent_at, lease)


@pytest.mark.parametrize(
    ("signs", "renewed"),
    [
        (ChildSigns(0, None, False), True),
        (ChildSigns(LEASE - 0.01, None, False), True),
        (ChildSigns(LEASE, None, False), False),
        (ChildSigns(LEASE, 0.0, False), True),
        (ChildSigns(TIMEOUT - 1, TIMEOUT - 1, False), True),
        (ChildSigns(TIMEOUT, TIMEOUT, False), False),
        (ChildSigns(LEASE, 5.0, True), False),
        (ChildSigns(0, 5.0, True), True),  # not silent yet
        (ChildSigns(0, 10 * TIMEOUT, False), True),  # it still polls and saves
    ],
)
def test_a_silent_child_is_renewed_only_while_a_handler_runs_within_its_time(signs, renewed):
    assert should_renew_lease(signs, PATIENCE) is renewed


@pytest.mark.parametrize(
    ("signs", "killed"),
    [
        (ChildSigns(0, None, False), False),
        (ChildSigns(3 * LEASE - 0.01, None, False), False),
        (ChildSigns(3 * LEASE, None, False), True),
        (ChildSigns(3 * LEASE - 0.01, 1.0, True), False),
        (ChildSigns(3 * LEASE, 1.0, True), True),
        (ChildSigns(TIMEOUT - 1, TIMEOUT - 1, False), False),
        (ChildSigns(LEASE, TIMEOUT + DRAIN, False), True),
        (ChildSigns(TIMEOUT, TIMEOUT + DRAIN, False), True),
        (ChildSigns(0, TIMEOUT + DRAIN, False), False),  # slow, but not silent: shown and logged, not killed
    ],
)
def test_a_child_is_killed_when_silent_for_three_leases_without_a_reason(signs, killed):
    assert should_kill(signs, PATIENCE) is killed


@given(st.floats(TIMEOUT, TIMEOUT + DRAIN, exclude_max=True))
def test_a_silent_child_whose_handler_is_over_its_time_has_the_drain_timeout_left(handler):
    assert not should_kill(ChildSigns(handler, handler, False), PATIENCE)


@given(some_signs, some_patience)
def test_no_child_is_killed_while_its_lease_is_renewed(signs, patience):
    assert not (should_renew_lease(signs, patience) and should_kill(signs, patience))


@given(some_signs, some_patience, seconds)
def test_longer_silence_never_brings_trust_back(signs, patience, longer):
    more = replace(signs, silent_for=signs.silent_for + longer)
    assert should_renew_lease(signs, patience) or not should_renew_lease(more, patience)
    assert should_kill(more, patience) or not should_kill(signs, patience)


@given(some_signs, some_patience)
def test_a_stopped_child_is_never_trusted_longer_than_a_running_one(signs, patience):
    stopped, going = replace(signs, is_stopped=True), replace(signs, is_stopped=False)
    assert should_renew_lease(going, patience) or not should_renew_lease(stopped, patience)
    assert should_kill(stopped, patience) or not should_kill(going, patience)


@given(some_patience, st.none() | seconds, st.booleans())
def test_a_child_that_stays_silent_is_killed_in_the_end(patience, handler, stopped):
    limit = 3 * patience.lease + patience.handler_timeout + patience.drain_timeout
    running = None if handler is None else handler + limit
    assert should_kill(ChildSigns(limit, running, stopped), patience)


@pytest.mark.parametrize(
    ("signs", "renewed", "killed"),
    [
        (ChildSigns(0, None, False, idle_for=2 * LEASE - 0.01), True, False),
        (ChildSigns(0, None, False, idle_for=2 * LEASE), False, True),
        (ChildSigns(0, 5.0, False, idle_for=50 * LEASE), True, False),  # its handler runs within its time
        (ChildSigns(0, TIMEOUT, False, idle_for=50 * LEASE), False, False),
        (ChildSigns(0, TIMEOUT + DRAIN, False, idle_for=50 * LEASE), False, True),
        (ChildSigns(0, 5.0, True, idle_for=2 * LEASE), False, True),
        (ChildSigns(0, None, False, has_read=False), False, False),  # not connected yet: it gets nothing, and has time
    ],
)
def test_a_child_that_neither_reads_nor_saves_for_two_leases_is_killed_unless_a_handler_runs(signs, renewed, killed):
    assert (should_renew_lease(signs, PATIENCE), should_kill(signs, PATIENCE)) == (renewed, killed)


@given(st.floats(0.5, 3600))
def test_an_idle_child_starts_no_handler_before_its_supervisor_loses_patience(lease):
    assert lease < idle_limit(lease) < IDLE_LEASES * lease


def test_a_supervisor_is_steady_since_it_reached_the_database_without_a_break():
    steadiness = HeartbeatStreak(LEASE)
    assert steadiness.measure_length(100.0) == 0.0, "it never did"
    for at in (100.0, 102.0, 104.0):
        steadiness.note_look(at, reached=True)
    assert steadiness.measure_length(105.0) == 5.0
    assert steadiness.measure_length(110.0) == 0.0, "the supervisor itself was away"
    steadiness.note_look(110.0, reached=True)
    assert steadiness.measure_length(111.0) == 1.0, "and then it begins anew"
    steadiness.note_look(112.0, reached=False)
    assert steadiness.measure_length(112.5) == 0.0, "the database was away"
    steadiness.note_look(113.0, reached=True)
    assert steadiness.measure_length(114.0) == 1.0
