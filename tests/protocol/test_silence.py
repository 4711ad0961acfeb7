"""Leases that are over, as an onlooker sees them."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from partbox.protocol.lease import Heartbeat, SilenceWatch

LEASE = 6.0
WHO = UUID(int=1)
THEN = datetime(2026, 1, 1, tzinfo=UTC)


def beat(number: int = 0, left: float = -1.0, who: UUID = WHO) -> Heartbeat:
    return Heartbeat(who, THEN + timedelta(seconds=number), left, LEASE)


def test_a_lease_is_over_after_a_full_one_without_a_new_heartbeat():
    silence = SilenceWatch()
    seen = [(now, silence.find_expired([beat()], now)) for now in (0, 2, 4, 5.9, 6, 7)]
    assert [now for now, expired in seen if expired] == [6, 7]


def test_a_new_heartbeat_begins_the_wait_anew():
    silence = SilenceWatch()
    seen = [
        silence.find_expired([beat(number)], now) for now, number in ((0, 0), (3, 0), (5, 1), (7, 1), (9, 1), (10.9, 1))
    ]
    assert seen == [[]] * 6
    assert silence.find_expired([beat(1)], 11) == [WHO]


def test_a_lease_is_not_over_while_the_database_says_that_it_is_not():
    silence = SilenceWatch()
    assert [silence.find_expired([beat(left=0.1)], now) for now in range(0, 20, 2)] == [[]] * 10


def test_a_gap_in_looking_begins_the_wait_anew():
    """The database was away, or this process stood still: others could not beat, or were not seen to."""
    silence = SilenceWatch()
    assert [silence.find_expired([beat()], now) for now in (0, 2, 5.1, 7, 9, 11)] == [[]] * 6
    assert silence.find_expired([beat()], 11.1) == [WHO]


def test_instances_are_judged_each_by_itself():
    silence, other = SilenceWatch(), UUID(int=2)
    silence.find_expired([beat()], 0)
    silence.find_expired([beat(), beat(who=other)], 3)
    assert silence.find_expired([beat(), beat(who=other)], 6) == [WHO]
    assert silence.find_expired([beat(who=other)], 9) == [other]


@given(st.lists(st.tuples(st.floats(0.01, 20), st.integers(0, 3), st.floats(-9, 9)), min_size=1, max_size=60))
def test_no_lease_is_over_unless_the_same_heartbeat_was_seen_for_its_length_without_a_gap(looks):
    silence, now, history = SilenceWatch(), 0.0, []
    for step, number, left in looks:
        now += step
        history.append((now, number))
        if silence.find_expired([beat(number, left)], now):
            assert left <= 0
            run = [history[-1][0]]
            for (at, seen), (later, _) in zip(reversed(history[:-1]), reversed(history), strict=False):
                if seen != number or later - at > LEASE / 2:
                    break
                run.append(at)
            assert run[0] - run[-1] >= LEASE
