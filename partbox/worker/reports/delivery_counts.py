"""Counts of the events that one thread or task has delivered, until they are reported to observers. Counting costs a
few dozen nanoseconds per event, so the clock is not read for each event."""

import time
from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial

from partbox.events import DeliveredEvent
from partbox.events.record import CREATED_AT, parse_microseconds
from partbox.observe import QUICK, Turn
from partbox.worker.runners.endpoint import Endpoint

REPORT_INTERVAL = 0.02  # seconds


@dataclass(slots=True, eq=False)
class Tally:
    """Counts and durations of the events that one thread or task has delivered since its last report. The events range
    from `oldest_event` to `last_run`. `last_run` began at `last_started`."""

    # The first event, which the runner sets.
    oldest_event: DeliveredEvent | None = None
    last_run: tuple[Endpoint, DeliveredEvent] | None = None
    last_started: float = 0.0  # monotonic seconds
    # The last event whose duration is known.
    timed_event: DeliveredEvent | None = None
    _newest_event: DeliveredEvent | None = None
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
        if self.last_run is not None and now - self.last_started < QUICK:
            self._newest_event, self.last_run = self.last_run[1], None
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
        self.last_run, self.last_started = last, started

    def count_if_slow(self, endpoint: Endpoint, event: DeliveredEvent, started: float) -> None:
        """Record the duration of an event that was counted as quick but was slow."""
        # A handler that runs past the next check of the lease is noticed at that check.
        # The event may have just ended.
        seconds = time.monotonic() - started
        if seconds >= QUICK and event is not self.timed_event:
            self.timed_event = event
            self._quick_counts[endpoint] -= 1
            self._timings[endpoint].append(seconds)

    def count_last_if_slow(self) -> None:
        """Record the duration of the last event that ran, if it was slow."""
        # The event belonged to the previous lane (queue of one key).
        if self.last_run is not None:
            (endpoint, event), self.last_run = self.last_run, None
            self._newest_event = event
            self.count_if_slow(endpoint, event, self.last_started)

    def count_timed(self, endpoint: Endpoint, event: DeliveredEvent, seconds: float, *, done: bool) -> None:
        """Record the measured seconds of a handler; count its event as delivered only if it is `done`."""
        self.timed_event = event
        if not done:
            self._failed_seconds += seconds
            return
        self._timings[endpoint].append(seconds)
        self._newest_event = event
        if self.oldest_event is None:
            self.oldest_event = event

    def take_turns(self) -> list[Turn]:
        """Return a summary (`Turn`) of the deliveries of each handler, and clear the counts."""
        # Events that were too quick to be timed share the unaccounted time.
        self.end_slice()
        turns = (
            self._build_turns(self.oldest_event, self._newest_event) if self.oldest_event and self._newest_event else []
        )
        self._quick_counts.clear()
        self._timings.clear()
        self._failed_seconds = self._spent_seconds = self._report_at = 0.0
        self.oldest_event = self._newest_event = None
        return turns

    def _build_turns(self, first: DeliveredEvent, last: DeliveredEvent) -> list[Turn]:
        measured = self._failed_seconds + sum(map(sum, self._timings.values()))
        share = min(QUICK, max(0.0, self._spent_seconds - measured) / max(1, sum(self._quick_counts.values())))
        oldest, newest, ended = publish_time_of(first), publish_time_of(last), time.time()
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
    first, last = map(publish_time_of, ends)
    return Turn(endpoint.handler.name, count, seconds * count, slow, first, last, time.time())


def publish_time_of(event: DeliveredEvent) -> float:
    """Return the time at which the event was published, in Unix seconds."""
    return parse_microseconds(event.record[CREATED_AT]) / 1e6 + 946_684_800.0
