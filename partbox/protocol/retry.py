"""Retry policies: whether an exception is worth another attempt, and after which delay.

A policy is any object with `should_retry(error) -> bool` and `next_delay(attempt) -> float | timedelta`. `attempt` is
the number of the attempt that failed, from 1, and a float is a number of seconds. In settings, a policy is a text:

    exponential[:base[:cap[:multiplier]]]    fixed:delay        delays in seconds, or "250ms", "5m"
    ... +jitter                              the delay times a random factor from 0.5 to 1.5
    ... +jitter:0.8:1.2                      ... from 0.8 to 1.2
    ... +add:0.5                             the delay and up to 0.5 s more"""

import random
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from math import inf, isfinite
from numbers import Real
from typing import Any, Protocol, runtime_checkable

from partbox.duration import seconds

Errors = tuple[type[BaseException], ...]

DEFAULT_FACTOR = (0.5, 1.5)
GRAMMAR = 'write it like "exponential:0.2:60:2+jitter" (base, cap, multiplier) or "fixed:5"'


@runtime_checkable
class RetryPolicy(Protocol):
    """A policy that decides whether and when a failed event is tried again.

    Its methods must not block and must be pure except for jitter. They are called by the thread that ran the handler,
    or by the event loop."""

    def should_retry(self, error: BaseException) -> bool:
        """Return True if another attempt may succeed after this error. False makes the event dead at once."""

    def next_delay(self, attempt: int) -> float | timedelta:
        """Return the delay (seconds or timedelta, >= 0) after the failed attempt number `attempt`, counted from 1."""


def delay_of(value: object) -> float:
    """Convert a given delay into seconds, >= 0. Raise TypeError or ValueError if it is not a delay."""
    # An application's code gave the delay. The seconds are possibly infinite. The methods of a hostile number may raise
    # any exception.
    if isinstance(value, timedelta):
        value = value / timedelta(seconds=1)
    if isinstance(value, bool) or not isinstance(value, Real | Decimal):
        raise TypeError(f"a delay must be seconds or a timedelta, not {type(value).__name__}")
    number: Any = value
    try:
        seconds = float(number)
    except OverflowError:
        seconds = inf if number > 0 else -inf
    if not seconds >= 0:
        raise ValueError(f"a delay must be 0 or more seconds, not {seconds}")
    return seconds


@dataclass(frozen=True, slots=True)
class Exponential:
    """A retry policy with growing delays: min(cap, base * multiplier ** (attempt - 1)) seconds."""

    # `include` names the only exceptions that are retried. If it is empty, all are. `exclude` names exceptions that are
    # not retried. Subclasses count, and `exclude` takes precedence over `include`.

    base: float = 0.2
    cap: float = 60.0
    multiplier: float = 2.0
    include: Errors = ()
    exclude: Errors = ()

    def __post_init__(self) -> None:
        _require(_is_finite(self.base) and self.base > 0, "base", self.base, "a number of seconds above 0")
        _require(_is_finite(self.cap) and self.cap > 0, "cap", self.cap, "a number of seconds above 0")
        _require(_is_finite(self.multiplier) and self.multiplier >= 1, "multiplier", self.multiplier, "at least 1")
        _check_errors(self.include, self.exclude)

    def should_retry(self, error: BaseException) -> bool:
        return _is_retried(error, self.include, self.exclude)

    def next_delay(self, attempt: int) -> float:
        # Use bounded floats throughout. Python would compute an int to the power of a large int digit by digit.
        exponent = float(min(max(attempt - 1, 0), 1 << 1_000))
        try:
            grown: float = self.base * float(self.multiplier) ** exponent
            return min(float(self.cap), grown)
        except OverflowError:
            return float(self.cap)

    def __str__(self) -> str:
        return f"exponential:{self.base:.12g}:{self.cap:.12g}:{self.multiplier:.12g}"


