"""Parked rows, chained by key, and the choice of the row that may run next.

A key is blocked while it has blocking rows. Only the blocking row with the smallest id may run: `held` and `ready` rows
at once, other rows when they are due, `dead` rows never. New records of a blocked key are parked as `held` behind them.

**State** (`RowState`): the reason why the event is parked. The database stores only the state.

    scheduled    its time has not come; only new rows are scheduled
    retrying     it failed, and has another attempt
    deferred     it was put off without an attempt: by its handler, an open circuit or a limit
    held         it waits behind another row of its key
    ready        it was handed over unstarted
    dead         no more attempts; an operator's replay makes it `ready` in the database, and a new row here

**Stage** (`RowStage`): where the row is, in the database, in memory or in both.

    UNSAVED      its latest change is not committed, so it must not run
    WAITING      it is stored as it is here, and runs when it is due and first in line
    LOADED       its event is in memory, in a lane or with a handler
    RUNS_ON      its event was parked while a handler runs it, and the parking is not committed

    UNSAVED -saved-> WAITING -load-> LOADED        UNSAVED -keep-> RUNS_ON -saved-> LOADED
    LOADED -put back-> WAITING                     RUNS_ON -put back-> UNSAVED
    LOADED, RUNS_ON -park-> UNSAVED                WAITING -change-> UNSAVED

**Suspicion** (`Suspicion`): whether the event may have killed a process; see `partbox.worker.engine.poison`.

    NONE -> SUSPECT              it may have been running when a process died
    NONE -> ACCUSED              it was recorded as started when a process died
    SUSPECT <-> CHARGED          its trial: the attempt is charged before the event runs
    ACCUSED <-> CHARGED_ALONE    its trial, with no other charged row beside it
    any -> NONE                  parked anew"""

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from itertools import takewhile
from operator import attrgetter
from types import MappingProxyType
from typing import Final

from partbox.protocol.spill import Spill

MAX_CHAIN_RUN = 100

_get_id = attrgetter("id")


class RowState(StrEnum):
    """The reason why an event was set aside in a database row, such as a retry or a later delivery time."""

    SCHEDULED = "scheduled"
    RETRYING = "retrying"
    DEFERRED = "deferred"
    HELD = "held"
    READY = "ready"
    DEAD = "dead"

    # Observers receive the state as a string, and may print a dictionary that counts by state.
    __repr__ = str.__repr__


class RowStage(Enum):
    """The place of a set-aside event's row: in the database, in memory, or changed in memory and not committed."""

    UNSAVED = "unsaved"
    WAITING = "waiting"
    LOADED = "loaded"
    RUNS_ON = "runs on"


class Suspicion(Enum):
    """The degree to which an event is suspected of having killed a worker process."""

    # A suspected event gets a trial, which is a run that is counted as an attempt beforehand.

    NONE = "none"
    SUSPECT = "suspect"
    ACCUSED = "accused"
    CHARGED = "charged"
    CHARGED_ALONE = "charged alone"


READY_STATES: Final = (RowState.HELD, RowState.READY)
OPEN_STATES: Final = (RowState.RETRYING, RowState.DEFERRED, RowState.HELD, RowState.READY)

_REPARKED: Final = frozenset({*OPEN_STATES, RowState.DEAD})
_NEXT_STATES: Final = MappingProxyType(
    dict.fromkeys(RowState, _REPARKED) | {RowState.DEAD: _REPARKED - frozenset(READY_STATES)}
)
_SAVED: Final = MappingProxyType(
    {
        RowStage.UNSAVED: RowStage.WAITING,
        # A dead-letter hook was called.
        RowStage.WAITING: RowStage.WAITING,
        RowStage.LOADED: RowStage.LOADED,
        RowStage.RUNS_ON: RowStage.LOADED,
    }
)
_KEPT: Final = MappingProxyType({RowStage.UNSAVED: RowStage.RUNS_ON, RowStage.WAITING: RowStage.LOADED})
_PUT_BACK: Final = MappingProxyType({RowStage.LOADED: RowStage.WAITING, RowStage.RUNS_ON: RowStage.UNSAVED})
_CHARGED: Final = MappingProxyType({Suspicion.SUSPECT: Suspicion.CHARGED, Suspicion.ACCUSED: Suspicion.CHARGED_ALONE})
_TRIAL_ENDED: Final = MappingProxyType({charged: before for before, charged in _CHARGED.items()})
_IN_MEMORY: Final = (RowStage.LOADED, RowStage.RUNS_ON)


