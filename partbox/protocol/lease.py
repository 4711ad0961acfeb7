"""Leases: how long a process may trust its own, when its supervisor renews it, and when others may bury the process.
The database's clock decides who owns a partition. Local clocks may only end trust early."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Protocol
from uuid import UUID

# Leases for which the poller alone, or the saver alone, may be silent. A statement that hangs is cancelled earlier, and
# a new connection is tried for at most one lease.
HALF_LEASES = 3
# Leases for which a child may neither read nor save while its supervisor reaches the database.
IDLE_LEASES = 2
# A membership statement hangs after the lease divided by this number, or later on a slow server.
LIMITS_PER_LEASE = 3
SHORTEST_LIMIT = 0.5  # seconds
# A server that took long may take this many times as long the next time, before its connection is cut.
SLOWNESS = 4
# A node whose own heartbeats were late waits longer before it buries other nodes: DELAY_FACTOR times its delay, and at
# most MOST_EXTRA_LEASES leases, in addition to the lease of the other node.
DELAY_FACTOR = 4
MOST_EXTRA_LEASES = 2
# A beat is late if it follows the one before after more than this many intervals.
LATE_INTERVALS = 1.5
# Fraction of the lease that is left for the start of a handler between the check and the end of the lease.
LEASE_MARGIN = 0.1
# A watcher that was away for more than the lease divided by this number starts anew.
BREAK_DIVISOR = 2


def trust_deadline(sent_at: float, lease: float) -> float:
    """Return the time until which a process may rely on the lease that it renewed at `sent_at`."""
    # Two local clocks are used: a clock that also counts suspended time, and the wall clock, because a paused virtual
    # machine may stop the first.
    # The process sent the renewal at `sent_at`, in seconds of the same clock.
    return sent_at + lease * (1 - LEASE_MARGIN)


def idle_limit(lease: float) -> float:
    """Return the seconds without a successful read or save after which a worker process starts no more handlers."""
    # A read or a save of progress counts. The limit is less than the time after which the supervisor gives up on the
    # child.
    return IDLE_LEASES * lease * (1 - LEASE_MARGIN)


def choose_statement_limit(took: float, lease: float, longest: float) -> float:
    """Return the seconds after which a statement of the next heartbeat hangs, if the last heartbeat `took` seconds."""
    # A silent connection is cut while the lease still holds. If the server is only slow, to cut the connection costs
    # more than to wait: the server finishes the statement for nobody, and has one more connection to make.
    return min(longest, max(SHORTEST_LIMIT, lease / LIMITS_PER_LEASE, SLOWNESS * took))


def measure_delay(before: float, gap: float, interval: float) -> float:
    """Return the seconds by which the last heartbeats of a watcher were late.

    `before` is the result for the previous heartbeat, which counts half, and `gap` the seconds since then."""
    return max(before / 2, gap - LATE_INTERVALS * interval, 0.0)


def extra_patience(delay: float, lease: float) -> float:
    """Return the seconds beyond its lease that a watcher, late by `delay` seconds itself, gives others."""
    # What delays one, such as a busy server, delays others too, and a living process that is buried has to begin anew.
    return min(DELAY_FACTOR * delay, MOST_EXTRA_LEASES * lease)


@dataclass(frozen=True, slots=True)
class ChildSigns:
    """The signs of life of a worker process as its supervisor sees them, such as the seconds of its silence.

    All times are in seconds.

    Attributes:
        silent_for: Since the last tick of the child.
        handler_seconds: Running time of the handler that has run longest, or None if no handler runs.
        is_stopped: True if the kernel says that the process is stopped.
        half_silent_for: Since the last tick of the poller or of the saver, whichever is more silent.
        idle_for: Time without a read or a save while the supervisor reached the database, or `stuck_for` if that is
            longer.
        has_read: False before the first read, when the child could do nothing with a partition.
        stuck_for: Time for which all runners hang and no handler runs."""

    silent_for: float
    handler_seconds: float | None
    is_stopped: bool
    half_silent_for: float = 0.0
    idle_for: float = 0.0
    has_read: bool = True
    stuck_for: float = 0.0


@dataclass(frozen=True, slots=True)
class Patience:
    """The time limits, in seconds, after which a supervisor gives up on a silent or busy child process."""

    lease: float
    handler_timeout: float
    drain_timeout: float


def should_renew_lease(signs: ChildSigns, patience: Patience) -> bool:
    """Return True if the supervisor should renew the lease by which its child process owns partitions."""
    # If the child or half of it is silent, or if the child neither reads nor saves, the lease is renewed only while a
    # handler runs within its time limit and the child is not stopped. The handler may hold the interpreter. When it
    # ends and the child still reads and saves nothing, no other handler will run.
    if not signs.has_read:
        return False
    quiet = signs.silent_for >= patience.lease or signs.half_silent_for >= HALF_LEASES * patience.lease
    if not quiet and signs.idle_for < IDLE_LEASES * patience.lease:
        return True
    return (
        not signs.is_stopped and signs.handler_seconds is not None and signs.handler_seconds < patience.handler_timeout
    )


def should_kill(signs: ChildSigns, patience: Patience) -> bool:
    """Return True if the supervisor should kill the child process, because it hangs."""
    # The child was silent without a reason for two leases beyond the first, was idle for two leases, or runs a handler
    # far beyond its time limit.
    idle = signs.idle_for >= IDLE_LEASES * patience.lease
    if signs.handler_seconds is not None and signs.handler_seconds >= patience.handler_timeout + patience.drain_timeout:
        return idle or signs.silent_for >= patience.lease
    running = signs.handler_seconds is not None and not signs.is_stopped
    silent = signs.silent_for >= 3 * patience.lease or signs.half_silent_for >= (HALF_LEASES + 2) * patience.lease
    return not running and (idle or silent)


class HeartbeatStreak:
    """A measure of the time for which a supervisor has reached its database without interruption.

    Inactivity of child processes during this period is their own fault. The clock also counts suspended time."""

    def __init__(self, lease: float) -> None:
        self._lease = lease
        self._since: float | None = None
        self._at = 0.0

    def note_look(self, now: float, *, reached: bool) -> None:
        """Record whether the supervisor's last access to the database succeeded."""
        # The access ended at `now`.
        # A tick that did not reach the database, or a long gap between ticks, breaks the streak.
        if not reached:
            self._since = None
        elif self._since is None or breaks_watch(now - self._at, self._lease):
            self._since = now
        self._at = now

    def measure_length(self, now: float) -> float:
        """Return the seconds for which the database has been reached without interruption, or 0.0 if it was not."""
        # The streak also breaks if the last tick was too long ago.
        return 0.0 if self._since is None or breaks_watch(now - self._at, self._lease) else now - self._since


