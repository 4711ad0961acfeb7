"""From when on something is worth saying. Seconds, rows, bytes."""

from dataclasses import dataclass

from partbox.settings import Settings

TRANSACTION = 60.0


@dataclass(frozen=True, slots=True)
class Limits:
    """`transaction`: so long may one stay open; what else has a setting follows it, the rest is fixed."""

    transaction: float = TRANSACTION
    lease: float = 6.0
    max_parked: int = 1_000
    max_waiting: int = 10_000_000
    retain_done: float = 7 * 86_400.0
    purge_interval: float = 3_600.0
    pooler: bool = False
    bell: str = "auto"
    listens: bool = False  # by a DSN of its own, past a pooler

    @property
    def overdue(self) -> float:
        """The age of a record that three purges should have deleted; a full segment goes whole, a quarter later."""
        return 1.25 * self.retain_done + 3 * self.purge_interval

    @property
    def braked(self) -> int:
        """Open parked rows of a partition with which it reads hardly anything new; what runs counts as well."""
        return max(1, self.max_parked * 9 // 10)

    @property
    def lock_wait(self) -> float:
        return min(5.0, self.transaction)


ENTERING = 10.0  # time in a lifespan
PAUSED = 3_600.0  # from here on a pause counts as forgotten
LATELY = 3_600.0  # age up to which a death counts as recent
FLOOD = 10  # recent deaths: more than a few bad events
ATTEMPTS = 3  # failures of one event that are more than a hiccup
SAID = 15.0  # age of what a process says of its limits that still tells that it lives
LIMITED = 60.0  # wait for a turn
BLOCKED = 60.0  # wait of a key
DEFERRED = 50
STALLED = 150.0  # no progress in a partition
IDLE = (20.0, 4)  # seconds, leases: no progress in any partition of a process that names no long-running handler
HANGING = 60.0  # running time of a handler without a timeout
OVERDUE = 10.0  # running time of a handler beyond its timeout, though its process is to end
UNREACHABLE = 10.0  # time in which a broker acknowledges nothing, and refuses
UNHEARD = 5.0  # time in which dead events are taken by no hook
BACKLOG = 1_000
SKEW = 5.0
SLOTS_USED = 0.9
SEGMENT_LEFT = 1_000_000  # ids
ROW_BYTES = 16_384  # a row of a hot table, its dead versions included
SMALL = 1 << 20
GONE_LEASES = 3  # leases after which somebody should have buried it


def limits_of(settings: Settings, transaction: float) -> Limits:
    same = ("lease", "max_parked", "max_waiting", "retain_done", "purge_interval", "pooler", "bell")
    given = {name: getattr(settings, name) for name in same}
    return Limits(transaction, listens=settings.listen_dsn is not None, **given)
