"""Outcomes of a handler: None or `Done`, `RetryAfter(delay)`, `Dead(reason)`, and for `on_error` also `Ignore`."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from partbox.duration import seconds_until


@dataclass(frozen=True, slots=True)
class Done:
    """A handler's result: the event is handled. Returning None means the same."""


@dataclass(frozen=True, slots=True, init=False)
class RetryAfter:
    """A handler's result: deliver the event again after `delay`, without counting an attempt.

    `delay` is in seconds, a timedelta, a text such as "5m", or a datetime with a time zone, by the clock of the
    worker's machine. The attribute holds seconds. Raise ValueError for anything else."""

    delay: float

    def __init__(self, delay: float | timedelta | str | datetime) -> None:
        object.__setattr__(self, "delay", seconds_until(delay))


@dataclass(frozen=True, slots=True)
class Dead:
    """A handler's result: never deliver the event again, and store it as a dead letter with this reason."""

    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Ignore:
    """A return value of `on_error` that ignores the handler's error: log a warning, and count the event as done."""


Outcome = Done | RetryAfter | Dead
# Return values of `on_error(event, error, attempt)`. None leaves the decision to the retry policy.
Advice = Done | Ignore | RetryAfter | Dead | None
