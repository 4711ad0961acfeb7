"""Lengths of time in seconds, from the forms in which people write them."""

import re
from datetime import UTC, datetime, timedelta
from math import isfinite

UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3_600.0, "d": 86_400.0}

_TEXT = re.compile(r"\s*((?:\d+(?:\.\d*)?|\.\d+)(?:e[+-]?\d+)?)\s*([a-z]*)\s*", re.IGNORECASE)


def seconds(value: object) -> float:
    """Convert a duration such as 5, "250ms", "7d" or a timedelta into seconds. Raise ValueError for anything else."""
    # A text such as "1.5 s" has a number and a unit. The seconds are finite and >= 0. The error has the accepted forms.
    if isinstance(value, timedelta):
        length = value.total_seconds()
    elif isinstance(value, str):
        match = _TEXT.fullmatch(value)
        unit = UNITS.get(match[2].lower() or "s") if match else None
        length = float(match[1]) * unit if match and unit else float("nan")
    elif isinstance(value, int | float) and not isinstance(value, bool):
        length = float(value) if abs(value) < 1e300 else float("inf")
    else:
        length = float("nan")
    if not (isfinite(length) and length >= 0):
        raise ValueError('give seconds, or a text such as "250ms", "6s", "5m", "1h", "7d"')
    return length


def seconds_until(value: object) -> float:
    """Return the seconds from now until a delay is over or a datetime is reached. Raise ValueError for anything
    else."""
    # A delay is a duration that `seconds` takes. A datetime needs a time zone, and a past datetime gives 0. The seconds
    # are finite and >= 0. The error has the value and the accepted forms.
    if isinstance(value, datetime):
        if value.utcoffset() is None:
            raise ValueError(f"{value.isoformat()} has no time zone: give it one, such as datetime.UTC")
        return max(0.0, (value - datetime.now(UTC)).total_seconds())
    try:
        return seconds(value)
    except ValueError as error:
        raise ValueError(f"{value!r} is no delay: {error}, a timedelta, or a datetime with a time zone") from None


def format_duration(length: float) -> str:
    """Convert seconds into the shortest readable duration, such as "40ms" or "7d"."""
    # `seconds` reads the text as the same duration.
    for unit in ("d", "h", "m", "s"):
        if length and length % UNITS[unit] == 0:
            return f"{length / UNITS[unit]:.0f}{unit}"
    milliseconds = round(length * 1_000, 6)
    return f"{milliseconds:.10g}ms" if 0 < length < 1 else f"{length!r}s" if length else "0s"
