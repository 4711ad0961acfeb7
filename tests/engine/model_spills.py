"""The spills of the model: the keys that leave their events in the log, and how rows come of these again."""

from collections.abc import Collection, Sequence
from uuid import UUID

from model_tables import ParkedLine, PartitionRow
from server_log import Logged, ServerLog, sees

from partbox.db.delivery import parked as parked_queries
from partbox.protocol.horizon import Snapshot
from partbox.protocol.rows import Refill, RefilledKey, RefillKey, StoredSpill


class SpillTable:
    """The part of the database that knows of spills, and what it reads and writes beside them."""

    log: ServerLog
    partitions: dict[int, PartitionRow]
    parked: dict[int, ParkedLine]
    spills: dict[tuple[int, str, str], int]  # by partition and key: from which id on

    def list_spills(self, numbers: Collection[int]) -> list[StoredSpill]:
        return [StoredSpill(*key, from_id) for key, from_id in self.spills.items() if key[0] in numbers]

    def is_spilled(self, record: Logged) -> bool:
        """True if the record may wait in the log without a row."""
        from_id = self.spills.get((record.partition, "Key", record.key or ""))
        return from_id is not None and record.id >= from_id

    def refill(self, me: UUID, wanted: Refill) -> list[RefilledKey] | None:
        row = self.partitions[wanted.partition]
        if row.owner != me or row.epoch != wanted.epoch:
            return None
        high = min(row.last_id, wanted.consumed_id)
        low = min(self.spills[wanted.partition, key.aggregate_type, key.aggregate_id] for key in wanted.keys)
        snapshot = Snapshot.parse(row.snapshot)
        read = [each for each in self.log.in_order(low - 1, high) if each.partition == wanted.partition]
        whole = len(read) < parked_queries.MOST_REFILL_READ
        if not whole:
            read = read[: parked_queries.MOST_REFILL_READ]
            high = read[-1].id
        return [self._refill_key(wanted, key, read, snapshot, high, whole=whole) for key in wanted.keys]

    def _refill_key(
        self, wanted: Refill, key: RefillKey, read: Sequence[Logged], snapshot: Snapshot, high: int, *, whole: bool
    ) -> RefilledKey:
        where = wanted.partition, key.aggregate_type, key.aggregate_id
        since = self.spills[where]
        found = [
            each for each in read
            if each.key == key.aggregate_id and each.id >= since and sees(snapshot, each.xid)
            and (wanted.wanted_types is None or each.type in wanted.wanted_types)
        ][: key.most]  # fmt: skip
        new = [each.id for each in found if each.id not in self.parked]
        for id in new:
            self.parked[id] = ParkedLine(id, *where, "held", blocks=True, attempts=0, due_at=None)
        is_end = whole and len(found) < key.most
        onward = max(high + 1, since) if len(found) < key.most else found[-1].id + 1
        if is_end and key.may_end:
            del self.spills[where]
            return RefilledKey(*where[1:], None, is_end, new)
        self.spills[where] = onward
        return RefilledKey(*where[1:], onward, is_end, new)
