"""Outcomes of a handler: nothing or `Done`, `RetryAfter(delay)`, `Dead(reason)`; of `on_error` also `Ignore`."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from partbox.duration import seconds_until


@dataclass(frozen=True, slots=True)
class Done:
    """The event is handled. Returning nothing means the same."""


@dataclass(frozen=True, slots=True, init=False)
class RetryAfter:
    """Hand the event over again after `delay`; this counts as no attempt.

    Seconds, a timedelta, a text such as "5m", or a datetime with a time zone, by the clock of the worker's machine;
    `delay` then holds the seconds. ValueError for anything else.
    """

    delay: float

    def __init__(self, delay: float | timedelta | str | datetime) -> None:
        object.__setattr__(self, "delay", seconds_until(delay))


@dataclass(frozen=True, slots=True)
class Dead:
    """Never again: the event becomes a dead letter with this reason."""

    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Ignore:
    """From `on_error` only: the error does not matter, the event counts as done. Logged as a warning."""


Outcome = Done | RetryAfter | Dead
Advice = Done | Ignore | RetryAfter | Dead | None
"""What `on_error(event, error, attempt)` may return; None leaves it to the retry policy."""
