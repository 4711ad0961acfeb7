"""The observer that sums up the traffic of the sinks of one process, for the process's row."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from partbox.db.delivery.traffic import Traffic
from partbox.observe.observer import Answer, Observer
from partbox.text.printing import printable_line
from partbox.text.secrets import masked

CUT = 200  # characters of a name or an error


@dataclass(slots=True)
class _Sum:
    sent: int = 0
    in_flight: int = 0
    retries: int = 0
    seconds: float = 0.0
    error: str | None = None
    since: float = 0.0  # of the failures: the first after the last acknowledgement


class TrafficObserver(Observer):
    """Written by the event loop's thread alone, read by any."""

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
            found.error = printable_line(masked(f"{type(answer.error).__name__}: {answer.error}"), CUT)

    def totals(self) -> list[Traffic]:
        """All of it, now."""
        found, now = [], self._clock()
        for sink, each in self._sums.copy().items():
            failing = None if (error := each.error) is None else max(0.0, now - each.since)
            name = printable_line(sink, CUT)
            found.append(Traffic(name, each.sent, each.in_flight, each.retries, each.seconds, error, failing))
        return found
