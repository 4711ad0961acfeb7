"""Retry policies, delays and reasons of the application's own, of every kind that they should not be."""

from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partbox import Dead, RetryAfter, RetryAfterError
from partbox.protocol.retry import Jittered, delay_of
from partbox.protocol.verdict import FALLBACK_DELAY, MAX_DELAY, Verdict, judge_result

LIMIT = 4_000


class Hostile:
    """Raises at whatever is asked of it."""

    def _no(self, *_: object) -> Any:
        raise SystemExit("hostile")

    __bool__ = __eq__ = __lt__ = __gt__ = __le__ = __ge__ = __repr__ = __str__ = __float__ = __len__ = _no
    __hash__ = object.__hash__


class Worse(float):
    """A number until somebody compares it."""

    def _no(self, *_: object) -> Any:
        raise ZeroDivisionError("not comparable")

    __lt__ = __gt__ = __le__ = __ge__ = __eq__ = __float__ = _no
    __hash__ = float.__hash__


@dataclass
class Policy:
    retry: Any
    delay: Any

    def should_retry(self, error: BaseException) -> Any:
        return self.retry() if callable(self.retry) else self.retry

    def next_delay(self, attempt: int) -> Any:
        return self.delay


@dataclass
class Handler:
    retry: Any
    max_attempts: int | None = 10
    on_failure: str = "block"
    on_dead: str = "continue"


WRONG = [None, "soon", "5", b"5", True, False, -1, -0.5, float("nan"), Decimal("nan"), 1j, [], Hostile(), Worse(1),
         timedelta(seconds=-1), object, Exception("x"), -(10**400)]  # fmt: skip
RIGHT = [(timedelta(minutes=2), 120.0), (0, 0.0), (2, 2.0), (2.5, 2.5), (Decimal("1.5"), 1.5), (Fraction(1, 2), 0.5),
         (float("inf"), MAX_DELAY), (10**400, MAX_DELAY), (timedelta.max, MAX_DELAY), (timedelta(0), 0.0)]  # fmt: skip


def told(found: Verdict | None) -> tuple[Any, ...]:
    assert found is not None
    return found.state, found.attempts, found.delay


@pytest.mark.parametrize(("delay", "seconds"), RIGHT, ids=[repr(each)[:20] for each, _ in RIGHT])
def test_a_delay_is_a_number_of_seconds_or_a_timedelta(delay, seconds):
    for policy in (Policy(True, delay), Jittered(Policy(True, delay), factor=(1.0, 1.0))):
        found = judge_result(Handler(policy), 0, ValueError("x"), LIMIT)
        assert told(found) == ("retrying", 1, seconds)
        assert type(found.delay) is float
        assert found.policy_error is None


@pytest.mark.parametrize("delay", WRONG, ids=[f"{type(each).__name__}-{at}" for at, each in enumerate(WRONG)])
def test_any_other_delay_is_an_error_of_the_policy_and_the_fallback_delay_applies(delay):
    for policy in (Policy(True, delay), Jittered(Policy(True, delay)), Jittered(Policy(True, delay), add=1.0)):
        found = judge_result(Handler(policy), 0, ValueError("x"), LIMIT)
        assert told(found) == ("retrying", 1, FALLBACK_DELAY)
        assert found.policy_error is not None
        assert "and its retry policy" in found.error
        assert judge_result(Handler(policy, max_attempts=1), 0, ValueError("x"), LIMIT).state == "dead"


def test_a_policy_answer_that_is_neither_true_nor_false_is_an_error_of_the_policy():
    for retry in (Hostile(), Hostile):
        found = judge_result(
            Handler(Policy(lambda each=retry: each() if isinstance(each, type) else each, 1)), 0, OSError(), LIMIT
        )
        assert told(found) == ("retrying", 1, FALLBACK_DELAY)
        assert isinstance(found.policy_error, SystemExit)


def test_a_policy_that_wants_no_other_attempt_is_not_asked_for_a_delay():
    assert told(judge_result(Handler(Policy(False, Hostile())), 0, OSError(), LIMIT)) == ("dead", 1, None)


class RateLimited(RetryAfterError):
    """Forgets its parent's constructor."""

    def __init__(self, delay: Any = None) -> None:
        if delay is not None:
            self.delay = delay


def test_an_error_that_names_no_delay_leaves_it_to_the_policy():
    assert told(judge_result(Handler(Policy(True, 7)), 0, RateLimited(), LIMIT)) == ("retrying", 1, 7.0)
    assert told(judge_result(Handler(Policy(True, 7)), 0, RateLimited(timedelta(seconds=3)), LIMIT)) == (
        "retrying",
        1,
        3.0,
    )
    for delay in WRONG[1:]:
        found = judge_result(Handler(Policy(True, 7)), 0, RateLimited(delay), LIMIT)
        assert told(found) == ("retrying", 1, 7.0)
        assert "and its delay" in found.error


@pytest.mark.parametrize("delay", WRONG, ids=[f"{type(each).__name__}-{at}" for at, each in enumerate(WRONG)])
def test_a_retry_after_that_was_tampered_with_is_a_failure_or_leaves_it_to_the_policy(delay):
    outcome = RetryAfter(1)
    object.__setattr__(outcome, "delay", delay)
    assert told(judge_result(Handler(Policy(True, 7)), 0, outcome, LIMIT)) == ("retrying", 1, 7.0)
    assert told(judge_result(Handler(Policy(True, 7)), 0, OSError(), LIMIT, outcome)) == ("retrying", 1, 7.0)


def test_a_dead_outcome_whose_reason_has_no_text_is_still_dead():
    found = judge_result(Handler(Policy(True, 7)), 0, Dead(Hostile()), LIMIT)
    assert told(found) == ("dead", 1, None)
    assert "no text, as str() raised" in found.error
    assert told(judge_result(Handler(Policy(True, 7)), 0, OSError(), LIMIT, Dead(Hostile()))) == ("dead", 1, None)


anything = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.timedeltas()
    | st.complex_numbers() | st.decimals() | st.fractions() | st.sampled_from(WRONG)
)  # fmt: skip


@given(anything, anything, st.integers(0, 20))
def test_every_verdict_can_be_stored(retry, delay, attempts):
    found = judge_result(Handler(Policy(retry, delay)), attempts, ValueError("x"), LIMIT)
    assert found.state in ("retrying", "dead")
    assert found.delay is None or (type(found.delay) is float and 0 <= found.delay <= MAX_DELAY)
    assert len(found.error) <= LIMIT


@given(anything)
def test_a_delay_of_any_value_is_either_refused_or_not_negative(value):
    with suppress(TypeError, ValueError, ArithmeticError):
        assert delay_of(value) >= 0
