"""Intervals: the turns of a subscription's nodes in what any one of them does for all, their heartbeats, and the ticks
of a process."""

FULL_SHARE_NODES = 10  # nodes of which each does it every time
FULL_BEAT_NODES = 100  # nodes of which each beats every time
MAX_BEAT_OF_LEASE = 0.22  # of the lease, from one heartbeat to the next of more of them

# The time between two ticks of a process, by which it sees what is planned for it and what is due.
TICK = 0.25  # seconds
FEW_PARTITIONS = 16  # partitions: who owns fewer of the 256 is one of more than 16, and has the less to miss
LONGEST_TICK = 2.0  # seconds, however few they are: less than the bell's flag may lie ahead,
MAX_TICK_OF_LEASE = 1 / 3  # and as for `poll_idle`: who sleeps for longer looks dead
SHORTEST_TICK = 0.05  # at least, however soon a parked row is due
AWAIT_TICK = 0.01  # and while another is to release what is planned for this process; more if it takes long
AWAIT_DIVISOR = 8


def share(nodes: int) -> float:
    """The part of its turns that one of so many nodes takes: up to `FULL_SHARE_NODES` all, and more of them as many
    together.

    Each draws by it anew, so who is left when others have gone takes its turns again at once.
    """
    return min(1.0, FULL_SHARE_NODES / max(1, nodes))


def beat_interval(nodes: int, heartbeat: float, lease: float) -> float:
    """Seconds from one heartbeat of a node to its next, where `heartbeat` is asked for and there are so many nodes.

    More than `FULL_BEAT_NODES` share as many beats: each is a commit of the server. What a lease promises stays: it is
    renewed four times while it lasts, and a node that has died is found late before another would have missed two
    beats.
    """
    return max(heartbeat, min(heartbeat * max(1.0, nodes / FULL_BEAT_NODES), MAX_BEAT_OF_LEASE * lease))


def longest_tick(owned: int, lease: float, *, calm: bool) -> float:
    """Seconds between two ticks at most, and so between two looks that nobody has called for.

    Who owns few partitions takes them more rarely. Otherwise hundreds of processes without work would cost the server
    a third of a processor; so it is about the partitions that decide, from 16 processes on. Nothing waits for them but
    what the bell tells anyway: events, plans, and what others do to parked rows. So only who hears it, and has nothing
    in hand, is `calm`: a handler is looked after four times a second.
    """
    if not calm or not owned:
        return TICK
    return max(TICK, min(LONGEST_TICK, MAX_TICK_OF_LEASE * lease, TICK * FEW_PARTITIONS / owned))


def next_tick_delay(soonest: float | None, awaited: float | None, most: float = TICK) -> float:
    """Seconds until the next tick, `most` at most: the first row is due in `soonest`, and a partition is awaited for
    `awaited` by now.

    Nobody tells when another process has released it. One that was awaited for t seconds stays without an owner for
    t / PATIENT at most, and who waits for a handler of hours asks no more often than anybody.
    """
    pause = most if soonest is None else min(most, max(soonest, SHORTEST_TICK))
    return pause if awaited is None else min(pause, max(AWAIT_TICK, awaited / AWAIT_DIVISOR))
