"""Signals between the parts of one worker. A part that tells knows none that listens: `worker.py` adds the listeners.

A signal calls its listeners one after the other in the thread that tells, in the order in which they were added.
"""

from collections.abc import Callable, Sequence
from typing import Generic, ParamSpec

from partbox.worker.state.key import Key
from partbox.worker.state.partition import Lane, Partition

P = ParamSpec("P")


class Signal(Generic[P]):
    """Something that happens, and those who are to hear of it."""

    __slots__ = ("_listeners",)

    def __init__(self) -> None:
        self._listeners: list[Callable[P, object]] = []

    def listen(self, listener: Callable[P, object]) -> None:
        """Tell this one too, from now on."""
        self._listeners.append(listener)

    def __call__(self, *arguments: P.args, **keywords: P.kwargs) -> None:
        """Tell all."""
        for listener in self._listeners:
            listener(*arguments, **keywords)


class Signals:
    """The signals of one worker."""

    def __init__(self) -> None:
        self.claimed: Signal[int] = Signal()
        """A partition is mine, with this saved floor. By the poller, lock held."""

        self.reloaded: Signal[Partition, Sequence[Key]] = Signal()
        """A command has changed parked rows of these keys, which are in memory as they are now. Lock held."""

        self.lost: Signal[Sequence[Partition]] = Signal()
        """Partitions are not mine any more: a save of them was refused. By whoever saves, without the lock."""

        self.released: Signal[Partition] = Signal()
        """A partition was let go with the save that is committed now. By the saver, without the lock."""

        self.saved: Signal[[]] = Signal()
        """A save is over, which may have been in the way of a transaction. By whoever saves, without the lock."""

        self.broken: Signal[[]] = Signal()
        """A connection is lost, or what was read is not to be trusted: all is to be read anew. Any thread."""

        self.transactional: Signal[Lane] = Signal()
        """The next event of a lane is for the thread of transactional handlers. Lock held."""

        self.failed: Signal[BaseException] = Signal()
        """A thread has ended that must not: the worker is of no use any more. By that thread."""
