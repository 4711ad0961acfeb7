"""Regular examinations of a node's databases by doctor, in the background, for metrics."""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

import psycopg

from partbox.errors import PartboxError
from partbox.observe.logs.log_event import log_event

log = logging.getLogger("partbox.http")

# Seconds from the end of one round to the next: at least and at most, and in between `SHARE` times the last duration.
MIN_PAUSE: Final = 60.0
MAX_PAUSE: Final = 600.0
SHARE: Final = 30
MAX_AGE: Final = 900.0  # seconds for which a result is shown, if no newer one comes

Counts = Mapping[str, int]
Wait = Callable[[float], object]


class DoctorRounds:
    """The numbers of findings by severity in each database of a node, from examinations in a background thread.

    `examinations` examine one database each, and are given the function to wait with. They run one after the other, so
    that many databases cost one thread and one connection. A round starts when a result is read and the last round is
    old enough, so nothing runs unless somebody scrapes. Any thread may read."""

    def __init__(self, examinations: Sequence[Callable[[Wait], Counts]]) -> None:
        self._examinations = examinations
        self._results: list[tuple[float, Counts] | None] = [None] * len(examinations)
        self._lock = threading.Lock()
        self._is_running = False
        self._next_due = time.monotonic()
        self._stopping = threading.Event()

    def read_counts(self, position: int) -> Counts | None:
        """Return the newest counts of the database at `position`, or None if there are none. Never waits."""
        self._start_if_due()
        result = self._results[position]
        return result[1] if result is not None and time.monotonic() - result[0] < MAX_AGE else None

    def close(self) -> None:
        """Start no more examinations, and end the wait of a running one."""
        self._stopping.set()

    def _start_if_due(self) -> None:
        with self._lock:
            if self._is_running or self._stopping.is_set() or time.monotonic() < self._next_due:
                return
            # The machine may have no more threads.
            with suppress(RuntimeError):
                threading.Thread(target=self._run, name="partbox-doctor", daemon=True).start()
                self._is_running = True

    def _run(self) -> None:
        began = time.monotonic()
        for position, examine in enumerate(self._examinations):
            if self._stopping.is_set():
                break
            self._results[position] = self._examine(examine)
        ended = time.monotonic()
        with self._lock:
            self._is_running = False
            self._next_due = ended + min(MAX_PAUSE, max(MIN_PAUSE, SHARE * (ended - began)))

    def _examine(self, examine: Callable[[Wait], Counts]) -> tuple[float, Counts] | None:
        try:
            return time.monotonic(), examine(self._stopping.wait)
        # Other metrics and log lines say that the database is away.
        except (psycopg.Error, PartboxError):
            return None
        # A bug in a check, or a function of the application that gives the DSN, must not end the rounds.
        except Exception as error:
            log_event(log, "loop_error", "doctor's checks failed for metrics: %s", error, trace=error, loop="doctor")
            return None
