"""State that all parts of the engine share: the lock, the owned partitions, and the queue of wake-up times.

The one lock guards everything that the threads of a process share about partitions. A thread takes the lock once for a
lane or for a partition's part of a page, not once for an event. Parts that make lanes ready use `LaneScheduler`, and
parts that end events use `Outcomes`; otherwise the parts do not know each other."""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from threading import Lock

from partbox.protocol.parking import ParkedRow
from partbox.worker.engine.evicted_rows import StoredWaits
from partbox.worker.engine.key import Key
from partbox.worker.engine.partition import Partition
from partbox.worker.engine.poison import Charges

RECHECK_AFTER = 0.05  # seconds


def _ignore(*_: object, **__: object) -> None: ...


@dataclass(slots=True)
class WakeCalls:
    """The callbacks by which the engine wakes other threads of the process.

    The engine's lock may be held during a call, so a callback must not block or take the lock."""

    # Wakes the poller: there is room to read more.
    wake_poller: Callable[[], object] = _ignore
    # Wakes the poller, and ends its series of pages.
    interrupt_poller: Callable[[], object] = _ignore
    # Wakes the saver: there is something to save.
    wake_saver: Callable[[], object] = _ignore
    # Wakes the saver, and ends its pause: there may be a partition to release.
    interrupt_saver: Callable[[], object] = _ignore
    # Wakes a waiting runner: there may be a lane for it.
    wake_runner: Callable[[], object] = _ignore
    # Wakes the dead-letter thread: a dead event waits.
    wake_dead_letters: Callable[[], object] = _ignore
    # Starts one more runner: there is work for it.
    hire_runner: Callable[[], object] = _ignore
    # Informs the supervisor that handlers run from now on (True), or that none runs any more (False).
    report_busy: Callable[[bool], object] = _ignore
    # Wakes the transactor: a save that was in its way may be over.
    wake_transactor: Callable[[], object] = _ignore


class EngineState:
    """The lock, partitions and wake-up times that all parts of the engine share.

    Every method needs `lock` to be held."""

    def __init__(self, concurrency: int = 1) -> None:
        self.lock = Lock()
        self.wakes = WakeCalls()
        self.charges = Charges(concurrency)
        self.partitions: dict[int, Partition] = {}
        # The version of the slot's identity that owns the partitions. Trust in another version does not cover them.
        self.version = 0
        self.dirty_partitions: set[Partition] = set()
        # Partitions with rows that block nothing and may be fetched before they are due.
        self.early_partitions: set[int] = set()
        # True in a process that a handler or the application has forked, where all of this is a copy.
        self.is_forked = False
        # True if the poller knows of more records than there is room for.
        self.has_backlog = False
        # Called after partitions were claimed, lost or began to drain.
        self.on_ownership_change: Callable[[float | None], object] = _ignore
        # Spilled keys whose next records need rows, by partition.
        self.refills: dict[Partition, dict[Key, None]] = {}
        # Rows of earlier owners that wait for a turn under a limit.
        self.stored_waits = StoredWaits()
        self._wakeups: list[tuple[float, int, Partition, int, Key]] = []
        self._ticket = count()

    def mark_dirty(self, partition: Partition) -> None:
        """Record that a partition has changes to save, and wake the saver."""
        # The next save includes the partition.
        if partition not in self.dirty_partitions:
            self.dirty_partitions.add(partition)
            self.wakes.wake_saver()
        # No handler of the partition runs any more, so its release must not wait for the saver's pause.
        if partition.is_draining and not partition.running_count:
            self.wakes.interrupt_saver()

    def take_dirty(self) -> list[Partition]:
        """Remove and return all partitions that have something to save."""
        # Partitions in which a transactional handler runs are left out, because its transaction saves them. Partitions
        # that a lane touched after their release was gathered are left out too.
        dirty = [
            each
            for each in self.dirty_partitions
            if not each.is_lost and not each.in_transaction and self._is_current(each)
        ]
        self.dirty_partitions.clear()
        return dirty

    def drop_partition(self, partition: Partition) -> None:
        """Remove a released or lost partition from memory, unless this process has claimed it again meanwhile."""
        if self._is_current(partition):
            del self.partitions[partition.number]

    def _is_current(self, partition: Partition) -> bool:
        return self.partitions.get(partition.number) is partition

    def schedule_wakeup(self, partition: Partition, key: Key) -> None:
        """Schedule a check of a key's failed or waiting events for the time at which the first may run."""
        # Nothing is scheduled if there is no such time.
        chain = partition.parked.chains.get(key)
        at = chain.wakes_at() if chain else None
        if at is not None:
            heapq.heappush(self._wakeups, (at, next(self._ticket), partition, partition.incarnation, key))

    def pop_wakeup(self, now: float) -> tuple[Partition, Key] | None:
        """Remove and return the next partition and key whose failed or waiting events may run at `now`, or None."""
        # `now` is in monotonic seconds. If handlers of the partition may not start yet, the key comes again
        # `RECHECK_AFTER` seconds later.
        while self._wakeups and self._wakeups[0][0] <= now:
            _, _, partition, incarnation, key = heapq.heappop(self._wakeups)
            if key not in partition.parked.chains or partition.incarnation != incarnation or partition.is_stopping:
                continue
            if partition.may_begin(key):
                return partition, key
            heapq.heappush(self._wakeups, (now + RECHECK_AFTER, next(self._ticket), partition, incarnation, key))
        return None

    def put_back_rows(self, partition: Partition, key: Key, rows: list[ParkedRow]) -> None:
        """Let loaded events of a key wait again, because they were not used."""
        # The events are parked.
        # The time at which these parked rows may run is scheduled.
        for row in rows:
            row.put_back()
        self.schedule_wakeup(partition, key)

    def wake_next_trials(self) -> None:
        """Schedule the events that may have killed a process and whose turn to run has come. Wake the poller."""
        # The rows of these suspects are charged before they run.
        if self.charges.has_waiting:
            for partition, key in self.charges.take_next_trials():
                self.schedule_wakeup(partition, key)
            self.wakes.interrupt_poller()

    def park_followers(self, partition: Partition, keys: Sequence[Key]) -> None:
        """Move the waiting events of these keys to database rows, because an earlier event blocks them."""
        # The events are parked (set aside).
        for key in keys:
            lane, chain = partition.lanes.get(key), partition.parked.chains.get(key)
            if lane is not None and chain is not None and lane.queue and not chain.is_caught_up():
                lane.park_waiting()
                self.mark_dirty(partition)

    def awaits_saves(self) -> bool:
        """Return True if the next save may give the poller more to do."""
        # There is a backlog of records, or parked rows wait for a time.
        return self.has_backlog or bool(self._wakeups)

    def find_next_wakeup(self) -> float | None:
        """Return the earliest time (monotonic seconds) at which failed or waiting events may run, or None."""
        return self._wakeups[0][0] if self._wakeups else None
