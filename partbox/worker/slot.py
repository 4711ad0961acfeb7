"""The few numbers that a worker process and its supervisor share: identity, trust in the lease, signs of life.

A tick says that a thread lives, READ_AT and SAVED_AT that it has also done its work: a poller that only ever connects
ticks and does not read. Who has done neither for IDLE_LIMIT seconds (0: no limit) starts no handler.

PLANS is raised when the supervisor has planned anew: its processes look at once for what is theirs now. ENTERED: when
the lifespan was begun, which is to be left. STUCK_SINCE: since when all runners hang and no handler runs (0: not so).

An array without a lock: each place is written by one side, the supervisor or the worker, and STOPPING by both, which
only set it. Embedded in an application both sides live in one process and the array is plain memory.
"""

import time
from collections.abc import MutableSequence
from typing import Any
from uuid import UUID

from partbox.platform import boottime

DEADLINE, WALL_DEADLINE, POLL_TICK, SAVE_TICK, RUNNING_SINCE, STOPPING = range(6)
OWNED, TIMEOUT, READ_AT, SAVED_AT, PLAN_COUNT, IDLE_LIMIT, LIFESPAN_SINCE, HUNG_SINCE = range(6, 14)
TIMES_PER_SLOT = 14
IDS_PER_SLOT = 3


class Slot:
    """One process's part of the array: `times` and `ids` are flat sequences shared by all slots."""

    def __init__(self, times: MutableSequence[float], ids: MutableSequence[int], index: int = 0) -> None:
        self._times = times
        self._ids = ids
        self._first_time = index * TIMES_PER_SLOT
        self._first_id = index * IDS_PER_SLOT

    @classmethod
    def local(cls) -> "Slot":
        """A slot in plain memory, for a worker embedded in an application."""
        return cls([0.0] * TIMES_PER_SLOT, [0] * IDS_PER_SLOT)

    def __getitem__(self, field: int) -> float:
        return self._times[self._first_time + field]

    def __setitem__(self, field: int, value: float) -> None:
        self._times[self._first_time + field] = value

    def clear(self) -> None:
        """Forget an earlier process: no identity, no trust, no life."""
        self.instance = None
        for field in range(TIMES_PER_SLOT):
            self[field] = 0.0

    def is_trusted(self) -> bool:
        """True if a handler may start now: never past the lease, by either clock (⛨ DESIGN 5)."""
        if (limit := self[IDLE_LIMIT]) and boottime() - self.worked_at > limit:
            return False
        return self[DEADLINE] > boottime() and self[WALL_DEADLINE] > time.time()

    @property
    def worked_at(self) -> float:
        """The last time that the process has read or saved; 0.0 if it never has."""
        return max(self[READ_AT], self[SAVED_AT])

    def lifespan_seconds(self, now: float) -> float:
        """Seconds by `now` (boot time) for which it has been in its lifespan, before it works; 0.0 if it is not."""
        works = self[POLL_TICK] > 0 or self[SAVE_TICK] > 0
        return 0.0 if works or not self[LIFESPAN_SINCE] else now - self[LIFESPAN_SINCE]

    def hung_seconds(self, now: float) -> float:
        """Seconds by `now` (boot time) for which all its runners hang; 0.0 if they do not."""
        since = self[HUNG_SINCE]
        return now - since if since else 0.0

    def trust_until(self, boot: float, wall: float) -> None:
        self[WALL_DEADLINE] = wall
        self[DEADLINE] = boot

    @property
    def version(self) -> int:
        """A number that changes whenever the identity does."""
        return self._ids[self._first_id]

    @property
    def instance(self) -> UUID | None:
        """My instance id. Written by the supervisor: a version before and after tells a torn reading."""
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
    """The arrays for `count` slots, in memory that children of `context` (multiprocess) inherit."""
    return context.RawArray("d", count * TIMES_PER_SLOT), context.RawArray("Q", count * IDS_PER_SLOT)
