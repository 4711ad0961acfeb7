"""Trust in a lease: a process's own, and a supervisor's in its children; and the ticks of a process.

The database's clock decides who owns what; local clocks may only end trust early. Two of them: one that counts
suspended time too, and the wall clock, because a paused virtual machine may stop the first.
"""

from dataclasses import dataclass

from partbox.protocol.burial import breaks

HALF = 3
"""Leases for which the poller alone, or the saver, may be silent: a statement that hangs is cut earlier, and a new
connection is tried for one lease at most."""
IDLE = 2
"""Leases in which a child may neither read nor save while its supervisor reaches the database."""
MARGIN = 0.1  # of the lease: what is left to a handler's start between the check and the lease's end


def deadline(sent_at: float, lease: float) -> float:
    """The end of trust in a renewal sent at `sent_at` (seconds of the same clock)."""
    return sent_at + lease * (1 - MARGIN)


def idle_limit(lease: float) -> float:
    """Seconds without a read or a save after which a child starts no handler: less than its supervisor's patience."""
    return IDLE * lease * (1 - MARGIN)


@dataclass(frozen=True, slots=True)
class Signs:
    """A supervisor's view of a child: seconds since it last ticked; seconds its longest handler has run (None: no
    handler runs); True if the kernel says that it is stopped; seconds since the more silent one of its poller and
    saver last ticked; seconds in which it has neither read nor saved while the supervisor reached the database; False
    before its first read, when it could do nothing with a partition."""

    silent: float
    handler: float | None
    stopped: bool
    half: float = 0.0
    idle: float = 0.0
    has_read: bool = True


@dataclass(frozen=True, slots=True)
class Patience:
    """Limits, in seconds, for a child that is silent or busy."""

    lease: float
    handler_timeout: float
    drain_timeout: float


def vouches(signs: Signs, patience: Patience) -> bool:
    """True if the child's lease is to be renewed. Where the child, or half of it, is silent, or it neither reads nor
    saves: only while a handler runs within its time and the child is not stopped. That handler may hold the
    interpreter; when it ends, and nothing more is read or saved, none will run."""
    if not signs.has_read:
        return False
    quiet = signs.silent >= patience.lease or signs.half >= HALF * patience.lease
    if not quiet and signs.idle < IDLE * patience.lease:
        return True
    return not signs.stopped and signs.handler is not None and signs.handler < patience.handler_timeout


def gives_up(signs: Signs, patience: Patience) -> bool:
    """True if the child is to be killed: silent for two leases beyond the first without a reason, idle for two, or a
    handler far over its time."""
    idle = signs.idle >= IDLE * patience.lease
    if signs.handler is not None and signs.handler >= patience.handler_timeout + patience.drain_timeout:
        return idle or signs.silent >= patience.lease
    running = signs.handler is not None and not signs.stopped
    silent = signs.silent >= 3 * patience.lease or signs.half >= (HALF + 2) * patience.lease
    return not running and (idle or silent)


class Steadiness:
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
        elif self._since is None or breaks(now - self._at, self._lease):
            self._since = now
        self._at = now

    def lasted(self, now: float) -> float:
        """Seconds that it has lasted by `now`; 0.0 if the last tick was long ago: the supervisor itself was away."""
        return 0.0 if self._since is None or breaks(now - self._at, self._lease) else now - self._since


# The time between two ticks of a process, by which it sees what is planned for it and what is due.
TICK = 0.25  # seconds
FEW = 16  # partitions: who owns fewer of the 256 is one of more than 16, and has the less to miss
LONGEST = 2.0  # seconds, however few they are: less than the bell's flag may lie ahead,
OF_LEASE = 1 / 3  # and as for `poll_idle`: who sleeps for longer looks dead
SOON = 0.05  # at least, however soon a parked row is due
AWAITING = 0.01  # and while another is to release what is planned for this process; more if it takes long
PATIENT = 8


def longest_tick(owned: int, lease: float, *, calm: bool) -> float:
    """Seconds between two ticks at most, and so between two looks that nobody has called for.

    Who owns few partitions takes them more rarely. Otherwise hundreds of processes without work would cost the server
    a third of a processor; so it is about the partitions that decide, from 16 processes on. Nothing waits for them but
    what the bell tells anyway: events, plans, and what others do to parked rows. So only who hears it, and has nothing
    in hand, is `calm`: a handler is looked after four times a second.
    """
    if not calm or not owned:
        return TICK
    return max(TICK, min(LONGEST, OF_LEASE * lease, TICK * FEW / owned))


def until_next_tick(soonest: float | None, awaited: float | None, most: float = TICK) -> float:
    """Seconds until the next tick, `most` at most: the first row is due in `soonest`, and a partition is awaited for
    `awaited` by now.

    Nobody tells when another process has released it. One that was awaited for t seconds stays without an owner for
    t / PATIENT at most, and who waits for a handler of hours asks no more often than anybody.
    """
    pause = most if soonest is None else min(most, max(soonest, SOON))
    return pause if awaited is None else min(pause, max(AWAITING, awaited / PATIENT))
