"""The open spans of polls: each ends when its last record is settled, so that what it counts is true."""

import math
import threading
import time
from collections.abc import Iterable

from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanContext, SpanKind, Tracer

from partbox.observe.conventions import COUNT, SUBSCRIPTION, Operation, operation

LONGEST = 60.0  # seconds after which a poll's span ends, whatever is still open

Record = tuple[int, int]
"""Partition and id."""


class PollSpan:
    """The span of one poll; counts of its records: `left` unsettled, `succeeded`, `failed`."""

    __slots__ = ("began", "failed", "left", "span", "succeeded")

    def __init__(self, span: Span, left: int) -> None:
        self.span = span
        self.left = left
        self.succeeded = self.failed = 0
        self.began = time.monotonic()

    def close(self) -> None:
        unsettled = {"open.count": self.left} if self.left else {}
        self.span.set_attributes({"success.count": self.succeeded, "failure.count": self.failed, **unsettled})
        self.span.end()


class OpenPollSpans:
    """The polls of one worker. Any thread.

    A record that only waits, held behind another or put off, is not settled: it keeps the span open until no record is
    in memory any more, or until the poll is `LONGEST` seconds old. `open.count` is the number of these.
    """

    def __init__(self, tracer: Tracer, subscription: str | None) -> None:
        self._tracer = tracer
        self._subscription = subscription
        self._lock = threading.Lock()
        self._open: dict[int, dict[int, PollSpan]] = {}  # by partition and id
        self._polls: dict[PollSpan, None] = {}  # in their order
        self._empty_at: float | None = None  # the first look since which memory held no records

    def start_span(self, records: Iterable[Record], seconds: float) -> None:
        """Open the span of a poll that returned these records; it took `seconds` and ended now."""
        pairs = list(records)
        known = {} if self._subscription is None else {SUBSCRIPTION: self._subscription}
        size = {COUNT: len(pairs), "batch.size": len(pairs)}
        span = self._tracer.start_span(
            "poll",
            context=Context(),  # a trace of its own
            kind=SpanKind.CLIENT,
            attributes={**operation("poll", Operation.RECEIVE), **known, **size},
            start_time=time.time_ns() - int(seconds * 1e9),
        )
        poll = PollSpan(span, len(pairs))
        with self._lock:
            self._polls[poll] = None
            for partition, id in pairs:
                before = self._open.setdefault(partition, {}).get(id)
                self._open[partition][id] = poll
                if before is not None:  # read again, after a lost connection
                    self._count_down(before)

    def context(self, record: Record) -> SpanContext | None:
        """The context of the poll that read this record; None if its span has ended, or none read it from the log."""
        partition, id = record
        with self._lock:
            poll = self._open.get(partition, {}).get(id)
        return None if poll is None else poll.span.get_span_context()

    def settled(self, record: Record, success: bool | None) -> None:
        """The record is done (True), failed (False) or put off (None). The first call counts."""
        partition, id = record
        with self._lock:
            poll = self._open.get(partition, {}).pop(id, None)
            if poll is not None:
                poll.succeeded += success is True
                poll.failed += success is False
                self._count_down(poll)

    def drop(self, partition: int) -> None:
        """Drop the open records of this partition: they will not be settled here."""
        with self._lock:
            for poll in self._open.pop(partition, {}).values():
                self._count_down(poll)

    def end_stale(self, records: int) -> None:
        """End spans that are too old; and all of them once two looks in a row found no records in memory. Not at the
        first: outcomes may still be on their way here."""
        now = time.monotonic()
        before, self._empty_at = self._empty_at, None if records else (self._empty_at or now)
        self.end_before(max(now - LONGEST, before if before and not records else 0.0))

    def end_before(self, before: float = math.inf) -> None:
        """End the spans of polls that began before then (monotonic seconds)."""
        with self._lock:
            over = {poll for poll in self._polls if poll.began < before}
            if not over:
                return
            for partition, polls in list(self._open.items()):
                self._open[partition] = {id: poll for id, poll in polls.items() if poll not in over}
            for poll in over:
                self._end(poll)

    def _count_down(self, poll: PollSpan) -> None:
        poll.left -= 1
        if not poll.left:
            self._end(poll)

    def _end(self, poll: PollSpan) -> None:
        del self._polls[poll]
        poll.close()
