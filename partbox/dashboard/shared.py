"""Asks the database once for an answer that many viewers want at the same time."""

import asyncio
import time
from collections.abc import Callable, Hashable
from typing import Any

from partbox.dashboard.aside import aside

FRESH = 1.5  # seconds


class Shared:
    """Keeps answers by their question; lives in one event loop. Failures are not kept."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._asked: dict[Hashable, tuple[float, asyncio.Task[Any]]] = {}

    async def ask(self, question: Hashable, answer: Callable[[], Any]) -> Any:
        """The result of `answer()`, run aside, or the one that is under way or younger than FRESH."""
        now = self._clock()
        self._asked = {key: kept for key, kept in self._asked.items() if now - kept[0] < FRESH or not kept[1].done()}
        if question not in self._asked:
            self._asked[question] = (now, asyncio.create_task(aside(answer)))
        task = self._asked[question][1]
        try:
            return await asyncio.shield(task)
        except Exception:
            self._asked.pop(question, None)
            raise

    def forget(self) -> None:
        """Drop all answers, after a change."""
        self._asked = {}
