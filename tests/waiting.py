"""Waiting for what another thread or process brings about: the only place of the tests that sleeps."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

LATE = 0.05
"""The part by which a long wait may take longer, for being asked about less often."""
RARELY = 0.1  # seconds between two questions at most


def eventually(
    check: Callable[[], T], timeout: float = 120, interval: float = 0.01, moves: Callable[[], object] | None = None
) -> T:
    """The first truthy value of `check()`, asked every `interval` seconds; fails after `timeout` seconds, in which
    nothing has changed of what `moves` gives, if that is given: much work takes as long as the machine needs for it.

    What has taken long is asked less often, up to ten times a second: asking costs the processors that it waits for.
    A check that raises AssertionError is asked again as well, and its last word becomes the failure.
    """
    began = time.monotonic()
    where = moves() if moves else None
    while True:
        try:
            found: T | None = check()
            reason = f"last answer: {found!r}"
        except AssertionError as error:
            found, reason = None, str(error)
        if found:
            return found
        if moves and (now := moves()) != where:
            began, where = time.monotonic(), now
        waited = time.monotonic() - began
        if waited > timeout:
            raise AssertionError(f"did not happen within {timeout:g} s; {reason}")
        time.sleep(max(interval, min(waited * LATE, RARELY)) if interval else 0)
