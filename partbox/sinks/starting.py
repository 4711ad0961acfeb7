"""Questions to a broker before workers start, such as whether a topic is there.

An answer that does not come, for whatever reason, holds nobody up: events wait for the broker, and sending asks again.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from partbox.errors import SettingsError

PATIENCE: Final = 5.0  # seconds

T = TypeVar("T")


def answer(question: Coroutine[Any, Any, T]) -> T | None:
    """The answer of the broker, None if that cannot be had now; SettingsError as it is raised."""
    try:
        return asyncio.run(asyncio.wait_for(question, PATIENCE))
    except SettingsError:
        raise
    except Exception:
        return None
