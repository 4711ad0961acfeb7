"""Leases: until when a process may trust its own, when its supervisor renews it, and when others may bury it.

The database's clock decides who owns what; local clocks may only end trust early. Two of them: one that counts
suspended time too, and the wall clock, because a paused virtual machine may stop the first.

One rule for burying an instance, for worker nodes and for commands that wait: its lease is over when the database's
clock says so *and* the watcher has seen the same heartbeat for a full lease by its own clock *and* has itself watched
without a break for that long. A database that was away, or whose clock stepped, ends nobody's lease.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Protocol
from uuid import UUID

HALF_LEASES = 3
"""Leases for which the poller alone, or the saver, may be silent: a statement that hangs is cut earlier, and a new
connection is tried for one lease at most."""
IDLE_LEASES = 2
"""Leases in which a child may neither read nor save while its supervisor reaches the database."""
LEASE_MARGIN = 0.1  # of the lease: what is left to a handler's start between the check and the lease's end
BREAK_DIVISOR = 2  # a watcher that was away for more than the lease divided by this starts anew


def trust_deadline(sent_at: float, lease: float) -> float:
    """The end of trust in a renewal sent at `sent_at` (seconds of the same clock)."""
    return sent_at + lease * (1 - LEASE_MARGIN)


def idle_limit(lease: float) -> float:
    """Seconds without a read or a save after which a child starts no handler: less than its supervisor's patience."""
    return IDLE_LEASES * lease * (1 - LEASE_MARGIN)


@dataclass(frozen=True, slots=True)
class ChildSigns:
    """A supervisor's view of a child: seconds since it last ticked; seconds its longest handler has run (None: no
    handler runs); True if the kernel says that it is stopped; seconds since the more silent one of its poller and
    saver last ticked; seconds in which it has neither read nor saved while the supervisor reached the database, or was
    `stuck`; False before its first read, when it could do nothing with a partition; seconds for which all its runners
    hang, and no handler runs."""

    silent: float
    handler: float | None
    stopped: bool
    half_silent: float = 0.0
    idle: float = 0.0
    has_read: bool = True
    stuck: float = 0.0


@dataclass(frozen=True, slots=True)
class Patience:
    """Limits, in seconds, for a child that is silent or busy."""

    lease: float
    handler_timeout: float
    drain_timeout: float


def should_renew_lease(signs: ChildSigns, patience: Patience) -> bool:
    """True if the child's lease is to be renewed. Where the child, or half of it, is silent, or it neither reads nor
    saves: only while a handler runs within its time and the child is not stopped. That handler may hold the
    interpreter; when it ends, and nothing more is read or saved, none will run."""
    if not signs.has_read:
        return False
    quiet = signs.silent >= patience.lease or signs.half_silent >= HALF_LEASES * patience.lease
    if not quiet and signs.idle < IDLE_LEASES * patience.lease:
        return True
    return not signs.stopped and signs.handler is not None and signs.handler < patience.handler_timeout


def should_kill(signs: ChildSigns, patience: Patience) -> bool:
    """True if the child is to be killed: silent for two leases beyond the first without a reason, idle for two, or a
    handler far over its time."""
    idle = signs.idle >= IDLE_LEASES * patience.lease
    if signs.handler is not None and signs.handler >= patience.handler_timeout + patience.drain_timeout:
        return idle or signs.silent >= patience.lease
    running = signs.handler is not None and not signs.stopped
    silent = signs.silent >= 3 * patience.lease or signs.half_silent >= (HALF_LEASES + 2) * patience.lease
    return not running and (idle or silent)


class HeartbeatStreak:
    """Since when a supervisor has reached its database without a break, in seconds of a clock that counts suspended
    time: what its children could not do meanwhile, they alone could not."""

    def __init__(self, lease: float) -> None:
        self._lease = lease
        self._since: float | None = None
        self._at = 0.0

    def note(self, now: float, *, reached: bool) -> None:
        """Note whether a tick that ended `now` reached the database."""
        if not reached:
            self._since = None
        elif self._since is None or breaks_watch(now - self._at, self._lease):
            self._since = now
        self._at = now

    def lasted_for(self, now: float) -> float:
        """Seconds that it has lasted by `now`; 0.0 if the last tick was long ago: the supervisor itself was away."""
        return 0.0 if self._since is None or breaks_watch(now - self._at, self._lease) else now - self._since


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


def breaks_watch(pause: float, lease: float) -> bool:
    """True if a pause of the watcher is so long that it has to watch a full lease anew."""
    return pause > lease / BREAK_DIVISOR


def update_sightings(
    before: Mapping[UUID, SeenHeartbeat], instances: Iterable[Leaseholder], now: float, pause: float = 0.0
) -> dict[UUID, SeenHeartbeat]:
    """The sightings after a look at `now`, `pause` seconds after the look that made those of `before`."""
    return {each.instance_id: _sighting(before.get(each.instance_id), each, now, pause) for each in instances}


def _sighting(seen: SeenHeartbeat | None, instance: Leaseholder, now: float, pause: float) -> SeenHeartbeat:
    if seen and seen.heartbeat_at == instance.heartbeat_at and not breaks_watch(pause, instance.lease):
        return seen
    return SeenHeartbeat(instance.heartbeat_at, now)


def find_burials(
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


class Heartbeat(NamedTuple):
    """A heartbeat as the database has it; `left` of the `lease` by the database's clock (seconds)."""

    instance_id: UUID
    heartbeat_at: datetime
    left: float
    lease: float


class SilenceWatch:
    """Applies the rule for a watcher without heartbeats of its own, such as a command that waits for instances."""

    def __init__(self) -> None:
        self._seen: dict[UUID, SeenHeartbeat] = {}
        self._checked_at: float | None = None

    def expired(self, beats: Iterable[Heartbeat], now: float) -> list[UUID]:
        """Note these beats, seen at `now` (seconds of a monotonic clock); the instances to bury."""
        pause = 0.0 if self._checked_at is None else now - self._checked_at
        self._checked_at = now
        instances = list(beats)
        self._seen = update_sightings(self._seen, instances, now, pause)
        return find_burials(instances, self._seen, now).due
