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
    """One process's part of the array. `times` and `ids` are flat sequences shared by all slots."""

    def __init__(self, times: MutableSequence[float], ids: MutableSequence[int], index: int = 0) -> None:
        self._times = times
        self._ids = ids
        self._first_time = index * TIMES_PER_SLOT
        self._first_id = index * IDS_PER_SLOT

    @classmethod
    def local(cls) -> "Slot":
        """Create a slot in plain memory, for a worker embedded in an application."""
        return cls([0.0] * TIMES_PER_SLOT, [0] * IDS_PER_SLOT)

    def __getitem__(self, field: int) -> float:
        return self._times[self._first_time + field]

    def __setitem__(self, field: int, value: float) -> None:
        self._times[self._first_time + field] = value

    def clear(self) -> None:
        """Clear all times and the identity that an earlier process has left."""
        self.instance = None
        for field in range(TIMES_PER_SLOT):
            self[field] = 0.0

    def is_trusted(self) -> bool:
        """Return True if a handler may start now. The lease must hold by both clocks (⛨ DESIGN 5)."""
        if (limit := self[IDLE_LIMIT]) and boottime() - self.worked_at > limit:
            return False
        return self[DEADLINE] > boottime() and self[WALL_DEADLINE] > time.time()

    @property
    def worked_at(self) -> float:
        """The last time at which the process has read or saved, or 0.0 if it never has."""
        return max(self[READ_AT], self[SAVED_AT])

    def lifespan_seconds(self, now: float) -> float:
        """Return the seconds by `now` (boot time) since the process began its lifespan, or 0.0 if it works already."""
        works = self[POLL_TICK] > 0 or self[SAVE_TICK] > 0
        return 0.0 if works or not self[LIFESPAN_SINCE] else now - self[LIFESPAN_SINCE]

    def hung_seconds(self, now: float) -> float:
        """Return the seconds by `now` (boot time) for which all runners have hung, or 0.0 if they do not hang."""
        since = self[HUNG_SINCE]
        return now - since if since else 0.0

    def trust_until(self, boot: float, wall: float) -> None:
        """Set the end of the lease by the boot clock and by the wall clock."""
        self[WALL_DEADLINE] = wall
        self[DEADLINE] = boot

    @property
    def version(self) -> int:
        """A number that changes whenever the identity does, and is odd during a change."""
        return self._ids[self._first_id]

    @property
    def instance(self) -> UUID | None:
        """The instance id of the process, or None. The supervisor writes it."""
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
    """Allocate the arrays of `count` slots in memory that children of the multiprocessing `context` inherit."""
    return context.RawArray("d", count * TIMES_PER_SLOT), context.RawArray("Q", count * IDS_PER_SLOT)
