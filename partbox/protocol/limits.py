"""Limits of a handler's calls: how many may start in a time, and how many may run at once, in the whole cluster.

A rate is written as calls and a time: "100/s", "6000/m", "5/h".
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final

By = str | Callable[[Any], Any]
"""A division of a handler's events: "tenant_id", "event_type", "aggregate_type", a header, or a function of one."""

FORM: Final = 'write it like "100/s", "6000/m" or "5/h": calls in a second, a minute or an hour'
_UNITS: Final = {"s": 1.0, "m": 60.0, "h": 3_600.0}
_TEXT: Final = re.compile(r"\s*(\d{1,12}(?:\.\d{1,12})?)\s*/\s*([smh])\s*")


class Rate(float):
    """Starts per second, which print as people write them."""

    def __str__(self) -> str:
        unit = next((unit for unit, long in _UNITS.items() if self >= 1 / long), "h")
        return f"{round(self * _UNITS[unit], 9):.12g}/{unit}"


@dataclass(frozen=True, slots=True)
class Limit:
    """The bounds of one handler, for the whole cluster; None is no bound.

    `rate`: calls that may start in a second. `at_once`: calls that may run at the same time. With `by` both hold for
    each value of that.
    """

    rate: Rate | None = None
    at_once: int | None = None
    by: By | None = None

    @property
    def bounds(self) -> bool:
        """True if it holds anything back."""
        return self.rate is not None or self.at_once is not None


def rate_of(text: object) -> Rate:
    """The rate that a text says, or a Rate. ValueError, with the forms that are understood, for anything else."""
    if isinstance(text, Rate):
        return text
    match = _TEXT.fullmatch(text) if isinstance(text, str) else None
    rate = Rate(float(match[1]) / _UNITS[match[2]]) if match else Rate(0.0)
    if rate > 0 and isfinite(rate):
        return rate
    raise ValueError(FORM)
