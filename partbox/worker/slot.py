"""The slot: numbers that a worker process shares with its supervisor: identity, trust in the lease, signs of life."""

import time
from collections.abc import MutableSequence
from typing import Any
from uuid import UUID

from partbox.platform import boottime

# Indexes of the times in a slot.
DEADLINE, WALL_DEADLINE, POLL_TICK, SAVE_TICK, RUNNING_SINCE, STOPPING = range(6)
OWNED, TIMEOUT, READ_AT, SAVED_AT, PLAN_COUNT, IDLE_LIMIT, LIFESPAN_SINCE, HUNG_SINCE = range(6, 14)
TIMES_PER_SLOT = 14
IDS_PER_SLOT = 3


class Slot:
    """A part of shared memory in which a worker process and its supervisor exchange identity, lease and heartbeats.

    `times` and `ids` are flat sequences shared by all slots."""

    def __init__(self, times: MutableSequence[float], ids: MutableSequence[int], index: int = 0) -> None:
        self._times = times
        self._ids = ids
        self._first_time = index * TIMES_PER_SLOT
        self._first_id = index * IDS_PER_SLOT

    @classmethod
    def create_local(cls) -> "Slot":
        """Create a slot in plain memory instead of shared memory, for a worker without a process of its own."""
        # Such a worker is embedded in an application's process.
        return cls([0.0] * TIMES_PER_SLOT, [0] * IDS_PER_SLOT)

    def __getitem__(self, field: int) -> float:
        return self._times[self._first_time + field]

    def __setitem__(self, field: int, value: float) -> None:
        self._times[self._first_time + field] = value

    def clear(self) -> None:
        """Reset all times and the instance id that an earlier process has left in the slot."""
        self.instance = None
        for field in range(TIMES_PER_SLOT):
            self[field] = 0.0

    def is_trusted(self) -> bool:
        """Return True if a handler may start now because the lease of this process is valid."""
        # The lease must hold by both the boot clock and the wall clock, and the process must not be idle
        # for too long.
        if (limit := self[IDLE_LIMIT]) and boottime() - self.worked_at > limit:
            return False
        return self[DEADLINE] > boottime() and self[WALL_DEADLINE] > time.time()

    @property
    def worked_at(self) -> float:
        """The last time at which the process has read or saved events (boot clock), or 0.0 if it never has."""
        return max(self[READ_AT], self[SAVED_AT])

    def count_lifespan_seconds(self, now: float) -> float:
        """Return for how many seconds the process has been in the application's startup code (its lifespan)."""
        # `now` is a boot time. It returns 0.0 if the process works already.
        works = self[POLL_TICK] > 0 or self[SAVE_TICK] > 0
        return 0.0 if works or not self[LIFESPAN_SINCE] else now - self[LIFESPAN_SINCE]

    def count_hung_seconds(self, now: float) -> float:
        """Return for how many seconds all threads that run handlers have been hanging, or 0.0 if they do not."""
        # `now` is a boot time.
        since = self[HUNG_SINCE]
        return now - since if since else 0.0

    def trust_until(self, boot: float, wall: float) -> None:
        """Set the time until which the process may trust its lease, by boot clock and by wall clock."""
        self[WALL_DEADLINE] = wall
        self[DEADLINE] = boot

    @property
    def version(self) -> int:
        """A number that changes whenever the instance id changes. It is odd while the id is being changed."""
        return self._ids[self._first_id]

    @property
    def instance(self) -> UUID | None:
        """The instance id under which the process is registered in the database, or None."""
        # The supervisor writes it.
        # The version is changed before and after the id is written, which reveals a torn read.
        while True:
            before, high, low = self._ids[self._first_id : self._first_id + IDS_PER_SLOT]
            if before % 2 == 0 and before == self._ids[self._first_id]:
                return UUID(int=high << 64 | low) if high or low else None

    @instance.setter
    def instance(self, value: UUID | None) -> None:
        number = value.int if value else 0
        self._ids[self._first_id] += 1
        self._ids[self._first_id + 1] = number >> 64
        self._ids[self._first_id + 2] = number & (1 << 64) - 1
        self._ids[self._first_id] += 1


def allocate_shared(context: Any, count: int) -> tuple[Any, Any]:
    """Allocate shared memory for the state and heartbeats of `count` worker processes."""
    # Each process uses one slot of it. Children of the multiprocessing `context` inherit it.
    return context.RawArray("d", count * TIMES_PER_SLOT), context.RawArray("Q", count * IDS_PER_SLOT)
