"""Heartbeats watched by one who only looks on, such as a command that waits for instances to release."""

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from partbox.protocol.burial import SeenHeartbeat, burials, sightings


class Beat(NamedTuple):
    """A heartbeat as the database has it; `left` of the `lease` by the database's clock (seconds)."""

    instance_id: UUID
    heartbeat_at: datetime
    left: float
    lease: float


class Silence:
    """The heartbeats seen so far."""

    def __init__(self) -> None:
        self._seen: dict[UUID, SeenHeartbeat] = {}
        self._looked: float | None = None

    def over(self, beats: Iterable[Beat], now: float) -> list[UUID]:
        """Note these beats, seen at `now` (seconds of a monotonic clock); the instances to bury."""
        pause = 0.0 if self._looked is None else now - self._looked
        self._looked = now
        instances = list(beats)
        self._seen = sightings(self._seen, instances, now, pause)
        return burials(instances, self._seen, now).due
