"""A background probe of the database, so that scrapes and health checks never wait longer than their timeout."""

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import psycopg

from partbox.db.inspect.stats import Overview
from partbox.errors import PartboxError, SchemaError
from partbox.observe.logs.database import log_for_database
from partbox.observe.logs.log_event import log_event

log = logging.getLogger("partbox.http")


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The result of one health query to the database: an overview of its subscriptions, or an error."""

    # `probed_at` is in monotonic seconds. `error` holds no text of a driver or of an application, so anybody may see
    # it. `is_broken` means that the database answers, but that its outbox schema is wrong. `is_slow` means that the
    # server cancelled the query, so it answers, but not in time.

    probed_at: float
    overview: Overview | None
    error: str | None = None
    is_broken: bool = False
    is_slow: bool = False

    @property
    def is_up(self) -> bool:
        """True if the database answered, even if too slowly for an overview."""
        return self.overview is not None or self.is_slow


class DatabaseProbe:
    """A background thread that reads the overview of a database for health checks and metrics.

    Any thread may request a probe. At most one runs at a time, so a hanging database costs one thread. `latest_result`
    is the result of the last probe, or None before the first has ended, and `latest_overview_result` the last result
    with an overview. `database` names the database in log lines."""

    def __init__(self, read_overview: Callable[[], Overview], database: str = "") -> None:
        self._read_overview = read_overview
        self._database = database
        self._changed = threading.Condition()
        self._is_probing = False
        self.latest_result: ProbeResult | None = None
        self.latest_overview_result: ProbeResult | None = None
        self._last_error: str | None = None

    def request_result(self) -> float:
        """Start a query of the database state in the background, and return the time to pass to `wait_for_result`."""
        # No second probe starts while one is running. If the machine has no more threads, no probe starts, and
        # `wait_for_result` times out.
        asked = time.monotonic()
        with self._changed:
            if not self._is_probing:
                # The machine may have no more threads.
                with suppress(RuntimeError):
                    threading.Thread(target=self._run, name="partbox-look", daemon=True).start()
                    self._is_probing = True
        return asked

    def wait_for_result(self, since: float, timeout: float) -> ProbeResult | None:
        """Wait for a query result that is not older than `since`. Return None after `timeout` seconds without one."""
        with self._changed:
            ended = self._changed.wait_for(
                lambda: self.latest_result is not None and self.latest_result.probed_at >= since, timeout
            )
            return self.latest_result if ended else None

    def _run(self) -> None:
        with log_for_database(self._database):
            result = self._probe_once()
        with self._changed:
            self._is_probing, self.latest_result = False, result
            self.latest_overview_result = result if result.overview is not None else self.latest_overview_result
            self._changed.notify_all()

    def _probe_once(self) -> ProbeResult:
        try:
            overview, error = self._read_overview(), None
        # The DSN may come from a function of the application, which may raise anything.
        except Exception as failed:
            overview, error = None, failed
        before, self._last_error = self._last_error, None if error is None else f"{type(error).__name__}: {error}"
        if error is None:
            return ProbeResult(time.monotonic(), overview)
        # Repeats of the same error are not logged.
        if self._last_error != before:
            text = "cannot read the database for metrics and health checks, and will try again: %s: %s"
            log_event(log, "look_failed", text, type(error).__name__, error)
        slow = isinstance(error, psycopg.errors.QueryCanceled)
        return ProbeResult(time.monotonic(), None, format_public_error(error), isinstance(error, PartboxError), slow)


def format_public_error(error: Exception) -> str:
    """Return an error text that an unauthenticated health endpoint may show, without host or user names."""
    # Only schema errors, whose text is partbox's own, are shown in full. Every other error is reduced to its class and
    # SQLSTATE, because the text may name hosts and users, or more if the application supplies the DSN.
    if isinstance(error, SchemaError):
        return " ".join(str(error).split())[:500]
    state = error.sqlstate if isinstance(error, psycopg.Error) else None
    return f"{type(error).__name__} (SQLSTATE {state})" if state else type(error).__name__
