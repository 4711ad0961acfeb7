"""Counts what one thread or task has delivered, until it is told.

What is counted here costs an event a few dozen nanoseconds. No clock is read for it: a handler that ran for longer than
a look at the lease takes to come shows at that look. It is told at the end of a turn, at most every `REPORT_INTERVAL`
seconds, and before its thread waits for something to do: telling costs as much as several events.
"""

import time
from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial

from partbox.events import DeliveredEvent
from partbox.events.record import CREATED_AT, microseconds
from partbox.observe import QUICK, Turn
from partbox.worker.runners.endpoint import Endpoint

REPORT_INTERVAL = 0.02  # seconds


@dataclass(slots=True, eq=False)
class Tally:
    """`oldest` is the first event of all, which whoever walks a lane sets; `last` and `started` the last one that a
    handler got and when (monotonic seconds)."""

    oldest: DeliveredEvent | None = None
    last: tuple[Endpoint, DeliveredEvent] | None = None
    started: float = 0.0
    timed: DeliveredEvent | None = None  # the last one whose time is known
    _newest: DeliveredEvent | None = None
    _quick_counts: defaultdict[Endpoint, int] = field(default_factory=partial(defaultdict, int))
    _timings: defaultdict[Endpoint, list[float]] = field(default_factory=partial(defaultdict, list))
    _failed_seconds: float = 0.0  # seconds that handlers ran without success
    _spent_seconds: float = 0.0  # seconds of the turns before the present one
    _slice_began: float = 0.0
    _report_at: float = 0.0

    def begin_slice(self, began: float) -> None:
        """A turn begins (monotonic seconds)."""
        self._slice_began = began
        if not self._report_at:
            self._report_at = began + REPORT_INTERVAL

    def end_slice(self) -> bool:
        """The turn has ended; whether it is time to tell."""
        now = time.monotonic()
        if self.last is not None and now - self.started < QUICK:
            self._newest, self.last = self.last[1], None
        self.count_last_if_slow()
        self._spent_seconds += now - self._slice_began
        self._slice_began = now
        return now >= self._report_at

    def count_run(self, quick: list[Endpoint], last: tuple[Endpoint, DeliveredEvent], started: float) -> None:
        """A lane was walked: `quick` had an event each that is done, in a time too short to be measured."""
        if quick:
            if quick.count(quick[0]) == len(quick):
                self._quick_counts[quick[0]] += len(quick)
            else:
                for endpoint in quick:
                    self._quick_counts[endpoint] += 1
        self.last, self.started = last, started

    def count_if_slow(self, endpoint: Endpoint, event: DeliveredEvent, started: float) -> None:
        """Time has passed since the last look: it may have been this event's handler, which has ended just now."""
        seconds = time.monotonic() - started
        if seconds >= QUICK and event is not self.timed:
            self.timed = event
            self._quick_counts[endpoint] -= 1
            self._timings[endpoint].append(seconds)

    def count_last_if_slow(self) -> None:
        """Count the time since the last look, as `count_if_slow` does, where the event was the last of the lane
        before."""
        if self.last is not None:
            (endpoint, event), self.last = self.last, None
            self._newest = event
            self.count_if_slow(endpoint, event, self.started)

    def count_timed(self, endpoint: Endpoint, event: DeliveredEvent, seconds: float, *, done: bool) -> None:
        """A handler ran for so long; whether its event is done."""
        self.timed = event
        if not done:
            self._failed_seconds += seconds
            return
        self._timings[endpoint].append(seconds)
        self._newest = event
        if self.oldest is None:
            self.oldest = event

    def take_turns(self) -> list[Turn]:
        """The deliveries since this was asked last, one turn for each endpoint. The quick ones share the time that no
        handler is known for."""
        self.end_slice()
        turns = self._build_turns(self.oldest, self._newest) if self.oldest and self._newest else []
        self._quick_counts.clear()
        self._timings.clear()
        self._failed_seconds = self._spent_seconds = self._report_at = 0.0
        self.oldest = self._newest = None
        return turns

    def _build_turns(self, first: DeliveredEvent, last: DeliveredEvent) -> list[Turn]:
        measured = self._failed_seconds + sum(map(sum, self._timings.values()))
        share = min(QUICK, max(0.0, self._spent_seconds - measured) / max(1, sum(self._quick_counts.values())))
        oldest, newest, ended = published_at(first), published_at(last), time.time()
        turns = []
        for endpoint in {**self._quick_counts, **self._timings}:
            quick, timed = self._quick_counts.get(endpoint, 0), self._timings.get(endpoint, ())
            slow = [seconds for seconds in timed if seconds >= QUICK]
            count, seconds = quick + len(timed), sum(timed) + quick * share
            turns.append(Turn(endpoint.handler.name, count, seconds, slow, oldest, newest, ended))
        return turns


def build_list_turn(
    endpoint: Endpoint, ends: tuple[DeliveredEvent, DeliveredEvent], count: int, seconds: float
) -> Turn:
    """The turn of `count` events of a list, from the first to the last, each of which took `seconds`."""
    slow = [seconds] * count if seconds >= QUICK else []
    first, last = map(published_at, ends)
    return Turn(endpoint.handler.name, count, seconds * count, slow, first, last, time.time())


def published_at(event: DeliveredEvent) -> float:
    """Unix seconds at which it was published."""
    return microseconds(event.record[CREATED_AT]) / 1e6 + 946_684_800.0
