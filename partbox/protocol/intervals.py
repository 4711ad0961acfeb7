"""The intervals at which nodes beat, processes tick, and nodes share the work that any node can do for all."""

FULL_SHARE_NODES = 10  # nodes, up to which every node takes all turns
FULL_BEAT_NODES = 100  # nodes, up to which every node keeps the requested interval
MAX_BEAT_OF_LEASE = 0.22  # fraction of the lease between two heartbeats of a larger fleet

# A process learns at its ticks about new plans and due rows.
TICK = 0.25  # seconds
# Of the 256 partitions. A process that owns fewer is one of more than 16 processes, and a late tick costs less.
FEW_PARTITIONS = 16
# Seconds, however few partitions there are. This is less than the bell's flag may lie ahead.
LONGEST_TICK = 2.0
# Fraction of the lease, as for `poll_idle`: a process that sleeps for longer looks dead.
MAX_TICK_OF_LEASE = 1 / 3
SHORTEST_TICK = 0.05  # seconds, however soon a parked row is due
AWAIT_TICK = 0.01  # seconds, while another process has to release a planned partition; more if the release takes long
AWAIT_DIVISOR = 8


def compute_turn_chance(nodes: int) -> float:
    """Return the probability with which a node performs a task that any node can do, such as maintenance of tables."""
    # Up to `FULL_SHARE_NODES` nodes take all turns. Larger fleets take as many turns together as `FULL_SHARE_NODES`
    # nodes. Each node draws anew, so when nodes leave, the others take over their turns at once.
    return min(1.0, FULL_SHARE_NODES / max(1, nodes))


def beat_interval(nodes: int, heartbeat: float, lease: float) -> float:
    """Return the seconds between two heartbeats of a node in a fleet of `nodes` nodes."""
    # More than `FULL_BEAT_NODES` nodes together send as many heartbeats as `FULL_BEAT_NODES` nodes, because each
    # heartbeat is a commit on the server. The promise of the lease stays: a lease is renewed four times while it lasts,
    # and a dead node is noticed late before another node would have missed two heartbeats.
    # `heartbeat` is the requested interval in seconds.
    return max(heartbeat, min(heartbeat * max(1.0, nodes / FULL_BEAT_NODES), MAX_BEAT_OF_LEASE * lease))


def longest_tick(owned: int, lease: float, *, calm: bool) -> float:
    """Return the most seconds that a process may wait between two regular queries for due work and assignments."""
    # A process is `calm` only if it hears the bell (publishers can wake it) and has nothing left to do.
    # A process with few partitions ticks less often. Otherwise hundreds of processes without work would cost the server
    # a third of a processor. The number of owned partitions decides, from about 16 processes on. A late tick delays
    # only news that the bell announces anyway: events, plans, and changes of parked rows by others. A process with
    # something to do is not calm, because running handlers are checked four times a second.
    # The looks are the process's ticks. The result is also the longest time between two polls that nothing has
    # requested.
    # A process that owns nothing ticks like one with a single partition: the bell announces a plan that gives it some.
    if not calm:
        return TICK
    return max(TICK, min(LONGEST_TICK, MAX_TICK_OF_LEASE * lease, TICK * FEW_PARTITIONS / max(1, owned)))


def next_tick_delay(soonest: float | None, awaited: float | None, most: float = TICK) -> float:
    """Return the seconds, at most `most`, until a process next queries the database for due work and assignments."""
    # The first parked row is due in `soonest` seconds. The process has waited `awaited` seconds for another to release
    # a partition.
    # No notification announces that another process releases a partition. A partition that was awaited for t seconds
    # stays without an owner for at most t / AWAIT_DIVISOR, and waiting for a handler that runs for hours costs no more
    # queries than the usual ticks.
    # The look is the process's tick.
    pause = most if soonest is None else min(most, max(soonest, SHORTEST_TICK))
    return pause if awaited is None else min(pause, max(AWAIT_TICK, awaited / AWAIT_DIVISOR))
