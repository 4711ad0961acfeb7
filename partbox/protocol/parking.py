"""Parked rows of a key, and the choice of the one that may run next.

A key is blocked while it has blocking rows. Of those only the smallest id may run: `held` and `ready` at once, others
when due, `dead` never. Records polled for a blocked key are parked `held` behind them.

**State** (`RowState`): why the event is parked, and the only part of this that the database stores.

    scheduled    its time has not come; only a new row is
    retrying     it failed, and has another attempt
    deferred     it is put off without an attempt: its handler asked for that, a circuit is open, or a limit holds it
    held         it waits behind another row of its key
    ready        it is handed over unstarted
    dead         nobody tries it any more; an operator's replay makes it `ready` in the database, and a new row here

    a new row            -> any
    any but dead         -> retrying, deferred, held, ready, dead
    dead                 -> retrying, deferred, dead: its handler went on past its timeout, and its own verdict counts

**Stage** (`RowStage`): where the row is, in the database, in memory or in both.

    UNSAVED      its latest change is not committed, so it may not run
    WAITING      it is stored as it is here, and runs when it is due and its turn has come
    LOADED       its event is in memory, in a lane or with a handler
    RUNS_ON      its event was parked while a handler has it, and that is not committed

    UNSAVED -saved-> WAITING -load-> LOADED        UNSAVED -keep-> RUNS_ON -saved-> LOADED
    LOADED -put back-> WAITING                     RUNS_ON -put back-> UNSAVED
    LOADED, RUNS_ON -park-> UNSAVED                WAITING -change-> UNSAVED

**Suspicion** (`Suspicion`): whether the event may have killed a process; see `partbox.worker.engine.poison`.

    NONE -> SUSPECT              it may have been running when a process died
    NONE -> ACCUSED              it was noted as started when a process died
    SUSPECT <-> CHARGED          its turn: the attempt is charged before it runs
    ACCUSED <-> CHARGED_ALONE    its turn, with no other charged row beside it
    any -> NONE                  parked anew
"""

from bisect import insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from itertools import takewhile
from types import MappingProxyType
from typing import Final

MAX_CHAIN_RUN = 100


class RowState(StrEnum):
    """The reason why an event is parked, as the database has it; see above."""

    SCHEDULED = "scheduled"
    RETRYING = "retrying"
    DEFERRED = "deferred"
    HELD = "held"
    READY = "ready"
    DEAD = "dead"

    __repr__ = str.__repr__  # observers are given it as a string, and may print what they count by it


class RowStage(Enum):
    """A parked row's way between database and memory; see above."""

    UNSAVED = "unsaved"
    WAITING = "waiting"
    LOADED = "loaded"
    RUNS_ON = "runs on"


