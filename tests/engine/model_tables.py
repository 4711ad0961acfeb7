"""The rows of the model's tables `partition` and `parked`."""

from dataclasses import dataclass
from uuid import UUID

from server_log import Logged, sees

from partbox.protocol.horizon import Snapshot
from partbox.protocol.limit_addresses import WAITS


@dataclass
class PartitionRow:
    partition: int
    assignee: UUID | None = None
    owner: UUID | None = None
    epoch: int = 0
    claimed_at: float = 0.0
    suspect_until_id: int | None = None
    parked_version: int = 0
    snapshot: str = "1:1:"
    last_id: int = 0
    floor_id: int = 0

    def covers(self, record: Logged, snapshot: Snapshot) -> bool:
        """True if the saved cursor, whose snapshot this is, counts the record as consumed."""
        return record.id <= self.last_id and (record.id <= self.floor_id or sees(snapshot, record.xid))


@dataclass
class ParkedLine:
    """A row of `parked`; times by the server's clock."""

    record_id: int
    partition: int
    aggregate_type: str
    aggregate_id: str | None
    state: str
    blocks: bool
    attempts: int
    due_at: float | None
    started_at: float | None = None
    last_error: str | None = None

    @property
    def waits_for_turn(self) -> bool:
        return self.state == "deferred" and (self.last_error or "").startswith(WAITS)

    @property
    def waits(self) -> bool:
        return self.state == "scheduled" or self.waits_for_turn or (self.state == "deferred" and not self.last_error)
