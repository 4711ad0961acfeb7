"""Excuse the repeats that a disturbance explains, and nothing else.

An owner torn away from its work leaves finished events unsaved, and the next owner repeats them. A repeat is excused if
a fault hit the first owner (its process, connections, lease, or database) between both calls, and if the first call was
young enough to be unsaved. Seconds in which nobody could save do not count.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from partbox_lab.chaos.journal import HandlerCall
from partbox_lab.chaos.oracle import HistoryVerdict, LoggedEvent, judge, repeats

UNEXPLAINED: Final = "unexplained"
CRASH: Final = "database crash"
# Seconds for which finished work may be unsaved: behind a hanging handler, or during an outage.
MEMORY: Final = 15.0

# Seconds after a database crash in which an owner that lives on has read again everything that was taken back. A next
# owner may take longer where nodes are down or the machine is busy, but repeats an event once per crash.
LATE: Final = 30.0

# Seconds after a thaw in which a handler may note its start that was being called when its process froze.
IN_FLIGHT: Final = 1.0


@dataclass(frozen=True, slots=True)
class Disturbance:
    """A fault and its time. Times are seconds of the boot clock, as in the journal."""

    cause: str
    at: float
    until: float
    pid: int | None = None  # None: all processes
    frozen: bool = False  # the process was stopped and continued
    hinders: bool = False  # nothing could be saved meanwhile; it excuses nothing itself

    def explains(self, first: HandlerCall, second: HandlerCall, hindrances: "Sequence[Disturbance]" = ()) -> bool:
        """Return True if `second` may repeat `first` because of the disturbance. Hindrances are sorted by begin."""
        hit = self.pid in (None, first.pid)
        last = first.end if first.end is not None else first.start
        age = self.at - last - _hindered(hindrances, last, self.at)
        return hit and self.at <= second.start and first.start <= self.until and age <= MEMORY

    def holds(self, delivery: HandlerCall) -> bool:
        """Return True if the call was running in this process when the disturbance began."""
        return self.pid == delivery.pid and delivery.start < self.at and (delivery.end or self.until) > self.at

    def breaks_in(self, first: HandlerCall, second: HandlerCall) -> bool:
        """Return True if the first owner lost its partition while its handler could not be stopped."""
        return self.pid == first.pid and self.at <= second.start and first.start <= self.until


@dataclass(slots=True)
class Judgement:
    """A verdict, the causes of repeats with their counts, and the repeats without a cause."""

    verdict: HistoryVerdict
    repeats: Counter[str]
    unexplained: list[tuple[HandlerCall, HandlerCall]] = field(default_factory=list)
    in_flight: int = 0  # stale calls that a frozen process had begun already


def explain(
    published: Sequence[LoggedEvent],
    deliveries: Sequence[HandlerCall],
    disturbances: Sequence[Disturbance],
    concurrency: int,
) -> Judgement:
    """Judge a history and drop every finding that a disturbance explains."""
    hindrances = sorted((each for each in disturbances if each.hinders), key=lambda each: each.at)
    disturbances = [each for each in disturbances if not each.hinders]
    history = sorted(deliveries, key=lambda delivery: delivery.start)
    verdict = judge(published, history)
    caught = _in_flight(verdict.stale, history, disturbances, concurrency)
    verdict.stale = [one for one in verdict.stale if id(one) not in caught]
    verdict.overlaps = [
        (first, second)
        for first, second in verdict.overlaps
        if id(second) not in caught and not any(each.breaks_in(first, second) for each in disturbances)
    ]
    known = {one.event for one in published}
    pairs = [(first, second) for first, second in repeats(history) if first.event in known]
    causes = {id(second): _cause(first, second, disturbances, hindrances, caught) for first, second in pairs}
    # A crash of the database may take saves back, and then an owner repeats a suffix under its own epoch.
    verdict.backwards = [one for one in verdict.backwards if causes.get(id(one)) != CRASH and id(one) not in caught]
    unexplained = [(first, second) for first, second in pairs if causes[id(second)] == UNEXPLAINED]
    return Judgement(verdict, Counter(causes.values()), unexplained, len(caught))


def _in_flight(
    stale: Iterable[HandlerCall],
    history: Sequence[HandlerCall],
    disturbances: Iterable[Disturbance],
    concurrency: int,
) -> set[int]:
    """Return `id()` of stale calls begun before a freeze: after the last check of the clock, before the handler's first
    line. A freeze has at most one for each of `concurrency` that ran no handler."""
    found: set[int] = set()
    freezes = [each for each in disturbances if each.frozen]
    left = {freeze: concurrency - sum(freeze.holds(each) for each in history) for freeze in freezes}
    for one in stale:
        for freeze in freezes:
            if freeze.pid == one.pid and freeze.at <= one.start <= freeze.until + IN_FLIGHT and left[freeze] > 0:
                left[freeze] -= 1
                found.add(id(one))
                break
    return found


def _hindered(hindrances: Iterable[Disturbance], since: float, until: float) -> float:
    seconds = 0.0
    for each in hindrances:
        begin, end = max(each.at, since), min(each.until, until)
        seconds += max(0.0, end - begin)
        since = max(since, end)
    return seconds


def _cause(
    first: HandlerCall,
    second: HandlerCall,
    disturbances: Iterable[Disturbance],
    hindrances: Sequence[Disturbance],
    caught: set[int],
) -> str:
    """Return the cause of a repeat. Within one epoch of a process, only a database crash explains a repeat."""
    if id(second) in caught:
        return "in flight when frozen"
    same_life = (first.pid, first.epoch) == (second.pid, second.epoch)
    explaining = [each for each in disturbances if each.explains(first, second, hindrances)]
    for each in sorted(explaining, key=lambda each: (each.pid is None, each.at)):
        if not same_life or (each.cause == CRASH and second.start <= each.until + LATE):
            return each.cause
    return UNEXPLAINED
