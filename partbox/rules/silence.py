"""The instances that an onlooker may bury, such as a command that waits for them to release.

A lease is over when the database's clock says so *and* the looker has seen the same heartbeat for a full lease by its
own clock, without a gap in looking: a clock that steps, or a database that was away, must end no lease.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple
from uuid import UUID


class Beat(NamedTuple):
    """A heartbeat as the database has it; `left` of the `lease` by the database's clock (seconds)."""

    instance_id: UUID
    heartbeat_at: datetime
    left: float
    lease: float


class _Sight(NamedTuple):
    heartbeat_at: datetime
    since: float


class Silence:
    """The heartbeats seen so far."""

    def __init__(self) -> None:
        self._sights: dict[UUID, _Sight] = {}
        self._looked: float | None = None

    def over(self, beats: Iterable[Beat], now: float) -> list[UUID]:
        """Note these beats, seen at `now` (monotonic seconds), and return the instances whose leases are over."""
        before, self._sights = self._sights, {}
        gap = 0.0 if self._looked is None else now - self._looked
        self._looked = now
        over = []
        for beat in beats:
            seen = before.get(beat.instance_id)
            kept = seen is not None and seen.heartbeat_at == beat.heartbeat_at and gap <= beat.lease / 2
            sight = seen if seen is not None and kept else _Sight(beat.heartbeat_at, now)
            self._sights[beat.instance_id] = sight
            if beat.left <= 0 and now - sight.since >= beat.lease:
                over.append(beat.instance_id)
        return over
