"""The open spans of polls. A span ends when the last record of its poll is settled, so that its counts are true."""

import math
import threading
import time
from collections.abc import Iterable

from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanContext, SpanKind, Tracer

from partbox.observe.conventions import COUNT, SUBSCRIPTION, Operation, describe_operation

# Seconds after which the span of a poll ends, even if some of its records are not settled.
LONGEST = 60.0

# Partition and id.
Record = tuple[int, int]


class PollSpan:
    """The tracing span of one query for new events, with counts of the events that succeeded and failed."""

    # `left` is the number of records of the query that are not settled yet.

    __slots__ = ("began", "failed", "left", "span", "succeeded")

    def __init__(self, span: Span, left: int) -> None:
        self.span = span
        self.left = left
        self.succeeded = self.failed = 0
        self.began = time.monotonic()

    def close(self) -> None:
        """End the span, with the counts of succeeded, failed and open events as attributes."""
        unsettled = {"open.count": self.left} if self.left else {}
        self.span.set_attributes({"success.count": self.succeeded, "failure.count": self.failed, **unsettled})
        self.span.end()


class OpenPollSpans:
    """The open tracing spans of a worker's queries for new events. Any thread may call.

    A span stays open until its last record is settled, memory holds no records, or the query is `LONGEST` seconds old.
    Records that are not settled then, such as one held behind another, are counted in `open.count`."""

    def __init__(self, tracer: Tracer, subscription: str | None) -> None:
        self._tracer = tracer
        self._subscription = subscription
        self._lock = threading.Lock()
        # By partition and record id.
        self._spans_by_partition: dict[int, dict[int, PollSpan]] = {}
        # In the order of their start.
        self._open_spans: dict[PollSpan, None] = {}
        # Time of the first check since which memory has held no records.
        self._empty_at: float | None = None

    def start_span(self, records: Iterable[Record], seconds: float) -> None:
        """Start the tracing span of a query that read these events."""
        # The poll took `seconds` and has just ended.
        pairs = list(records)
        known = {} if self._subscription is None else {SUBSCRIPTION: self._subscription}
        size = {COUNT: len(pairs), "batch.size": len(pairs)}
        span = self._tracer.start_span(
            "poll",
            # An empty context, so that a poll begins a trace of its own.
            context=Context(),
            kind=SpanKind.CLIENT,
            attributes={**describe_operation("poll", Operation.RECEIVE), **known, **size},
            start_time=time.time_ns() - int(seconds * 1e9),
        )
        poll = PollSpan(span, len(pairs))
        with self._lock:
            self._open_spans[poll] = None
            for partition, id in pairs:
                before = self._spans_by_partition.setdefault(partition, {}).get(id)
                self._spans_by_partition[partition][id] = poll
                # A lost connection has made the record be read again.
                if before is not None:
                    self._count_down(before)

    def find_context(self, record: Record) -> SpanContext | None:
        """Return the trace context of the query that read this event, or None if there is no open span for it."""
        # There is none if the span of the poll has ended, or if no poll read the record from the log.
        partition, id = record
        with self._lock:
            poll = self._spans_by_partition.get(partition, {}).get(id)
        return None if poll is None else poll.span.get_span_context()

    def note_settled(self, record: Record, success: bool | None) -> None:
        """Count an event's outcome on the span of its query: done (True), failed (False) or put off (None)."""
        # Only the first call for a record counts.
        partition, id = record
        with self._lock:
            poll = self._spans_by_partition.get(partition, {}).pop(id, None)
            if poll is not None:
                poll.succeeded += success is True
                poll.failed += success is False
                self._count_down(poll)

    def drop_partition(self, partition: int) -> None:
        """Stop waiting for the outcomes of a partition's open events, and end the spans that no other event keeps
        open."""
        # The events will not be settled in this process.
        with self._lock:
            for poll in self._spans_by_partition.pop(partition, {}).values():
                self._count_down(poll)

    def end_stale(self, records: int) -> None:
        """End the tracing spans that are too old, and all spans once no events are left in memory."""
        # All spans end after two checks in a row in which memory held no records (`records` is 0). The first such check
        # ends no spans, because outcomes may still be on their way.
        now = time.monotonic()
        before, self._empty_at = self._empty_at, None if records else (self._empty_at or now)
        self.end_before(max(now - LONGEST, before if before and not records else 0.0))

    def end_before(self, before: float = math.inf) -> None:
        """End the tracing spans that began before a time in monotonic seconds."""
        with self._lock:
            over = {poll for poll in self._open_spans if poll.began < before}
            if not over:
                return
            for partition, polls in list(self._spans_by_partition.items()):
                self._spans_by_partition[partition] = {id: poll for id, poll in polls.items() if poll not in over}
            for poll in over:
                self._end_span(poll)

    def _count_down(self, poll: PollSpan) -> None:
        poll.left -= 1
        if not poll.left:
            self._end_span(poll)

    def _end_span(self, poll: PollSpan) -> None:
        del self._open_spans[poll]
        poll.close()