@dataclass(slots=True)
class ParkedRow:
    """The database row of a failed or waiting event, as kept in memory."""

    # The event was set aside because it cannot run now. `due` is in monotonic seconds, or None for at once.

    id: int
    state: RowState
    attempts: int
    blocks: bool
    due: float | None = None
    stage: RowStage = RowStage.WAITING
    suspicion: Suspicion = Suspicion.NONE
    # The row waits for a permit or a time, and nothing is wrong.
    waits: bool = False

    @property
    def is_unsaved(self) -> bool:
        """True if the latest change of the row is not committed to the database."""
        return self.stage is RowStage.UNSAVED or self.stage is RowStage.RUNS_ON

    @property
    def is_loaded(self) -> bool:
        """True if the event itself, not only its row, is in memory."""
        return self.stage in _IN_MEMORY

    @property
    def is_suspect(self) -> bool:
        """True if the event may have killed a process."""
        # The event's attempt is counted before it runs, or has been counted.
        return self.suspicion is not Suspicion.NONE

    @property
    def is_accused(self) -> bool:
        """True if the event was recorded as started when a process died."""
        # An accused event runs only while no other event is on trial, which means that its attempt was counted
        # beforehand.
        return self.suspicion is Suspicion.ACCUSED or self.suspicion is Suspicion.CHARGED_ALONE

    @property
    def is_charged(self) -> bool:
        """True if the event runs with its attempt counted beforehand, because it may have killed a process."""
        # The run is the event's trial.
        # The attempt is counted before the event runs. The trial lasts until the event is done, parked anew or put
        # back.
        return self.suspicion is Suspicion.CHARGED or self.suspicion is Suspicion.CHARGED_ALONE

    def runs_at(self) -> float | None:
        """Return the time at which the event may run, 0.0 for at once, or None if it cannot run."""
        # The time is in monotonic seconds. It is None if the row is loaded, unsaved or dead.
        if self.stage is not RowStage.WAITING or self.state is RowState.DEAD:
            return None
        return 0.0 if self.state in READY_STATES else self.due

    def may_run(self, now: float) -> bool:
        """Return True if the event may be loaded and run now: its row is stored, not in memory, and due."""
        at = self.runs_at()
        return at is not None and at <= now

    def park(self, state: RowState, attempts: int, *, blocks: bool, waits: bool = False) -> None:
        """Set the event aside again, with a new state and number of attempts."""
        # A row in any state but dead may become retrying, deferred, held, ready or dead. A dead row is parked again
        # only if its handler ran on past its timeout. The handler's verdict then counts: retrying, deferred or dead.
        # The event was in memory. The change is unsaved, and ends any suspicion.
        assert state in _NEXT_STATES[self.state], (self, state)
        assert self.stage in _IN_MEMORY, self
        self.state, self.attempts, self.blocks, self.waits = state, attempts, blocks, waits
        self.stage, self.suspicion = RowStage.UNSAVED, Suspicion.NONE

    def mark_changed(self) -> None:
        """Record that the row was changed in memory and differs from its stored form."""
        assert self.stage is RowStage.WAITING, self
        self.stage = RowStage.UNSAVED

    def note_saved(self) -> None:
        """Record that the latest change of the row is committed to the database."""
        self.stage = _SAVED[self.stage]

    def mark_loaded(self) -> None:
        """Record that the event is now in memory, waiting for its handler or running."""
        assert self.stage is RowStage.WAITING, self
        self.stage = RowStage.LOADED

    def keep_running(self) -> None:
        """Record that a handler still runs the event, although the event was set aside meanwhile."""
        assert self.stage in _KEPT, self
        self.stage = _KEPT[self.stage]

    def put_back(self) -> None:
        """Record that the event left memory without having started."""
        # This ends a trial.
        assert self.stage in _PUT_BACK, self
        self.stage = _PUT_BACK[self.stage]
        self.end_trial()

    def mark_suspect(self, *, accused: bool = False) -> None:
        """Record that the event may have killed a worker process."""
        # `accused` means that the event was recorded as started when the process died.
        assert self.suspicion is Suspicion.NONE, self
        self.suspicion = Suspicion.ACCUSED if accused else Suspicion.SUSPECT

    def start_trial(self) -> None:
        """Start the trial run of an event that may have killed a process. Its attempt is counted before it runs."""
        assert self.suspicion in _CHARGED, self
        self.suspicion = _CHARGED[self.suspicion]

    def end_trial(self) -> None:
        """End the trial run of an event that may have killed a process. The event stays under suspicion."""
        # Without a trial, nothing changes.
        # The trial is the run that was counted as an attempt beforehand.
        self.suspicion = _TRIAL_ENDED.get(self.suspicion, self.suspicion)


