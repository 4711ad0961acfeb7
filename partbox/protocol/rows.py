"""Rows of `partition` and `parked` as plain data: what statements return, and what a save sends."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple


class TickPartition(NamedTuple):
    """A partition as a tick sees it."""

    partition: int
    assigned: bool
    owned: bool
    free: bool
    epoch: int
    parked_version: int


class OwnedPartition(NamedTuple):
    """An owned partition, with its saved cursor.

    `suspect_until`: its last owner died, perhaps of a record up to this id. `pause`: if it was claimed just now, the
    seconds since its last owner released it.
    """

    partition: int
    epoch: int
    snapshot: str
    last_id: int
    floor_id: int
    parked_version: int
    suspect_until: int | None
    pause: float | None = None


class CursorSave(NamedTuple):
    """The state to save of one partition.

    `snapshot` None leaves the cursor as it is, `last_id` None its place in the log: nothing has become of a record
    since the last save.
    """

    partition: int
    epoch: int
    snapshot: str | None
    last_id: int | None
    floor_id: int | None
    release: bool


class StoredRow(NamedTuple):
    """A parked row as stored; `due` is seconds from now.

    `started`: it was charged, and its process may have died of it. `error` is told of dead ones only. `waits`: for a
    permit or a time. One that waits for a permit and blocks its key is due at once: its owner knows whose turn it is.
    """

    partition: int
    record_id: int
    aggregate_type: str
    aggregate_id: str | None
    state: str
    attempts: int
    due: float | None
    started: bool
    error: str | None
    waits: bool = False


class LooseRows(NamedTuple):
    """The rows of a partition that block nothing, as stored: how many count against the brake, and how many wait.

    `turns`: the ids of those that wait for a permit, the soonest due first.
    """

    open: int = 0
    waiting: int = 0
    turns: Sequence[int] = ()


@dataclass(slots=True)
class ParkedSave:
    """One parked row as a save sends it: `delay` in seconds from the database's now, or `due` as an ISO timestamp.

    `trace` belongs to `error`: where that is None, what is stored of both stays; so it does where `is_wait` and there
    is one. `new`: there is no row yet. `charge`: it is about to be started. A `dead_letter` changes the due time of a
    row that is still dead, no more. With an `outcome` an attempt has failed, in so many `seconds`: it leaves a row,
    too.
    """

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
    new: bool = True
    charge: bool = False
    dead_letter: bool = False
    is_wait: bool = False
    outcome: str | None = None
    seconds: float | None = None

    def to_json(self) -> dict[str, Any]:
        """The JSON object that `save` takes."""
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
            "new": self.new,
            "c": self.charge,
            "l": self.dead_letter,
            "w": self.is_wait,
            "o": self.outcome,
            "sec": self.seconds,
        }


class IgnoredEvent(NamedTuple):
    """An event that failed and counts as done, because `on_error` says so: it leaves a row of its last attempt."""

    record_id: int
    attempts: int
    error: str
    seconds: float | None

    def to_json(self) -> dict[str, Any]:
        """The JSON object that `save` takes."""
        id, attempts, error, seconds = self
        return {"id": id, "n": attempts, "o": "ignored", "e": error, "sec": seconds}


class ProgressNote(NamedTuple):
    """A row that later tells how far a partition was: nothing above `read_id` had been read when it was gathered."""

    partition: int
    read_id: int

    def to_json(self) -> dict[str, Any]:
        """The JSON object that `save` takes."""
        return {"p": self.partition, "r": self.read_id}


SaveEntry = ParkedSave | IgnoredEvent | ProgressNote
"""An entry of the list that a save sends."""
