"""The traffic of each sink, and its error while it is in trouble: counted here, and noted in the row of the process."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from psycopg import Connection

from partbox.db.delivery import traffic
from partbox.db.delivery.traffic import Traffic
from partbox.observe.observer import Answer, Observer
from partbox.text.printing import printable_line
from partbox.text.secrets import masked
from partbox.worker.context import Context
from partbox.worker.reports.process_notes import Note

SENT_APART = 2.0  # seconds between two notes at least
MOST_SAID = 200  # characters of a sink's name, or of its error


@dataclass(slots=True)
class _Sum:
    sent: int = 0
    in_flight: int = 0
    retries: int = 0
    seconds: float = 0.0
    error: str | None = None
    since: float = 0.0  # of the failures: the first after the last acknowledgement


class TrafficObserver(Observer):
    """Sums up the traffic of the sinks of one process. Written by the event loop's thread alone, read by any."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._sums: dict[str, _Sum] = {}
        self._clock = clock

    def sending(self, handler: str, messages: int) -> None:
        self._sums.setdefault(handler, _Sum()).in_flight += messages

    def answered(self, handler: str, answer: Answer) -> None:
        found = self._sums[handler]
        found.in_flight -= answer.messages
        found.sent += answer.acknowledged
        found.retries += answer.retried
        found.seconds += answer.acknowledged * answer.seconds
        if answer.acknowledged:
            found.error = None
        elif answer.error is not None and answer.retried:
            found.since = found.since if found.error is not None else self._clock()
            found.error = printable_line(masked(f"{type(answer.error).__name__}: {answer.error}"), MOST_SAID)

    def totals(self) -> list[Traffic]:
        """All of it, now."""
        found, now = [], self._clock()
        for sink, each in self._sums.copy().items():
            failing = None if (error := each.error) is None else max(0.0, now - each.since)
            name = printable_line(sink, MOST_SAID)
            found.append(Traffic(name, each.sent, each.in_flight, each.retries, each.seconds, error, failing))
        return found


class SinkNotes(Note):
    """The traffic of each sink, and its error while it is in trouble."""

    text = "what the sinks have sent could not be noted, which is tried again: %s"

    def __init__(self, context: Context, observer: TrafficObserver) -> None:
        super().__init__(context, SENT_APART)
        self._observer = observer

    def _found(self, now: float) -> tuple[Any, ...]:
        return tuple(self._observer.totals())

    def _write(self, conn: Connection[Any], me: UUID, found: tuple[Any, ...], now: float) -> None:
        traffic.note(conn, self._context.schema, me, list(found))
