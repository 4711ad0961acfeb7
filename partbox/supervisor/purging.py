"""Purges every `purge_interval` in a thread of its own, beside workers or in an application that only publishes."""

import logging
import threading
from collections.abc import Callable
from random import uniform
from types import TracebackType

from psycopg import Error

from partbox.errors import PartboxError
from partbox.observe.logs.database import about
from partbox.observe.logs.log_event import log_event
from partbox.purge import purge
from partbox.rules.duration import written
from partbox.settings import Settings

log = logging.getLogger("partbox.purge")

PATIENCE = 2.0  # seconds that a stop waits for a step, or for a connection, to end; the thread holds up no exit
FIRST = 0.1  # the earliest first purge, as a part of the interval: what runs for a moment only does not purge


class Purging:
    """`with outbox.purger(): …`, or `start()` and `stop()`. It starts once; any number may run in a cluster.

    The first purge comes after a random part of the interval, so that nodes which start together do not purge
    together. One that fails is logged and tried again after the interval. `database` names it there, among several.
    """

    def __init__(self, settings: Settings, dsn: Callable[[], str], database: str = "") -> None:
        self._settings = settings
        self._dsn = dsn
        self._database = database
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="partbox-purge", daemon=True)
        self._started = False

    def start(self) -> None:
        """Begin; a second call does nothing. PartboxError after a stop."""
        if self._stopping.is_set():
            raise PartboxError("this purger was stopped: make a new one by outbox.purger()")
        if not self._started:
            self._started = True
            self._thread.start()

    def stop(self) -> None:
        """End, after the step that runs. Stopping twice, or before a start, is fine."""
        self._stopping.set()
        if self._started:
            self._thread.join(PATIENCE)

    def _run(self) -> None:
        interval = min(self._settings.purge_interval, threading.TIMEOUT_MAX)
        pause = uniform(FIRST, 1.0) * interval
        with about(self._database):
            while not self._stopping.wait(pause):
                self._purge(interval)
                pause = interval

    def _purge(self, interval: float) -> None:
        try:
            purged = purge(self._dsn, self._settings, stopped=self._stopping.is_set)
        except (Error, PartboxError) as error:
            self._failed(" ".join(str(error).split()), interval)
        except Exception as error:  # what gives the DSN is the application's; purging must outlive it
            self._failed(f"{type(error).__name__}: {error}", interval)
        else:
            if purged.total:
                log_event(log, "purged", "purged %s%s", purged, "" if purged.complete else ", not all of what is due")

    def _failed(self, said: str, interval: float) -> None:
        text = "purge failed, what has expired stays until the next one in %s: %s"
        log_event(log, "purge_failed", text, written(interval), said)

    def __enter__(self) -> "Purging":
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
