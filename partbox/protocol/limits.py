"""Limits of a handler: how many calls may start in a time and how many may run at once, in the whole cluster."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final

# How a limit or a circuit divides the events of a handler: by "tenant_id", "aggregate_id", "event_type",
# "aggregate_type", a header, or a function of the event.
By = str | Callable[[Any], Any]

FORM: Final = 'write it like "100/s", "6000/m" or "5/h": calls in a second, a minute or an hour'
_UNITS: Final = {"s": 1.0, "m": 60.0, "h": 3_600.0}
_TEXT: Final = re.compile(r"\s*(\d{1,12}(?:\.\d{1,12})?)\s*/\s*([smh])\s*")


class Rate(float):
    """A number of calls per second, printed as people write rates, such as "100/s" or "5/h"."""

    def __str__(self) -> str:
        unit = next((unit for unit, long in _UNITS.items() if self >= 1 / long), "h")
        return f"{round(self * _UNITS[unit], 9):.12g}/{unit}"


@dataclass(frozen=True, slots=True)
class Limit:
    """The rate limit and the concurrency limit of one handler in the whole cluster."""

    # `rate` is the number of calls that may start per second, and `at_once` the number that may run at the same time.
    # None means no limit. With `by`, both hold for each value by which events are divided, for example each tenant.

    rate: Rate | None = None
    at_once: int | None = None
    by: By | None = None

    @property
    def is_limited(self) -> bool:
        """True if the limit has a rate or a number of simultaneous calls, and so restricts the handler."""
        return self.rate is not None or self.at_once is not None


def rate_of(text: object) -> Rate:
    """Parse a rate such as "100/s", "6000/m" or "5/h", or return a given Rate. Raise ValueError for anything else."""
    # The error names the accepted forms.
    if isinstance(text, Rate):
        return text
    match = _TEXT.fullmatch(text) if isinstance(text, str) else None
    rate = Rate(float(match[1]) / _UNITS[match[2]]) if match else Rate(0.0)
    if rate > 0 and isfinite(rate):
        return rate
    raise ValueError(FORM)
