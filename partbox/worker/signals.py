"""Signals between the parts of one worker. A part that tells knows none that listens: `worker.py` sets the listeners.

A signal is called in the thread that tells.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from partbox.worker.state.key import Key
from partbox.worker.state.partition import Lane, Partition


def _unheard(*_: object) -> None:
    """No part listens."""


@dataclass(slots=True)
class Signals:
    """The listener of each signal of one worker."""

    claimed: Callable[[int], object] = _unheard
    """A partition is mine, with this saved floor. By the poller."""

    reloaded: Callable[[Partition, Sequence[Key]], object] = _unheard
    """A command has changed parked rows of these keys, which are in memory as they are now. Lock held."""

    lost: Callable[[Sequence[Partition]], object] = _unheard
    """Partitions are not mine any more: a save of them was refused. By whoever saves, without the lock."""

    saved: Callable[[], object] = _unheard
    """A save is over, which may have been in the way of a transaction. By whoever saves, without the lock."""

    broken: Callable[[], object] = _unheard
    """A connection is lost, or what was read is not to be trusted: all is to be read anew. Any thread."""

    transactional: Callable[[Lane], object] = _unheard
    """The next event of a lane is for the thread of transactional handlers. Lock held."""

    failed: Callable[[BaseException], object] = _unheard
    """A thread has ended that must not: the worker is of no use any more. By that thread."""
