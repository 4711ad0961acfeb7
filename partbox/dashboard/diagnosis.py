"""Doctor's examination for all viewers: one at a time, at a modest rate, and none without viewers."""

import asyncio
import logging
import time
from collections.abc import Callable

import psycopg

from partbox.dashboard.background_calls import in_background
from partbox.dashboard.page_text import error_text
from partbox.doctor.doctor import Report
from partbox.errors import PartboxError
from partbox.observe.logs.log_event import log_event

log = logging.getLogger("partbox.http")

EVERY = 15.0  # seconds from the end of one examination to the next
SHARE = 10  # and so many times as long as the last one took


class Diagnosis:
    """The newest `report`, None before the first; `error` is the reason if the last examination failed, else None."""

    def __init__(self, examine: Callable[[], Report], clock: Callable[[], float] = time.monotonic) -> None:
        self._examine = examine
        self._clock = clock
        self._next = clock()
        self._running: asyncio.Task[None] | None = None
        self.report: Report | None = None
        self.error: str | None = None

    def wanted(self) -> None:
        """Begin an examination if one is due; called in the event loop while the page is watched."""
        if (self._running is None or self._running.done()) and self._clock() >= self._next:
            self._running = asyncio.create_task(self._run())

    async def _run(self) -> None:
        began = self._clock()
        try:
            self.report, self.error = await in_background(self._examine), None
        except Exception as error:
            if not isinstance(error, psycopg.Error | PartboxError):  # a fault in a check must not take the page with it
                log_event(log, "loop_error", "doctor cannot examine for the page: %s", error, trace=error, loop="page")
            self.error = error_text(error)
        self._next = self._clock() + max(EVERY, SHARE * (self._clock() - began))
