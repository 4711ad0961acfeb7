"""Gives dead events to the dead-letter hook, at least once.

A dead row that is owed to the hook has a due time; only when the hook has returned is it taken away. So the hook is
called again after a crash, and after an error of its own. The row stays, whatever the hook does.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from partbox.rules.signature import is_async, takes
from partbox.worker.holdings import Holdings
from partbox.worker.lane import Lane

log = logging.getLogger("partbox.worker")

RETRY = 10.0  # seconds until a hook that failed is called again


class Letters:
    """The dead-letter hook of one process; from any runner thread."""

    def __init__(self, holdings: Holdings, hook: Callable[..., Any]) -> None:
        self._holdings = holdings
        self._hook = hook
        self._told = takes(hook, 2)

    def walk(self, lane: Lane) -> None:
        """Give the dead event of this lane to the hook."""
        if lane.partition.stopping or not lane.queue:  # it stays due, for the next owner or the next reading
            return
        event = lane.queue.popleft()
        try:
            outcome = self._hook(event, lane.letter) if self._told else self._hook(event)
            if is_async(self._hook):
                asyncio.run(outcome)
            delay = None
        except Exception as error:
            log.error("the dead-letter hook failed for %r and is called again in %g s: %s", event, RETRY, error)
            delay = RETRY
        with self._holdings.lock:
            if not lane.partition.lost and lane.partition.life == lane.life:
                lane.partition.letter(event, delay)
                self._holdings.touch(lane.partition)