class Suspicion(Enum):
    """Whether a parked event may have killed a process; see above."""

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
        RowStage.WAITING: RowStage.WAITING,  # a dead-letter hook was told
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
    """A parked row in memory. `due` is monotonic seconds, None for at once."""

    id: int
    state: RowState
    attempts: int
    blocks: bool
    due: float | None = None
    stage: RowStage = RowStage.WAITING
    suspicion: Suspicion = Suspicion.NONE
    waits: bool = False  # for a permit or a time, which is no trouble

    @property
    def unsaved(self) -> bool:
        """True if its latest change is not committed."""
        return self.stage is RowStage.UNSAVED or self.stage is RowStage.RUNS_ON

    @property
    def loaded(self) -> bool:
        """True if its event is in memory."""
        return self.stage in _IN_MEMORY

    @property
    def suspect(self) -> bool:
        """True if it is charged before it runs, or has been."""
        return self.suspicion is not Suspicion.NONE

    @property
    def accused(self) -> bool:
        """True if it runs with no other charged row beside it."""
        return self.suspicion is Suspicion.ACCUSED or self.suspicion is Suspicion.CHARGED_ALONE

    @property
    def charged(self) -> bool:
        """True if it has its turn, until it is done, parked anew or handed back."""
        return self.suspicion is Suspicion.CHARGED or self.suspicion is Suspicion.CHARGED_ALONE

    def runs_at(self) -> float | None:
        """The time at which it may run: 0.0 at once, monotonic seconds, or None (loaded, unsaved or dead)."""
        if self.stage is not RowStage.WAITING or self.state is RowState.DEAD:
            return None
        return 0.0 if self.state in READY_STATES else self.due

    def may_run(self, now: float) -> bool:
        """True if it is stored, not in memory, and due."""
        at = self.runs_at()
        return at is not None and at <= now

    # Its transitions, as drawn above.

    def park(self, state: RowState, attempts: int, *, blocks: bool, waits: bool = False) -> None:
        """Park its event anew."""
        assert state in _NEXT_STATES[self.state], (self, state)
        assert self.stage in _IN_MEMORY, self
        self.state, self.attempts, self.blocks, self.waits = state, attempts, blocks, waits
        self.stage, self.suspicion = RowStage.UNSAVED, Suspicion.NONE

    def change(self) -> None:
        """Note that it differs from what is stored."""
        assert self.stage is RowStage.WAITING, self
        self.stage = RowStage.UNSAVED

    def saved(self) -> None:
        """Note that its latest change is committed."""
        self.stage = _SAVED[self.stage]

    def load(self) -> None:
        """Its event is in memory from here."""
        assert self.stage is RowStage.WAITING, self
        self.stage = RowStage.LOADED

    def keep_running(self) -> None:
        """A handler has the event and goes on, though it is parked now."""
        assert self.stage in _KEPT, self
        self.stage = _KEPT[self.stage]

    def put_back(self) -> None:
        """Its event leaves memory as it came; a turn ends with that."""
        assert self.stage in _PUT_BACK, self
        self.stage = _PUT_BACK[self.stage]
        self.end_trial()

    def mark_suspect(self, *, accused: bool = False) -> None:
        """Suspect it of having killed a process; `accused`: it was noted as started then."""
        assert self.suspicion is Suspicion.NONE, self
        self.suspicion = Suspicion.ACCUSED if accused else Suspicion.SUSPECT

    def start_trial(self) -> None:
        """Charge it: its turn has come."""
        assert self.suspicion in _CHARGED, self
        self.suspicion = _CHARGED[self.suspicion]

    def end_trial(self) -> None:
        """Take its turn away, if it had one."""
        self.suspicion = _TRIAL_ENDED.get(self.suspicion, self.suspicion)


def waits(head: ParkedRow, *, before: bool) -> bool:
    """Return whether a chain with this head waits; else it is trouble.

    Rows behind a head are held for its reason. So a head that was held itself, behind one that is gone, changes
    nothing: `before` says whether the chain waited until now.
    """
    return before if head.state is RowState.HELD else head.waits


@dataclass(slots=True)
class Chain:
    """The blocking rows of one key, in id order.

    A chain `waits` if its head waits for a permit or a time. Else it is trouble, and its rows count against the brake.
    """

    rows: list[ParkedRow] = field(default_factory=list)
    blocked_by_slow: bool = False  # the head is running, and held up its partition for too long
    waits: bool = True

    def __iter__(self) -> Iterator[ParkedRow]:
        return iter(self.rows)

    def insert(self, row: ParkedRow) -> None:
        if not self.rows or row.id > self.rows[-1].id:
            self.rows.append(row)
        else:
            insort(self.rows, row, key=lambda each: each.id)

    def count_open(self) -> int:
        """Count the rows that are not dead."""
        return sum(row.state in OPEN_STATES for row in self.rows)

    def list_runnable(self, now: float) -> list[ParkedRow]:
        """The head and what may follow it without waiting, at most `MAX_CHAIN_RUN` rows; nothing while the head is
        loaded.

        A suspect runs by itself: what follows it is charged when its turn has come.
        """
        run: list[ParkedRow] = []
        for row in self.rows:
            if len(run) == MAX_CHAIN_RUN or not row.may_run(now) or (run and (row.suspect or run[0].suspect)):
                break
            run.append(row)
        return run

    def wakes_at(self) -> float | None:
        """The time at which the head may run, as `ParkedRow.runs_at` says it."""
        return self.rows[0].runs_at() if self.rows else None

    def before(self, record_id: int) -> Iterator[ParkedRow]:
        return takewhile(lambda row: row.id < record_id, self.rows)

    def in_line(self, rows: Sequence[ParkedRow]) -> list[ParkedRow]:
        """The loaded rows that no unloaded row of the chain precedes."""
        waits = next((row.id for row in self.rows if row.stage not in _IN_MEMORY), None)
        return [row for row in rows if waits is None or row.id < waits]

    def caught_up(self) -> bool:
        """True if every row is loaded: events that come now may queue behind them in memory."""
        return not self.blocked_by_slow and all(row.stage in _IN_MEMORY for row in self.rows)
