"""Waiting for what another thread or process brings about: the only place of the tests that sleeps."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(check: Callable[[], T], timeout: float = 30, interval: float = 0.01) -> T:
    """The first truthy value of `check()`, asked every `interval` seconds; fails after `timeout` seconds.

    A check that raises AssertionError is asked again as well, and its last word becomes the failure.
    """
    end = time.monotonic() + timeout
    while True:
        try:
            found: T | None = check()
            reason = f"last answer: {found!r}"
        except AssertionError as error:
            found, reason = None, str(error)
        if found:
            return found
        if time.monotonic() > end:
            raise AssertionError(f"did not happen within {timeout:g} s; {reason}")
        time.sleep(interval)
