"""Rows of events that wait for a turn outside of memory: evicted by this process, or stored by an earlier owner.

The row of an earlier owner says only in words for whom it waits. Its limit is known once its event is in memory. After
a takeover there may be a hundred thousand such rows, and loading all at once would keep everybody else waiting. So rows
with the same words form a group, of which a few are loaded at first. As soon as one of them has joined a line and is
put off again, all others follow it into the list of that line. If the first ones start at once instead, more are
loaded."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from partbox.protocol.parking import ParkedRow, RowStage, RowState
from partbox.worker.engine.key import Key
from partbox.worker.engine.partition import Partition

# Rows of a group that are loaded at first. Twice as many more are loaded each time that the last ones have started.
FIRST_ROWS = 16
# Seconds after which more rows are loaded although some have not started.
GROUP_SECONDS = 1.0
# Seconds until a row of a group, or an event that waits until something opens, comes back by itself. This is a safety
# net: it comes back when its turn is near, or when that opens.
CLOSED_SECONDS = 86_400.0


class EvictedRow(NamedTuple):
    """The database row of an event that left memory while it waits for a rate or concurrency limit."""

    # It waits for a permit since `since` (monotonic seconds). The event is loaded again in time for its start.

    partition: Partition
    incarnation: int
    key: Key
    row: ParkedRow
    since: float

    def is_obsolete(self) -> bool:
        """Return True if this event need not be loaded into memory again."""
        # This process lost the row, or the row no longer waits for a permit, or is loaded already. A reload of the
        # partition's rows replaces a row that blocks by a new object.
        partition, row = self.partition, self.row
        if partition.is_stopping or partition.incarnation != self.incarnation:
            return True
        if row.state is not RowState.DEFERRED or not row.waits or row.stage is RowStage.LOADED:
            return True
        chain = partition.parked.chains.get(self.key) if row.blocks else None
        return row.blocks and (chain is None or all(each is not row for each in chain))

    def is_first(self) -> bool:
        """Return True if no other event of the key must run before this one."""
        # A row that blocks nothing is always first. A failed list may defer several events of one key.
        return not self.row.blocks or self.partition.parked.chains[self.key].rows[0] is self.row

    def is_returning(self) -> bool:
        """Return True if loading this event into memory was scheduled but has not happened yet."""
        if self.is_obsolete() or not self.is_first():
            return False
        return self.row.blocks or self.row.id in self.partition.parked.early_ids

    def has_left(self) -> bool:
        """Return True if this event is over, or belongs to another process now."""
        chain = self.partition.parked.chains.get(self.key)
        return (
            self.partition.is_stopping
            or self.partition.incarnation != self.incarnation
            or chain is None
            or all(each is not self.row for each in chain)
        )

    def count_events(self) -> int:
        """Return the number of parked events of the row's key, which all wait for this event's turn."""
        chain = self.partition.parked.chains.get(self.key) if self.row.blocks else None
        return 1 if chain is None else len(chain.rows)


@dataclass(slots=True)
class _Group:
    rows: deque[EvictedRow] = field(default_factory=deque)
    loaded: list[EvictedRow] = field(default_factory=list)
    size: int = FIRST_ROWS
    next_at: float = 0.0


class StoredWaits:
    """The rows of earlier owners that wait for a turn, in groups with the same stored words.

    The caller holds the lock."""

    def __init__(self) -> None:
        self._groups: dict[str, _Group] = {}
        # The group of each loaded row that others may follow, by record id. A search through all groups for each event
        # that is put off would cost the square of their number.
        self._texts: dict[int, str] = {}

    def __bool__(self) -> bool:
        return bool(self._groups)

    def add(self, text: str, row: EvictedRow) -> None:
        """Add a row whose stored words are `text`. It does not come back by itself for a day."""
        row.row.due = row.since + CLOSED_SECONDS
        self._groups.setdefault(text, _Group()).rows.append(row)

    def take(self, now: float) -> Iterator[EvictedRow]:
        """Yield the rows to load now."""
        for text, group in list(self._groups.items()):
            started = all(each.has_left() for each in group.loaded)
            if not started and now < group.next_at:
                continue
            if group.loaded and started:
                group.size *= 2
            self._forget_loaded(group)
            group.next_at = now + GROUP_SECONDS
            while group.rows and len(group.loaded) < group.size:
                if not (row := group.rows.popleft()).is_obsolete():
                    group.loaded.append(row)
                    yield row
            if group.rows:
                self._texts.update((each.row.id, text) for each in group.loaded)
            else:
                del self._groups[text]

    def take_all(self) -> Iterator[EvictedRow]:
        """Remove and return all rows, because no limit is in force any more."""
        groups, self._groups, self._texts = self._groups, {}, {}
        return (row for group in groups.values() for row in group.rows if not row.is_obsolete())

    def take_followers(self, row: ParkedRow) -> Iterator[EvictedRow]:
        """Remove and return the rows of the group of which this row was loaded, because its limit is known now."""
        if (text := self._texts.get(row.id)) is None:
            return iter(())
        group = self._groups.pop(text)
        self._forget_loaded(group)
        return (each for each in group.rows if not each.is_obsolete())

    def _forget_loaded(self, group: _Group) -> None:
        for each in group.loaded:
            self._texts.pop(each.row.id, None)
        group.loaded = []
