"""The one rule for burying an instance, for worker nodes and for commands that wait.

A lease is over when the database's clock says so *and* the watcher has seen the same heartbeat for a full lease by its
own clock *and* has itself watched without a break for that long: a database that was away, or whose clock stepped,
ends nobody's lease.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import NamedTuple, Protocol
from uuid import UUID

BREAK = 2  # a watcher that was away for more than the lease divided by this starts anew


class Leaseholder(Protocol):
    """An instance as the database has it; `left` of the `lease` by the database's clock (seconds)."""

    @property
    def instance_id(self) -> UUID: ...
    @property
    def heartbeat_at(self) -> datetime: ...
    @property
    def left(self) -> float: ...
    @property
    def lease(self) -> float: ...


class SeenHeartbeat(NamedTuple):
    """A heartbeat, and since when it has been seen unchanged (seconds of the watcher's monotonic clock)."""

    heartbeat_at: datetime
    since: float


class Burials(NamedTuple):
    """The instances to bury now, and the seconds until the next one may be due (None: there is no other)."""

    due: list[UUID]
    next_in: float | None


def breaks(pause: float, lease: float) -> bool:
    """True if a pause of the watcher is so long that it has to watch a full lease anew."""
    return pause > lease / BREAK


def sightings(
    before: Mapping[UUID, SeenHeartbeat], instances: Iterable[Leaseholder], now: float, pause: float = 0.0
) -> dict[UUID, SeenHeartbeat]:
    """The sightings after a look at `now`, `pause` seconds after the look that made those of `before`."""
    return {each.instance_id: _sighting(before.get(each.instance_id), each, now, pause) for each in instances}


def _sighting(seen: SeenHeartbeat | None, instance: Leaseholder, now: float, pause: float) -> SeenHeartbeat:
    if seen and seen.heartbeat_at == instance.heartbeat_at and not breaks(pause, instance.lease):
        return seen
    return SeenHeartbeat(instance.heartbeat_at, now)


def burials(
    instances: Iterable[Leaseholder], seen: Mapping[UUID, SeenHeartbeat], now: float, steady_since: float | None = None
) -> Burials:
    """Judge all instances; `seen` has a sighting of each. No break since `steady_since`, None: since the sightings."""
    waits = {each.instance_id: _wait(each, seen[each.instance_id].since, now, steady_since) for each in instances}
    due = [instance for instance, wait in waits.items() if wait <= 0]
    return Burials(due, min((wait for wait in waits.values() if wait > 0), default=None))


def _wait(instance: Leaseholder, seen_since: float, now: float, steady_since: float | None) -> float:
    """Seconds until the instance may be buried; 0 or less: now."""
    since = seen_since if steady_since is None else max(seen_since, steady_since)
    return max(instance.left, instance.lease - (now - since))


class Beat(NamedTuple):
    """A heartbeat as the database has it; `left` of the `lease` by the database's clock (seconds)."""

    instance_id: UUID
    heartbeat_at: datetime
    left: float
    lease: float


class Silence:
    """Applies the rule for a watcher without heartbeats of its own, such as a command that waits for instances."""

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
