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
    retain_done: float = 7 * 86_400.0
    purge_interval: float = 3_600.0
    pooler: bool = False

    @property
    def overdue(self) -> float:
        """The age of a record that three purges should have deleted."""
        return self.retain_done + 3 * self.purge_interval

    @property
    def braked(self) -> int:
        """Open parked rows of a partition with which it reads hardly anything new; what runs counts as well."""
        return max(1, self.max_parked * 9 // 10)

    @property
    def lock_wait(self) -> float:
        return min(5.0, self.transaction)


PAUSED = 3_600.0  # a pause that was forgotten
LATELY = 3_600.0  # dead of late
FLOOD = 10  # of late: more than a few bad events
ATTEMPTS = 3  # failures of one event that are no hiccup any more
BLOCKED = 60.0  # a key that waits for so long
DEFERRED = 50
STALLED = 150.0  # nothing became of a record of a partition for so long
HANGING = 60.0  # a handler without a timeout runs for so long
OVERDUE = 10.0  # a handler runs on for so long after its timeout, though its process is to end
UNREACHABLE = 10.0  # a broker acknowledges nothing for so long, and refuses
BACKLOG = 1_000
SKEW = 5.0
SLOTS_USED = 0.9
SEGMENT_LEFT = 1_000_000  # ids
ROW_BYTES = 16_384  # a row of a hot table, its dead versions included
SMALL = 1 << 20
GONE_LEASES = 3  # leases after which somebody should have buried it


def limits_of(settings: Settings, transaction: float) -> Limits:
    return Limits(
        transaction=transaction,
        lease=settings.lease,
        max_parked=settings.max_parked,
        retain_done=settings.retain_done,
        purge_interval=settings.purge_interval,
        pooler=settings.pooler,
    )
