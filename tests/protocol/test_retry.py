"""Delays of any attempt; errors worth a retry; policies as text."""

import pickle

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from partbox.duration import format_duration, seconds
from partbox.protocol.retry import Exponential, Fixed, Jittered, RetryPolicy, policy_of

attempts = st.integers(1, 10**6) | st.integers(1, 10**400)
delays = st.floats(0.001, 10**6)
exponentials = st.builds(Exponential, base=delays, cap=delays, multiplier=st.floats(1, 10**6) | st.integers(1, 10**6))


def test_the_usual_policy_doubles_from_a_fifth_of_a_second_to_a_minute():
    delays = [Exponential().next_delay(n) for n in range(1, 12)]
    assert delays == pytest.approx([0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 60, 60])


@given(exponentials, attempts)
def test_a_delay_lies_between_the_smaller_of_base_and_cap_and_the_cap(policy, attempt):
    assert min(policy.base, policy.cap) <= policy.next_delay(attempt) <= policy.cap


@given(exponentials, attempts, attempts)
def test_without_jitter_a_later_attempt_never_waits_less(policy, one, other):
    earlier, later = sorted((one, other))
    assert policy.next_delay(earlier) <= policy.next_delay(later)


@given(st.integers(1, 30), st.floats(0.001, 10), st.integers(1, 4))
def test_below_the_cap_the_delay_is_base_times_the_power(attempt, base, multiplier):
    expected = base * multiplier ** (attempt - 1)
    assume(expected < 10**6)
    assert Exponential(base, 10**6, multiplier).next_delay(attempt) == pytest.approx(expected)


@given(exponentials, attempts, st.floats(0, 2), st.floats(0, 2))
def test_jitter_by_a_factor_stays_within_it_and_is_applied_after_the_cap(policy, attempt, one, other):
    low, high = sorted((one, other))
    plain = policy.next_delay(attempt)
    assert plain * low * 0.999999 <= Jittered(policy, factor=(low, high)).next_delay(attempt) <= plain * high * 1.000001


@given(exponentials, attempts, st.floats(0, 100))
def test_added_jitter_stays_within_what_may_be_added(policy, attempt, add):
    plain = policy.next_delay(attempt)
    assert plain <= Jittered(policy, add=add).next_delay(attempt) <= plain + add


@given(attempts)
def test_a_fixed_delay_is_the_same_for_every_attempt(attempt):
    assert Fixed(5).next_delay(attempt) == 5.0


def test_jitter_differs_from_one_call_to_the_next():
    policy = Jittered(Fixed(10))
    assert len({policy.next_delay(1) for _ in range(50)}) > 1


@pytest.mark.parametrize("shape", [Exponential, lambda **e: Fixed(1, **e), lambda **e: Jittered(Exponential(**e))])
def test_exclude_beats_include_and_subclasses_match(shape):
    policy = shape(include=(OSError,), exclude=(ConnectionError,))
    assert policy.should_retry(OSError())
    assert policy.should_retry(TimeoutError())
    assert not policy.should_retry(ConnectionResetError())
    assert not policy.should_retry(ValueError())
    assert shape().should_retry(ValueError())


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Exponential(base=0),
        lambda: Exponential(cap=float("inf")),
        lambda: Exponential(multiplier=0.5),
        lambda: Exponential(include=[OSError]),
        lambda: Exponential(exclude=(3,)),
        lambda: Fixed(-1),
        lambda: Fixed(float("nan")),
        lambda: Jittered(Fixed(1), factor=(2, 1)),
        lambda: Jittered(Fixed(1), add=-1),
        lambda: Jittered(Fixed(1), factor=(1, 2), add=1),
        lambda: Jittered("fixed:1"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused_where_it_is_made(wrong):
    with pytest.raises(ValueError, match="must be"):
        wrong()


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("exponential", Exponential()),
        ("exponential:1", Exponential(1)),
        ("exponential:200ms:5m", Exponential(0.2, 300)),
        ("exponential:0.2:60:2+jitter", Jittered(Exponential(0.2, 60, 2))),
        ("Fixed: 5", Fixed(5)),
        ("fixed:5+add:500ms", Jittered(Fixed(5), add=0.5)),
        ("fixed:5+jitter:0.8:1.2", Jittered(Fixed(5), factor=(0.8, 1.2))),
    ],
)
def test_a_text_describes_a_policy_and_a_policy_writes_itself(text, policy):
    assert policy_of(text) == policy
    assert policy_of(str(policy)) == policy
    assert pickle.loads(pickle.dumps(policy)) == policy


@pytest.mark.parametrize(
    "text",
    [
        "",
        "fixed",
        "fixed:1:2",
        "linear:3",
        "exponential:1:2:3:4",
        "exponential:1:2:x",
        "fixed:5+wobble",
        "fixed:5+jitter:1",
        "fixed:-5",
        "fixed:5+add",
    ],
)
def test_a_text_that_is_no_policy_is_refused(text):
    with pytest.raises(ValueError, match=r"write it like|give seconds|could not convert"):
        policy_of(text)


def test_any_object_with_the_two_methods_is_a_policy():
    class Never:
        def should_retry(self, error):
            return False

        def next_delay(self, attempt):
            return 0.0

    policy = Never()
    assert isinstance(policy, RetryPolicy)
    assert policy_of(policy) is policy
    with pytest.raises(ValueError, match="should_retry"):
        policy_of(Never)


@given(st.floats(0, 10**9))
def test_a_written_duration_reads_back(length):
    assert seconds(format_duration(length)) == pytest.approx(length, abs=1e-9)


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("250ms", 0.25),
        ("40 ms", 0.04),
        ("7d", 604_800),
        ("1h", 3_600),
        ("1.5 S", 1.5),
        ("5m", 300),
        ("12", 12),
        (".5s", 0.5),
        ("0", 0),
    ],
)
def test_a_duration_reads_as_people_write_it(text, length):
    assert seconds(text) == pytest.approx(length)


@pytest.mark.parametrize("wrong", ["", "soon", "-1s", "1 week", True, None, float("nan"), float("inf"), -1, 10**400])
def test_an_invalid_duration_is_refused(wrong):
    with pytest.raises(ValueError, match="give seconds"):
        seconds(wrong)
