"""Arithmetic over what was measured; no clock, no database."""

from collections.abc import Mapping, Sequence
from statistics import median

Counts = Mapping[int, Sequence[tuple[int, int]]]
"""By process its reports in their order: (monotonic time in ns, events handled so far)."""


def drain_rate(counts: Counts, events: int, began: int, ended: int) -> float:
    """Events a second from when all processes were handling until `ended`, in ns.

    Starting is left out, as processes need not start together. Where most was handled by then, the time counts from
    `began` instead.
    """
    firsts = [next(time for time, handled in reports if handled) for reports in counts.values() if reports]
    if not firsts:
        raise ValueError("nothing was handled")
    start = max(firsts)
    before = sum(max((handled for time, handled in reports if time <= start), default=0) for reports in counts.values())
    if before > events / 2:
        start, before = began, 0
    return (events - before) / (ended - start) * 1e9


def disorder(keys: Mapping[int, str], seen: Mapping[int, int]) -> float:
    """Per cent of the events (by number, in the order of their commits) handled after a later one of their key."""
    earliest: dict[str, int] = {}
    wrong = 0
    for number in sorted(keys, reverse=True):
        key, at = keys[number], seen[number]
        wrong += at > earliest.get(key, at)
        earliest[key] = min(at, earliest.get(key, at))
    return 100 * wrong / len(keys)


def middle(values: Sequence[float | None]) -> float | None:
    """The median of what was measured; None if nothing was."""
    known = [each for each in values if each is not None]
    return median(known) if known else None
