"""Rows of the tables `partition` and `parked` as plain data, as statements return them and as a save sends them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple


class TickPartition(NamedTuple):
    """The state of a partition as a worker regularly reads it from the database: assigned, owned or free."""

    # `epoch` and `parked_version` are version numbers.

    partition: int
    is_assigned: bool
    is_owned: bool
    is_free: bool
    epoch: int
    parked_version: int


class OwnedPartition(NamedTuple):
    """A partition that this process owns, with its saved reading position."""

    # `suspect_until` is set if the last owner died: a record up to this id may have killed it. For a partition that was
    # claimed just now, `unowned_seconds` is the time in seconds since the last owner released it.

    partition: int
    epoch: int
    snapshot: str
    last_id: int
    floor_id: int
    parked_version: int
    suspect_until: int | None
    unowned_seconds: float | None = None


class CursorSave(NamedTuple):
    """The reading position of one partition, as it is written to the database."""

    # A `snapshot` of None leaves the cursor unchanged. A `last_id` of None leaves the position in the log unchanged,
    # because no record was finished.

    partition: int
    epoch: int
    snapshot: str | None
    last_id: int | None
    floor_id: int | None
    is_release: bool


class StoredRow(NamedTuple):
    """A database row of a failed or waiting event, as a worker reads it."""

    # The event was set aside because it could not run. `due_in` is in seconds from now. `was_started` means that the
    # row was charged and that its process may have died of it. `error` is only read for dead rows, and for blocking
    # rows that wait for a turn, of which it says for whom. `waits` means that the row waits for a permit or a time. A
    # blocking row that waits for a permit is due at once, because the owner of the partition knows when the permit
    # comes.

    partition: int
    record_id: int
    aggregate_type: str
    aggregate_id: str | None
    state: str
    attempts: int
    due_in: float | None
    was_started: bool
    error: str | None
    waits: bool = False


class LooseRows(NamedTuple):
    """The numbers of a partition's failed or waiting events that hold up no later events of their keys."""

    # Some rows count against the brake (with too many of them, the partition is not read further), and others wait.
    # `permit_wait_ids` are the ids of the rows that wait for a permit, the earliest due row first.

    open_count: int = 0
    waiting_count: int = 0
    permit_wait_ids: Sequence[int] = ()


@dataclass(slots=True)
class ParkedSave:
    """A row to write to the database for a failed or waiting event."""

    # The event was set aside because it could not run. `delay` is in seconds from the database's now. `due` is an ISO
    # timestamp. `trace` belongs to `error`. If `error` is None, the stored error and traceback stay. Both also stay if
    # `is_wait` is set and there is a stored error. `is_new` means that there is no row yet. `is_charge` means that the
    # event is about to start. A `is_dead_letter` only changes the due time of a row that is still dead. An `outcome`
    # means that an attempt has failed after `seconds`. Such an attempt is stored as a row, too.

    partition: int
    record_id: int
    aggregate_type: str
    aggregate_id: str | None
    event_type: str
    state: str
    blocks: bool
    attempts: int
    delay: float | None = None
    due: str | None = None
    error: str | None = None
    trace: str | None = None
    is_new: bool = True
    is_charge: bool = False
    is_dead_letter: bool = False
    is_wait: bool = False
    outcome: str | None = None
    seconds: float | None = None

    def to_json(self) -> dict[str, Any]:
        # The database function `save` reads these keys.
        return {
            "p": self.partition,
            "id": self.record_id,
            "at": self.aggregate_type,
            "ai": self.aggregate_id,
            "et": self.event_type,
            "s": self.state,
            "b": self.blocks,
            "n": self.attempts,
            "in": self.delay,
            "due": self.due,
            "e": self.error,
            "t": self.trace,
            "new": self.is_new,
            "c": self.is_charge,
            "l": self.is_dead_letter,
            "w": self.is_wait,
            "o": self.outcome,
            "sec": self.seconds,
        }


class IgnoredEvent(NamedTuple):
    """An event that counts as done although its last attempt failed, because the handler's `on_error` said so."""

    record_id: int
    attempts: int
    error: str
    seconds: float | None

    def to_json(self) -> dict[str, Any]:
        # The database stores the last attempt as a row.
        id, attempts, error, seconds = self
        return {"id": id, "n": attempts, "o": "ignored", "e": error, "sec": seconds}


class ProgressNote(NamedTuple):
    """The highest record id that a worker had read in a partition when it saved its position."""

    # The note says that nothing above `read_id` had been read at that moment.

    partition: int
    read_id: int

    def to_json(self) -> dict[str, Any]:
        return {"p": self.partition, "r": self.read_id}


class SpillStart(NamedTuple):
    """The start of a spill: from this record on, records of the key have no rows."""

    partition: int
    aggregate_type: str
    aggregate_id: str
    from_id: int

    def to_json(self) -> dict[str, Any]:
        return {"p": self.partition, "at": self.aggregate_type, "ai": self.aggregate_id, "f": self.from_id}


class StoredSpill(NamedTuple):
    """A database row of a spill: the records of a blocked key from one id on, which may have no rows."""

    partition: int
    aggregate_type: str
    aggregate_id: str
    from_id: int


class RefillKey(NamedTuple):
    """A key whose next records need rows: at most `most` records. `may_end` is true if the spill may end."""

    aggregate_type: str
    aggregate_id: str
    most: int
    may_end: bool


class Refill(NamedTuple):
    """The arguments of a refill, which inserts rows for the next records of spilled keys of one partition."""

    # Only records up to `consumed_id` are read, of the given types if `wanted_types` is not None.

    partition: int
    epoch: int
    consumed_id: int
    keys: list[RefillKey]
    wanted_types: frozenset[str] | None


class RefilledKey(NamedTuple):
    """The result of a refill for one key: the ids of the new rows, and where the spill starts now."""

    # `from_id` is None if the spill has ended. With `is_end` fewer records were found than wanted.

    aggregate_type: str
    aggregate_id: str
    from_id: int | None
    is_end: bool
    record_ids: list[int]


# An entry of the list that a save sends.
SaveEntry = ParkedSave | IgnoredEvent | ProgressNote | SpillStart
