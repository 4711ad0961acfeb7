"""The pauses in what was done again and again, and the part of them that the machine has to answer for. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

LIMIT: Final = 50.0  # milliseconds
MILLION: Final = 1_000_000  # nanoseconds in a millisecond


class Span(NamedTuple):
    """From when to when something took, in ns of the monotonic clock."""

    began: int
    ended: int

    @property
    def ms(self) -> float:
        return (self.ended - self.began) / MILLION


class Distribution(NamedTuple):
    """Milliseconds: quantiles, the longest, and the number of those above the limit."""

    number: int
    p50: float
    p99: float
    p999: float
    longest: float
    above: int

    def __str__(self) -> str:
        return f"{self.p50:.1f} / {self.p99:.1f} / {self.p999:.1f} / {self.longest:.1f}"


def distribution(milliseconds: Iterable[float]) -> Distribution:
    """Of at least one value; a quantile is a value that was seen, the next above it."""
    found = sorted(milliseconds)
    p50, p99, p999 = (found[min(len(found) - 1, int(share * len(found)))] for share in (0.5, 0.99, 0.999))
    return Distribution(len(found), p50, p99, p999, found[-1], sum(each > LIMIT for each in found))


def gaps(moments: Iterable[int]) -> list[Span]:
    """The time between each moment (ns) and the next."""
    found = sorted(moments)
    return [Span(one, other) for one, other in pairwise(found)]


def beyond(spans: Iterable[Span], controls: Sequence[Span]) -> float:
    """The longest of these pauses (ms), each less the longest that a control had at the same time; at least 0.

    A control does the same work beside, where nothing is changed: a pause that it has too is the machine's.
    """
    ours = (each.ms - max((other.ms for other in beside), default=0.0) for each, beside in _beside(spans, controls))
    return max(0.0, max(ours, default=0.0))


def _beside(spans: Iterable[Span], controls: Sequence[Span]) -> Iterator[tuple[Span, list[Span]]]:
    """Each span with the controls that ran at some time of it."""
    ahead, running = iter(sorted(controls)), list[Span]()
    following = next(ahead, None)
    for each in sorted(spans):
        while following is not None and following.began < each.ended:
            running.append(following)
            following = next(ahead, None)
        running = [other for other in running if other.ended > each.began]
        yield each, [other for other in running if other.began < each.ended]
