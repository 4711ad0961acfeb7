"""Checks of a broker before workers start, such as the existence of a topic.

A missing answer, for whatever reason, does not block the start: events wait for the broker, and sending checks again.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from partbox.errors import SettingsError

PATIENCE: Final = 5.0  # seconds

T = TypeVar("T")


def answer(question: Coroutine[Any, Any, T]) -> T | None:
    """The answer of the broker, or None if there is none now; raises SettingsError."""
    try:
        return asyncio.run(asyncio.wait_for(question, PATIENCE))
    except SettingsError:
        raise
    except Exception:
        return None
