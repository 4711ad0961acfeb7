"""Background probe of a database, so that scrapes and health checks never block past their timeout."""

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import psycopg

from partbox.db.inspect.stats import Overview
from partbox.errors import PartboxError, SchemaError
from partbox.observe.logs.database import about
from partbox.observe.logs.log_event import log_event

log = logging.getLogger("partbox.http")


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The result of a probe at a time (monotonic seconds): an overview, or the error.

    `error` may be shown to anybody: it holds no text of a driver or an application. `broken`: the database answers, but
    its outbox is not as it must be. `slow`: it answers, but not in time.
    """

    at: float
    overview: Overview | None
    error: str | None = None
    broken: bool = False
    slow: bool = False

    @property
    def up(self) -> bool:
        """True if the database answers."""
        return self.overview is not None or self.slow


class DatabaseProbe:
    """Runs one probe at a time, in a thread of its own; any thread may ask. `database` names it in the log.

    `latest`: the result of the last probe, None before the first has ended; `latest_overview`: the last one with an
    overview.
    """

    def __init__(self, read_overview: Callable[[], Overview], database: str = "") -> None:
        self._read_overview = read_overview
        self._database = database
        self._changed = threading.Condition()
        self._is_probing = False
        self.latest: ProbeResult | None = None
        self.latest_overview: ProbeResult | None = None
        self._last_error: str | None = None

    def request(self) -> float:
        """Start a probe unless one is running; return the present time, for `wait`. If no thread can be started, none
        begins, and there is nothing to wait for."""
        asked = time.monotonic()
        with self._changed:
            if not self._is_probing:
                with suppress(RuntimeError):  # the machine has no more threads
                    threading.Thread(target=self._run, name="partbox-look", daemon=True).start()
                    self._is_probing = True
        return asked

    def wait(self, since: float, timeout: float) -> ProbeResult | None:
        """The result of a probe that ended after `since`; None if none ends within `timeout` seconds."""
        with self._changed:
            ended = self._changed.wait_for(lambda: self.latest is not None and self.latest.at >= since, timeout)
            return self.latest if ended else None

    def _run(self) -> None:
        with about(self._database):
            result = self._probe_once()
        with self._changed:
            self._is_probing, self.latest = False, result
            self.latest_overview = result if result.overview is not None else self.latest_overview
            self._changed.notify_all()

    def _probe_once(self) -> ProbeResult:
        try:
            overview, error = self._read_overview(), None
        except Exception as failed:  # the DSN may come from a function of the application
            overview, error = None, failed
        before, self._last_error = self._last_error, None if error is None else f"{type(error).__name__}: {error}"
        if error is None:
            return ProbeResult(time.monotonic(), overview)
        if self._last_error != before:  # once until it changes
            text = "cannot look at the database for metrics and health checks, which is tried again: %s: %s"
            log_event(log, "look_failed", text, type(error).__name__, error)
        slow = isinstance(error, psycopg.errors.QueryCanceled)
        return ProbeResult(time.monotonic(), None, public_error(error), isinstance(error, PartboxError), slow)


def public_error(error: Exception) -> str:
    """The part of an error that may be shown: the text of our own errors about the schema, the type of others, whose
    texts hold hosts and users, and more if the application gives the DSN."""
    if isinstance(error, SchemaError):
        return " ".join(str(error).split())[:500]
    state = error.sqlstate if isinstance(error, psycopg.Error) else None
    return f"{type(error).__name__} (SQLSTATE {state})" if state else type(error).__name__