@dataclass(frozen=True, slots=True)
class Fixed:
    """A retry policy with a constant delay of `delay` seconds."""

    # `include` names the only exceptions that are retried. If it is empty, all are. `exclude` names exceptions that are
    # not retried. Subclasses count, and `exclude` takes precedence over `include`.

    delay: float
    include: Errors = ()
    exclude: Errors = ()

    def __post_init__(self) -> None:
        _require(_is_finite(self.delay) and self.delay >= 0, "delay", self.delay, "a number of seconds from 0")
        _check_errors(self.include, self.exclude)

    def should_retry(self, error: BaseException) -> bool:
        return _is_retried(error, self.include, self.exclude)

    def next_delay(self, attempt: int) -> float:
        return float(self.delay)

    def __str__(self) -> str:
        return f"fixed:{self.delay:.12g}"


@dataclass(frozen=True, slots=True)
class Jittered:
    """A retry policy that randomizes the delays of another policy."""

    # The capped delay is multiplied by a random factor, or up to `add` seconds are added to it.

    policy: RetryPolicy
    factor: tuple[float, float] | None = None
    add: float | None = None

    def __post_init__(self) -> None:
        _require(isinstance(self.policy, RetryPolicy), "policy", self.policy, "a retry policy")
        _require(self.factor is None or self.add is None, "add", self.add, "left out when factor is given")
        if self.add is not None:
            _require(_is_finite(self.add) and self.add >= 0, "add", self.add, "a number of seconds from 0")
        elif self.factor is None:
            object.__setattr__(self, "factor", DEFAULT_FACTOR)
        else:
            low, high = self.factor
            _require(0 <= low <= high and _is_finite(high), "factor", self.factor, "(low, high) with 0 <= low <= high")

    def should_retry(self, error: BaseException) -> bool:
        return self.policy.should_retry(error)

    def next_delay(self, attempt: int) -> float:
        delay = delay_of(self.policy.next_delay(attempt))
        if self.factor is None:
            return delay + random.uniform(0.0, self.add or 0.0)
        return delay * random.uniform(*self.factor)

    def __str__(self) -> str:
        if self.factor is None:
            return f"{self.policy}+add:{self.add:.12g}"
        low, high = self.factor
        return f"{self.policy}+jitter" + ("" if self.factor == DEFAULT_FACTOR else f":{low:.12g}:{high:.12g}")


def policy_of(value: object) -> RetryPolicy:
    """Parse a retry policy such as "exponential:0.2:60:2+jitter", or return a given policy. Raise ValueError for
    anything else."""
    if isinstance(value, RetryPolicy) and not isinstance(value, type):
        return value
    if not isinstance(value, str):
        raise ValueError(f"{GRAMMAR}, or give an object with should_retry(error) and next_delay(attempt)")
    timing, _, jitter = value.replace(" ", "").lower().partition("+")
    policy = _parse_timing(*timing.split(":"))
    return _parse_jitter(policy, *jitter.split(":")) if jitter else policy


def _parse_timing(kind: str, *numbers: str) -> RetryPolicy:
    match kind, numbers:
        case "fixed", (delay,):
            return Fixed(seconds(delay))
        case "exponential", ():
            return Exponential()
        case "exponential", (base,):
            return Exponential(seconds(base))
        case "exponential", (base, cap):
            return Exponential(seconds(base), seconds(cap))
        case "exponential", (base, cap, multiplier):
            return Exponential(seconds(base), seconds(cap), float(multiplier))
        case _:
            raise ValueError(GRAMMAR)


def _parse_jitter(policy: RetryPolicy, kind: str, *numbers: str) -> RetryPolicy:
    match kind, numbers:
        case "jitter", ():
            return Jittered(policy)
        case "jitter", (low, high):
            return Jittered(policy, factor=(float(low), float(high)))
        case "add", (most,):
            return Jittered(policy, add=seconds(most))
        case _:
            raise ValueError(GRAMMAR)


def _is_retried(error: BaseException, include: Errors, exclude: Errors) -> bool:
    return not isinstance(error, exclude) and (not include or isinstance(error, include))


def _is_finite(number: object) -> bool:
    return isinstance(number, int | float) and not isinstance(number, bool) and isfinite(number)


def _check_errors(include: Errors, exclude: Errors) -> None:
    for name, errors in (("include", include), ("exclude", exclude)):
        good = isinstance(errors, tuple) and all(isinstance(e, type) and issubclass(e, BaseException) for e in errors)
        _require(good, name, errors, "a tuple of exception classes")


def _require(holds: bool, name: str, value: object, must: str) -> None:
    if not holds:
        raise ValueError(f"{name} must be {must}, not {value!r}")
