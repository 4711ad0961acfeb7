"""Rates beside others in the same run: a drain beside raw reading, a relay beside the brokers' own libraries.

`scripts/bench` runs it, in a checkout: the brokers are those of the tests.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from partbox.supervisor.supervisor import Supervisor

TESTS: Final = Path(__file__).resolve().parents[3] / "tests"
"""The folder of the checkout's tests, whose brokers the ratios are measured with."""


@contextmanager
def running(node: "Supervisor") -> "Iterator[Supervisor]":
    """A node that runs while `with` lasts."""
    node.start()
    try:
        yield node
    finally:
        node.stop()
        node.join()


def wait_empty(node: "Supervisor") -> None:
    """Wait until everything is delivered and saved."""
    while (work := node.outstanding()) is None or not work.is_done:
        time.sleep(0.1)
