"""Purging and the maintenance of segments, in a thread beside workers or in an application that only publishes.

Segments are checked every half minute, as the log may grow fast. A purge comes every `purge_interval`. Many nodes take
turns in the checks, each of which is a connection: together they check as often as ten nodes."""

import logging
import threading
import time
from collections.abc import Callable
from random import random, uniform

from psycopg import Error

from partbox.duration import format_duration
from partbox.errors import PartboxError
from partbox.observe.logs.database import log_for_database
from partbox.observe.logs.log_event import log_event
from partbox.operations.purge import purge
from partbox.protocol.intervals import compute_turn_chance
from partbox.segments import maintain_segments
from partbox.settings import Settings
from partbox.text.wording import format_count

log = logging.getLogger("partbox.purge")

STOP_TIMEOUT = 2.0  # seconds that a stop waits for a step or a connection; the thread holds up no exit
SEGMENT_INTERVAL = 30.0  # seconds between two checks of the segments
# The earliest first purge, as a share of the interval. A process that runs only for a moment does not purge.
FIRST_SHARE = 0.1


class Purging:
    """A thread that removes old records from the outbox regularly.

    Use it by `with outbox.purger():`, or `start()` and `stop()`. It starts once. A cluster may have any number. The
    first purge comes after a random part of `purge_interval`, so that nodes that start together do not purge together.
    A failed purge is logged, and tried again after the interval. `database` is its name in logs among several. `nodes`
    returns the number of nodes as far as known."""

    def __init__(
        self, settings: Settings, dsn: Callable[[], str], database: str = "", nodes: Callable[[], int] = lambda: 1
    ) -> None:
        self._settings = settings
        self._dsn = dsn
        self._database = database
        self._count_nodes = nodes
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="partbox-purge", daemon=True)
        self._has_started = False
        self._logged_problem: str | None = None

    def start(self) -> None:
        """Start the thread that purges old records. A second call does nothing. Raises `PartboxError` after a stop."""
        if self._stopping.is_set():
            raise PartboxError("this purger was stopped: make a new one by outbox.purger()")
        if not self._has_started:
            self._has_started = True
            self._thread.start()

    def stop(self) -> None:
        """End the purging thread after its current step. A second call, or a call before the start, is harmless."""
        self._stopping.set()
        if self._has_started:
            self._thread.join(STOP_TIMEOUT)

    def _run(self) -> None:
        interval = min(self._settings.purge_interval, threading.TIMEOUT_MAX)
        due = time.monotonic() + uniform(FIRST_SHARE, 1.0) * interval
        next_check = uniform(FIRST_SHARE, 1.0) * SEGMENT_INTERVAL
        with log_for_database(self._database):
            while not self._stopping.wait(max(0.0, min(due - time.monotonic(), next_check))):
                next_check = uniform(0.5, 1.5) * SEGMENT_INTERVAL
                if time.monotonic() >= due:
                    self._try_step(self._purge, "purge_failed", "purge failed, expired data stays", interval)
                    due = time.monotonic() + interval
                elif random() < compute_turn_chance(self._count_nodes()):
                    self._try_step(
                        self._maintain_segments, "segments_failed", "segments of the log are not maintained", next_check
                    )

    def _purge(self) -> None:
        purged = purge(self._dsn, self._settings, patient=True, is_stopped=self._stopping.is_set)
        self._log_segments(purged.archived, purged.files, purged.unarchived, purged.untended)
        if purged.total:
            log_event(log, "purged", "purged %s%s", purged, "" if purged.complete else ", with more left to purge")

    def _maintain_segments(self) -> None:
        maintained = maintain_segments(self._dsn, self._settings, self._stopping.is_set)
        self._log_segments(
            maintained.archived.records, maintained.archived.files, maintained.archived.problem, maintained.problem
        )
        if maintained:
            log_event(log, "segments", "segments of the log: %s", maintained)

    def _log_segments(self, records: int, files: int, problem: str | None, untended: str | None) -> None:
        # This logs how many records were archived, and problems with segments of the event log.
        # An unchanged problem of the archive is logged once.
        if records:
            log_event(
                log, "archived", "archived %s in %s", format_count(records, "record"), format_count(files, "file")
            )
        if problem is not None and problem != self._logged_problem:
            log_event(log, "archive_failed", "archiving failed and is tried again, the records stay: %s", problem)
        self._logged_problem = problem
        if untended is not None:
            text = "segments of the log were not changed, which is tried again: %s"
            log_event(log, "segments_failed", text, untended)

    def _try_step(self, step: Callable[[], None], event: str, consequence: str, pause: float) -> None:
        # An error of the step is logged instead of raised, with its consequence until the next attempt, `pause` seconds
        # later.
        try:
            step()
        except (Error, PartboxError) as error:
            reason: object = error
        # The application supplies the DSN and may raise anything, which purging must outlive.
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
        else:
            return
        log_event(log, event, f"{consequence} until the next attempt in %s: %s", format_duration(pause), reason)

    def __enter__(self) -> "Purging":
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()
