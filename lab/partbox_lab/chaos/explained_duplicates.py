"""Excuses the repeats that a fault explains, and nothing else.

At least once means: an owner that is torn away from its work leaves some of it finished and not saved, and the next
owner does that again. So a repeat is excused if a fault hit *that owner* (its process, its connections, its
lease, or the database) between the first delivery and the repeat, and if the first delivery was young enough to be
still unsaved then: the seconds in which nobody could save do not count. Everything else is a violation.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from partbox_lab.chaos.journal import HandlerCall
from partbox_lab.chaos.oracle import HistoryVerdict, LoggedEvent, judge, repeats

UNEXPLAINED: Final = "unexplained"
CRASH: Final = "database crash"
MEMORY: Final = 15.0
"""Seconds for which finished work may be unsaved: behind a hanging handler, or during an outage."""

LATE: Final = 30.0
"""Seconds after a crash of the database in which an owner that lives on has read again what the crash took back. The
next owner may be long in coming, where nodes are down or the machine is busy; it repeats an event once for a crash."""

IN_FLIGHT: Final = 1.0
"""Seconds after a thaw in which a handler that was just being called when its process froze may note its start."""


@dataclass(frozen=True, slots=True)
class Disturbance:
    """A fault that hit the owner `pid` (None: all of them) between `at` and `until`, times of `now`."""

    cause: str
    at: float
    until: float
    pid: int | None = None
    frozen: bool = False
    hinders: bool = False  # from saving, and excuses nothing by itself

    def explains(self, first: HandlerCall, second: HandlerCall, hindrances: "Sequence[Disturbance]" = ()) -> bool:
        """True if `second` may repeat `first` because of it, beside these hindrances in the order of their begin."""
        hit = self.pid in (None, first.pid)
        last = first.end if first.end is not None else first.start
        age = self.at - last - _hindered(hindrances, last, self.at)
        return hit and self.at <= second.start and first.start <= self.until and age <= MEMORY

    def holds(self, delivery: HandlerCall) -> bool:
        """True if that handler was running when it began."""
        return self.pid == delivery.pid and delivery.start < self.at and (delivery.end or self.until) > self.at

    def breaks_in(self, first: HandlerCall, second: HandlerCall) -> bool:
        """True if the owner lost `first` to the owner of `second` while its handler could not be stopped."""
        return self.pid == first.pid and self.at <= second.start and first.start <= self.until


@dataclass(slots=True)
class Judgement:
    """The remaining verdict, and the repeats by their cause; `unexplained` ones are not excused."""

    verdict: HistoryVerdict
    repeats: Counter[str]
    unexplained: list[tuple[HandlerCall, HandlerCall]] = field(default_factory=list)
    in_flight: int = 0


def explain(
    published: Sequence[LoggedEvent],
    deliveries: Sequence[HandlerCall],
    disturbances: Sequence[Disturbance],
    concurrency: int,
) -> Judgement:
    """Judge the history, and remove from the verdict everything that the disturbances explain."""
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
    # A crash of the database may take back saves, and then an owner repeats a suffix under its own epoch.
    verdict.backwards = [one for one in verdict.backwards if causes.get(id(one)) != CRASH and id(one) not in caught]
    unexplained = [(first, second) for first, second in pairs if causes[id(second)] == UNEXPLAINED]
    return Judgement(verdict, Counter(causes.values()), unexplained, len(caught))


def _in_flight(
    stale: Iterable[HandlerCall],
    history: Sequence[HandlerCall],
    disturbances: Iterable[Disturbance],
    concurrency: int,
) -> set[int]:
    """The stale starts that were under way when their process froze: after the last check of the clock, before the
    first line of the handler. In a freeze there is at most one for each of `concurrency` that was in no handler."""
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
    """The seconds of a time in which something hindered."""
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
    if id(second) in caught:
        return "in flight when frozen"
    same_life = (first.pid, first.epoch) == (second.pid, second.epoch)
    explaining = [each for each in disturbances if each.explains(first, second, hindrances)]
    for each in sorted(explaining, key=lambda each: (each.pid is None, each.at)):
        if not same_life or (each.cause == CRASH and second.start <= each.until + LATE):
            return each.cause
    return UNEXPLAINED
