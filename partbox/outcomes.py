"""Outcomes of a handler: nothing or `Done`, `RetryAfter(delay)`, `Dead(reason)`; of `on_error` also `Ignore`."""

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True)
class Done:
    """The event is handled. Returning nothing means the same."""


@dataclass(frozen=True, slots=True, init=False)
class RetryAfter:
    """Not now: hand the event over again after `delay` (seconds or timedelta, >= 0). Counts no attempt."""

    delay: float

    def __init__(self, delay: float | timedelta) -> None:
        seconds = float(delay.total_seconds() if isinstance(delay, timedelta) else delay)
        if not 0 <= seconds < float("inf"):
            raise ValueError(f"delay must be a finite number of seconds >= 0, not {delay!r}")
        object.__setattr__(self, "delay", seconds)


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
