"""Answers that many viewers ask for at once are asked of the database once."""

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
        """The answer of `answer()`, run aside, or the one that was given, or asked for, just before."""
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
        """Something was changed: ask anew."""
        self._asked = {}
