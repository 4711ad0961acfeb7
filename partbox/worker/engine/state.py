"""All that the engine's verbs share: partitions, those with something to save, blocked keys that may go on.

The one lock here guards everything that the threads of a process share about partitions. It is taken once for a lane
or a page of a partition, not once for an event. Every façade of the engine has this state. Those that make lanes ready
have `LaneScheduler` too, and those that end events `Outcomes`; else they know nothing of each other.
"""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from threading import Lock

from partbox.protocol.parking import ParkedRow
from partbox.worker.engine.key import Key
from partbox.worker.engine.partition import Partition
from partbox.worker.engine.poison import Charges

RECHECK_AFTER = 0.05  # seconds until a partition that may not begin yet is looked at again


def _ignore(*_: object, **__: object) -> None:
    """Nobody waits."""


@dataclass(slots=True)
class WakeCalls:
    """Calls that wake the drivers; each driver puts in its own. Called with the lock held or without."""

    poll: Callable[[], object] = _ignore  # the poller: there is room to read more
    interrupt_poller: Callable[[], object] = _ignore  # the poller, which stops reading page after page for it
    save: Callable[[], object] = _ignore  # the saver: there is something to save
    release: Callable[[], object] = _ignore  # the saver: there may be something to release, so it need not rest
    run: Callable[[], object] = _ignore  # a runner that waits: there may be a lane for it
    dead_letter: Callable[[], object] = _ignore  # whoever tells of dead events: one waits
    hire: Callable[[], object] = _ignore  # whoever makes runners: there is work for one more
    busy: Callable[[bool], object] = _ignore  # the supervisor: handlers run from now on, or none does any more
    transact: Callable[[], object] = _ignore  # the transactor: a save that may have been in its way is over


class EngineState:
    """The partitions of one process. Every method wants the lock held."""

    def __init__(self, concurrency: int = 1) -> None:
        self.lock = Lock()
        self.wakes = WakeCalls()
        self.charges = Charges(concurrency)
        self.partitions: dict[int, Partition] = {}
        self.version = 0  # the slot's, of the identity that holds them: what is trusted under another is not for them
        self.dirty: set[Partition] = set()
        self.early: set[int] = set()  # partitions with rows that block nothing and may be fetched before they are due
        self.is_forked = False  # these are a copy, in a process that a handler or the application has forked
        self.backlog = False  # there is more to read than there is room for, as far as the poller knows
        self.owned: Callable[[float | None], object] = _ignore  # partitions have come or begun to go
        self._wakeups: list[tuple[float, int, Partition, int, Key]] = []
        self._ticket = count()

    def mark_dirty(self, partition: Partition) -> None:
        """The partition has something to save."""
        if partition not in self.dirty:
            self.dirty.add(partition)
            self.wakes.save()
        if partition.draining and not partition.running:
            self.wakes.release()

    def take_dirty(self) -> list[Partition]:
        """The partitions that have something to save, which from here on have not; a transaction's own save apart.

        One that was let go may have been touched after its release was gathered: by a lane that began nothing.
        """
        dirty = [each for each in self.dirty if not each.lost and not each.in_transaction and self._is_current(each)]
        self.dirty.clear()
        return dirty

    def drop(self, partition: Partition) -> None:
        """Forget a partition that was released, or lost and is quiet."""
        if self._is_current(partition):
            del self.partitions[partition.number]

    def _is_current(self, partition: Partition) -> bool:
        return self.partitions.get(partition.number) is partition

    def wake(self, partition: Partition, key: Key) -> None:
        """Note when the head of a blocked key may run, if it may by itself."""
        chain = partition.parked.chains.get(key)
        at = chain.wakes_at() if chain else None
        if at is not None:
            heapq.heappush(self._wakeups, (at, next(self._ticket), partition, partition.incarnation, key))

    def pop_wakeup(self, now: float) -> tuple[Partition, Key] | None:
        """The next blocked key whose head may run by now, if its partition may begin; else it is looked at again."""
        while self._wakeups and self._wakeups[0][0] <= now:
            _, _, partition, incarnation, key = heapq.heappop(self._wakeups)
            if key not in partition.parked.chains or partition.incarnation != incarnation or partition.is_stopping:
                continue
            if partition.may_begin():
                return partition, key
            heapq.heappush(self._wakeups, (now + RECHECK_AFTER, next(self._ticket), partition, incarnation, key))
        return None

    def put_back_rows(self, partition: Partition, key: Key, rows: list[ParkedRow]) -> None:
        """Put back rows that could not be run after all: their key wakes again."""
        for row in rows:
            row.put_back()
        self.wake(partition, key)

    def wake_next_trials(self) -> None:
        """Wake the suspects whose turn has come: after whatever may have ended the turn of others."""
        if self.charges.waiting:
            for partition, key in self.charges.take_next_trials():
                self.wake(partition, key)
            self.wakes.interrupt_poller()

    def park_followers(self, partition: Partition, keys: Sequence[Key]) -> None:
        """Parked rows of these keys are as the database has them: hold what waits in memory and must run after one."""
        for key in keys:
            lane, chain = partition.lanes.get(key), partition.parked.chains.get(key)
            if lane is not None and chain is not None and lane.queue and not chain.caught_up():
                lane.park_waiting()
                self.mark_dirty(partition)

    def awaits_saves(self) -> bool:
        """True if the poller may go on when something is saved: there is room then, or a blocked key wakes."""
        return self.backlog or bool(self._wakeups)

    def next_wakeup(self) -> float | None:
        """The time at which a blocked key may wake (monotonic seconds)."""
        return self._wakeups[0][0] if self._wakeups else None