class Leaseholder(Protocol):
    """A process as stored in the database, with the time for which others still have to treat it as alive.

    This time is its lease. `lease_left` is the rest of the lease in seconds, by the database's clock."""

    @property
    def instance_id(self) -> UUID: ...
    @property
    def heartbeat_at(self) -> datetime: ...
    @property
    def lease_left(self) -> float: ...
    @property
    def lease(self) -> float: ...


class SeenHeartbeat(NamedTuple):
    """The last heartbeat of another process, and the monotonic time since which no newer one has been seen."""

    heartbeat_at: datetime
    since: float


class Burials(NamedTuple):
    """The processes to declare dead now, and the seconds until the next one may be declared dead, or None."""

    due_instances: list[UUID]
    next_in: float | None


def breaks_watch(pause: float, lease: float) -> bool:
    """Return True if a watcher paused too long to judge other processes by their heartbeats, and must start anew."""
    # The pause took `pause` seconds. The watcher then has to watch the heartbeats for a full lease anew.
    return pause > lease / BREAK_DIVISOR


def update_sightings(
    before: Mapping[UUID, SeenHeartbeat], instances: Iterable[Leaseholder], now: float, pause: float = 0.0
) -> dict[UUID, SeenHeartbeat]:
    """Return for each process the time since which its heartbeat has not changed, by comparing it with the last
    look."""
    # The watcher looked at the instances at the time `now`. The observation of `before` was `pause` seconds earlier.
    return {each.instance_id: _update_sighting(before.get(each.instance_id), each, now, pause) for each in instances}


def _update_sighting(seen: SeenHeartbeat | None, instance: Leaseholder, now: float, pause: float) -> SeenHeartbeat:
    # A watcher that was away cannot say how long the heartbeat has been unchanged, so its watch starts anew.
    if seen and seen.heartbeat_at == instance.heartbeat_at and not breaks_watch(pause, instance.lease):
        return seen
    return SeenHeartbeat(instance.heartbeat_at, now)


def find_burials(
    instances: Iterable[Leaseholder],
    seen: Mapping[UUID, SeenHeartbeat],
    now: float,
    steady_since: float | None = None,
    extra: float = 0.0,
) -> Burials:
    """Return the process instances to declare dead: their leases are over and their heartbeats unchanged."""
    # The same rule decides for worker nodes and for commands that wait. The database's clock must say that the lease is
    # over, the watcher must have seen the same heartbeat for a full lease by its own clock, and the watcher must have
    # watched without a break for as long. A database that was away, or whose clock stepped, therefore ends nobody's
    # lease.
    # `seen` must have a sighting of each instance. `steady_since` is the time since which the watcher has had no break.
    # None means since the sightings. Each instance has `extra` seconds more than its lease.
    waits = {
        each.instance_id: extra + _compute_wait(each, seen[each.instance_id].since, now, steady_since)
        for each in instances
    }
    due = [instance for instance, wait in waits.items() if wait <= 0]
    return Burials(due, min((wait for wait in waits.values() if wait > 0), default=None))


def _compute_wait(instance: Leaseholder, seen_since: float, now: float, steady_since: float | None) -> float:
    # A result of 0 or less means that the process instance may be declared dead now.
    since = seen_since if steady_since is None else max(seen_since, steady_since)
    return max(instance.lease_left, instance.lease - (now - since))


class Heartbeat(NamedTuple):
    """The last heartbeat of a process instance, and the seconds `lease_left` of its lease by the database's clock."""

    instance_id: UUID
    heartbeat_at: datetime
    lease_left: float
    lease: float


class SilenceWatch:
    """A detector of dead process instances for a command that sends no heartbeats itself but waits for instances."""

    def __init__(self) -> None:
        self._seen: dict[UUID, SeenHeartbeat] = {}
        self._checked_at: float | None = None

    def find_expired(self, beats: Iterable[Heartbeat], now: float) -> list[UUID]:
        """Record the heartbeats seen at `now`, and return the ids of the instances to declare dead."""
        # These instances have been silent for too long. `now` is in monotonic seconds.
        pause = 0.0 if self._checked_at is None else now - self._checked_at
        self._checked_at = now
        instances = list(beats)
        self._seen = update_sightings(self._seen, instances, now, pause)
        return find_burials(instances, self._seen, now).due_instances
