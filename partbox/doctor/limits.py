"""Thresholds of the checks, in seconds, rows or bytes."""

from dataclasses import dataclass

from partbox.settings import Settings

LONG_TRANSACTION = 60.0


@dataclass(frozen=True, slots=True)
class Limits:
    """The thresholds of `partbox doctor` that depend on the settings of the outbox."""

    # The other thresholds are constants.

    transaction: float = LONG_TRANSACTION
    lease: float = 6.0
    max_parked: int = 1_000
    max_waiting: int = 10_000_000
    retain_done: float = 7 * 86_400.0
    purge_interval: float = 3_600.0
    pooler: bool = False
    bell: str = "auto"
    has_listen_dsn: bool = False  # through a DSN of its own, which bypasses a pooler

    @property
    def overdue_age(self) -> float:
        """The age in seconds at which `partbox doctor` reports that an expired record was not deleted."""
        # Three purges should have deleted the record by then. The time includes a quarter of the retention, by which a
        # full segment of the log may be emptied later.
        return 1.25 * self.retain_done + 3 * self.purge_interval

    @property
    def brake_threshold(self) -> int:
        """The number of unfinished records at which a partition is about to stop reading new events."""
        # The unfinished records are parked rows. Running records count as well.
        return max(1, self.max_parked * 9 // 10)

    @property
    def lock_wait(self) -> float:
        """The number of seconds after which `partbox doctor` reports a session that waits for a lock."""
        return min(5.0, self.transaction)


LIFESPAN_LIMIT = 10.0  # seconds in a lifespan
PAUSE_LIMIT = 3_600.0  # seconds from which a pause counts as forgotten
RECENT_DEATH_AGE = 3_600.0  # seconds; up to that age, a death counts as recent
DEAD_FLOOD = 10  # recent deaths, which are more than a few bad events
FLOOD_OVER = 300.0  # seconds without a death, after which a flood is over
FAILED_ATTEMPTS = 3  # failures of one event, which are more than a passing error
REPORT_AGE_LIMIT = 15.0  # seconds; age of a process's report about its limits that still proves that the process lives
LIMIT_WAIT = 60.0  # seconds of waiting for a turn
KEY_WAIT = 60.0  # seconds for which a key waits
MANY_DEFERRED = 50
PARTITION_STALL = 150.0  # seconds without progress in a partition
# Seconds and leases without progress in any partition of a process that reports no long-running handler.
PROCESS_STALL = (
    20.0,
    4,
)
HANDLER_LIMIT = 60.0  # seconds; running time of a handler without a timeout
TIMEOUT_OVERRUN = 10.0  # seconds that a handler runs beyond its timeout, although its process should be replaced
SINK_OUTAGE = 10.0  # seconds in which a broker acknowledges nothing, and refuses
HOOK_OUTAGE = 5.0  # seconds in which no hook takes dead events
MANY_PENDING = 1_000
MAX_SKEW = 5.0
SLOTS_USED = 0.9
# Of about 2.1 billion transaction ids, after which the server assigns none: at most how many are unfrozen.
UNFROZEN_LIMIT = 1_000_000_000
SEGMENT_LEFT = 1_000_000  # ids
ROW_BYTES = 16_384  # bytes of a row of a frequently updated table, including its dead versions
SMALL_TABLE = 1 << 20
GONE_LEASES = 3  # leases after which a dead process should have been buried


def limits_of(settings: Settings, transaction: float) -> Limits:
    # `transaction` is the longest time for which a transaction may stay open.
    same = ("lease", "max_parked", "max_waiting", "retain_done", "purge_interval", "pooler", "bell")
    given = {name: getattr(settings, name) for name in same}
    return Limits(transaction, has_listen_dsn=settings.listen_dsn is not None, **given)
