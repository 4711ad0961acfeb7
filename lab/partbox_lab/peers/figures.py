"""Arithmetic over measurements. Pure code: no clock, no database."""

from collections.abc import Mapping, Sequence
from statistics import median

# The reports of each process in order, by process id: (monotonic nanoseconds, events handled so far).
Counts = Mapping[int, Sequence[tuple[int, int]]]


def drain_rate(counts: Counts, events: int, began: int, ended: int) -> float:
    """Return the events per second from the moment when all processes were handling until `ended`. Times are in
    nanoseconds. The start is left out because processes need not start together. If more than half was handled by then,
    the time counts from `began`."""
    firsts = [next(time for time, handled in reports if handled) for reports in counts.values() if reports]
    if not firsts:
        raise ValueError("nothing was handled")
    start = max(firsts)
    before = sum(max((handled for time, handled in reports if time <= start), default=0) for reports in counts.values())
    if before > events / 2:
        start, before = began, 0
    return (events - before) / (ended - start) * 1e9


def disorder(keys: Mapping[int, str], seen: Mapping[int, int]) -> float:
    """Return the percentage of events that were handled after a later event of their key. Numbers follow the order of
    commits."""
    earliest: dict[str, int] = {}
    wrong = 0
    for number in sorted(keys, reverse=True):
        key, at = keys[number], seen[number]
        wrong += at > earliest.get(key, at)
        earliest[key] = min(at, earliest.get(key, at))
    return 100 * wrong / len(keys)


def middle(values: Sequence[float | None]) -> float | None:
    """Return the median of the known values, or None if there are none."""
    known = [each for each in values if each is not None]
    return median(known) if known else None
