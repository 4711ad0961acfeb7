"""From when on something is worth saying. Seconds, rows, bytes."""

from dataclasses import dataclass

from partbox.settings import Settings

LONG_TRANSACTION = 60.0


@dataclass(frozen=True, slots=True)
class Limits:
    """`transaction`: so long may one stay open; what else has a setting follows it, the rest is fixed."""

    transaction: float = LONG_TRANSACTION
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


LIFESPAN_LIMIT = 10.0  # time in a lifespan
PAUSE_LIMIT = 3_600.0  # from here on a pause counts as forgotten
RECENT_DEATH_AGE = 3_600.0  # age up to which a death counts as recent
DEAD_FLOOD = 10  # recent deaths: more than a few bad events
FAILED_ATTEMPTS = 3  # failures of one event that are more than a hiccup
REPORT_AGE_LIMIT = 15.0  # age of what a process says of its limits that still tells that it lives
LIMIT_WAIT = 60.0  # wait for a turn
KEY_WAIT = 60.0  # wait of a key
MANY_DEFERRED = 50
PARTITION_STALL = 150.0  # no progress in a partition
PROCESS_STALL = (
    20.0,
    4,
)  # seconds, leases: no progress in any partition of a process that names no long-running handler
HANDLER_LIMIT = 60.0  # running time of a handler without a timeout
TIMEOUT_OVERRUN = 10.0  # running time of a handler beyond its timeout, though its process is to end
SINK_OUTAGE = 10.0  # time in which a broker acknowledges nothing, and refuses
HOOK_OUTAGE = 5.0  # time in which dead events are taken by no hook
MANY_PENDING = 1_000
MAX_SKEW = 5.0
SLOTS_USED = 0.9
SEGMENT_LEFT = 1_000_000  # ids
ROW_BYTES = 16_384  # a row of a hot table, its dead versions included
SMALL_TABLE = 1 << 20
GONE_LEASES = 3  # leases after which somebody should have buried it


def limits_of(settings: Settings, transaction: float) -> Limits:
    same = ("lease", "max_parked", "max_waiting", "retain_done", "purge_interval", "pooler", "bell")
    given = {name: getattr(settings, name) for name in same}
    return Limits(transaction, listens=settings.listen_dsn is not None, **given)
