"""Rates compared with others in the same run: a drain with raw reading, a relay with the brokers' own libraries.

`scripts/bench` runs the package in a checkout, because the brokers are those of the tests."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from partbox.supervisor.supervisor import Supervisor

# The folder of the checkout's tests, which holds the brokers.
TESTS: Final = Path(__file__).resolve().parents[3] / "tests"


@contextmanager
def running(node: "Supervisor") -> "Iterator[Supervisor]":
    """Run a node while the block lasts."""
    node.start()
    try:
        yield node
    finally:
        node.stop()
        node.join()


def wait_empty(node: "Supervisor") -> None:
    """Wait until all events are delivered and saved."""
    while (work := node.find_outstanding_work()) is None or not work.is_done:
        time.sleep(0.1)
