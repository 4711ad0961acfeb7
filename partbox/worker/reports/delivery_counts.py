"""Counts of the events that one thread or task has delivered, until they are reported to observers. Counting costs a
few dozen nanoseconds per event, so the clock is not read for each event."""

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
    """Counts and durations of the events that one thread or task has delivered since its last report. The events range
    from `oldest` to `last`. `last` began at `started`."""

    # The first event, which the runner sets.
    oldest: DeliveredEvent | None = None
    last: tuple[Endpoint, DeliveredEvent] | None = None
    started: float = 0.0  # monotonic seconds
    # The last event whose duration is known.
    timed: DeliveredEvent | None = None
    _newest: DeliveredEvent | None = None
    _quick_counts: defaultdict[Endpoint, int] = field(default_factory=partial(defaultdict, int))
    _timings: defaultdict[Endpoint, list[float]] = field(default_factory=partial(defaultdict, list))
    # Seconds that handlers ran without success.
    _failed_seconds: float = 0.0
    # Seconds of the turns before the current one.
    _spent_seconds: float = 0.0
    _slice_began: float = 0.0
    _report_at: float = 0.0

    def begin_slice(self, began: float) -> None:
        """Start to measure the time that a thread spends on handling events, from `began` (monotonic seconds)."""
        self._slice_began = began
        if not self._report_at:
            self._report_at = began + REPORT_INTERVAL

    def end_slice(self) -> bool:
        """Add the seconds of the current time slice to the total. Return True if the counts must be reported now."""
        # The counts are reported at the end of a turn, at most every `REPORT_INTERVAL` seconds, and before the thread
        # waits for work, because a report costs as much as several events.
        now = time.monotonic()
        if self.last is not None and now - self.started < QUICK:
            self._newest, self.last = self.last[1], None
        self.count_last_if_slow()
        self._spent_seconds += now - self._slice_began
        self._slice_began = now
        return now >= self._report_at

    def count_run(self, quick: list[Endpoint], last: tuple[Endpoint, DeliveredEvent], started: float) -> None:
        """Count events that were handled quickly, one for each handler in `quick`."""
        # The `last` event, begun at `started`, is kept apart because it may prove slow.
        if quick:
            if quick.count(quick[0]) == len(quick):
                self._quick_counts[quick[0]] += len(quick)
            else:
                for endpoint in quick:
                    self._quick_counts[endpoint] += 1
        self.last, self.started = last, started

    def count_if_slow(self, endpoint: Endpoint, event: DeliveredEvent, started: float) -> None:
        """Record the duration of an event that was counted as quick but was slow."""
        # A handler that runs past the next check of the lease is noticed at that check.
        # The event may have just ended.
        seconds = time.monotonic() - started
        if seconds >= QUICK and event is not self.timed:
            self.timed = event
            self._quick_counts[endpoint] -= 1
            self._timings[endpoint].append(seconds)

    def count_last_if_slow(self) -> None:
        """Record the duration of the last event that ran, if it was slow."""
        # The event belonged to the previous lane (queue of one key).
        if self.last is not None:
            (endpoint, event), self.last = self.last, None
            self._newest = event
            self.count_if_slow(endpoint, event, self.started)

    def count_timed(self, endpoint: Endpoint, event: DeliveredEvent, seconds: float, *, done: bool) -> None:
        """Record the measured seconds of a handler; count its event as delivered only if it is `done`."""
        self.timed = event
        if not done:
            self._failed_seconds += seconds
            return
        self._timings[endpoint].append(seconds)
        self._newest = event
        if self.oldest is None:
            self.oldest = event

    def take_turns(self) -> list[Turn]:
        """Return a summary (`Turn`) of the deliveries of each handler, and clear the counts."""
        # Events that were too quick to be timed share the unaccounted time.
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
    """Return a summary (`Turn`) of one call of a handler that took a list of `count` events."""
    # Each event took `seconds`. `ends` are the first and the last event.
    slow = [seconds] * count if seconds >= QUICK else []
    first, last = map(published_at, ends)
    return Turn(endpoint.handler.name, count, seconds * count, slow, first, last, time.time())


def published_at(event: DeliveredEvent) -> float:
    """Return the time at which the event was published, in Unix seconds."""
    return microseconds(event.record[CREATED_AT]) / 1e6 + 946_684_800.0