def is_chain_waiting(head: ParkedRow, *, before: bool) -> bool:
    """Return True if a key's events wait for a rate limit or a time, False if they wait because of an error."""
    # `head` is the first parked event of the key. The rows behind a head are held for the head's reason. A head that
    # was itself held, behind a row that is gone, changes nothing: `before` says whether the chain has waited until now.
    return before if head.state is RowState.HELD else head.waits


@dataclass(slots=True)
class Chain:
    """The failed or waiting events of one key, in id order, behind which later events of the key have to wait."""

    # A chain `waits` if its head waits for a permit or a time. Otherwise it is in trouble, and its rows count against
    # the brake (a partition with too much trouble is not read further).

    rows: list[ParkedRow] = field(default_factory=list)
    # The head is running and has held up its partition for too long.
    blocked_by_slow: bool = False
    waits: bool = True
    # Set while records of the key wait in the log without rows. The chain may then have no rows.
    spill: Spill | None = None

    def __iter__(self) -> Iterator[ParkedRow]:
        return iter(self.rows)

    def insert(self, row: ParkedRow) -> None:
        """Insert a set-aside event's row into the chain of its key, in id order."""
        if not self.rows or row.id > self.rows[-1].id:
            self.rows.append(row)
        else:
            insort(self.rows, row, key=_get_id)

    def count_open(self) -> int:
        """Return the number of events in the chain that are not dead."""
        return sum(row.state in OPEN_STATES for row in self.rows)

    def list_runnable(self, now: float) -> list[ParkedRow]:
        """Return the events of the key that may run now one after another, at most `MAX_CHAIN_RUN`."""
        # They are the head of the chain and the rows that may follow it without waiting.
        # The list is empty while the head is loaded. A suspect row is returned alone: a row behind it gets its own
        # trial.
        run: list[ParkedRow] = []
        for row in self.rows:
            if len(run) == MAX_CHAIN_RUN or not row.may_run(now) or self._is_held_back(row):
                break
            if run and (row.is_suspect or run[0].is_suspect):
                break
            run.append(row)
        return run

    def wakes_at(self) -> float | None:
        """Return the time at which the first event of the key may run, 0.0 for at once, or None if it cannot run."""
        # The time is in monotonic seconds. It is None if the first event is loaded, unsaved or dead.
        if self.needs_refill():
            return 0.0
        return self.rows[0].runs_at() if self.rows and not self._is_held_back(self.rows[0]) else None

    def needs_refill(self) -> bool:
        """Return True if rows for the next records of the key must be inserted, because the key makes progress."""
        # That is so if fewer than half of the rows that may run are left, and the first of them runs or may run at
        # once.
        spill = self.spill
        if spill is None or not spill.has_unread():
            return spill is not None and spill.may_end()
        left = self.count_before_spill()
        if 2 * left >= spill.size:
            return False
        return not left or self.rows[0].is_loaded or self.rows[0].runs_at() == 0.0

    def count_before_spill(self) -> int:
        """Return the number of rows whose events may run before any record that waits in the log without a row."""
        return len(self.rows) if self.spill is None else bisect_left(self.rows, self.spill.from_id, key=_get_id)

    def _is_held_back(self, row: ParkedRow) -> bool:
        return self.spill is not None and self.spill.holds_back(row.id)

    def iter_before(self, record_id: int) -> Iterator[ParkedRow]:
        """Iterate over the events of the key whose record id is lower than `record_id`."""
        return takewhile(lambda row: row.id < record_id, self.rows)

    def select_in_line(self, rows: Sequence[ParkedRow]) -> list[ParkedRow]:
        """Return the given events that may run in order, because all earlier events of the key are in memory."""
        # No parked event of the chain before them is still unloaded.
        waits = next((row.id for row in self.rows if row.stage not in _IN_MEMORY), None)
        return [row for row in rows if waits is None or row.id < waits]

    def is_caught_up(self) -> bool:
        """Return True if new events of the key can queue in memory, because all earlier events of the key are there."""
        # The earlier events are the set-aside events of the chain.
        # New events of the key may then queue behind them in memory.
        if self.blocked_by_slow or self.spill is not None:
            return False
        return all(row.stage in _IN_MEMORY for row in self.rows)
