"""The statements of a worker, answered by the model of the database: the one place where its functions are replaced.

A statement may be answered, be lost before it gets there, or lose its answer; it may arrive long after its connection
is lost; or fail on a connection that lives. Who makes its fiber go on says which.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

import pytest
from database import Database
from fibers import pause
from psycopg import OperationalError
from psycopg.errors import QueryCanceled
from psycopg.pq import TransactionStatus

from partbox.db import blocking
from partbox.db.blocking import Row
from partbox.db.delivery import cursors, effects, idle_check, instances, limits, parked, proof, records, traffic
from partbox.db.delivery.cursors import TickResult
from partbox.db.delivery.effects import BEGIN_WITH_SAVEPOINT, READ_SESSION, RELEASE, SAVEPOINT
from partbox.db.delivery.idle_check import IdleCheck
from partbox.db.delivery.records import PolledPage, QuickPage
from partbox.db.operator import subscriptions
from partbox.protocol.rows import (
    CursorSave,
    LooseRows,
    OwnedPartition,
    Refill,
    RefilledKey,
    SaveEntry,
    StoredRow,
    StoredSpill,
)
from partbox.worker.poller import poller

T = TypeVar("T")
Pair = tuple[int, int]
MAY_BE_LATE = ("save", "claim", "take_up", "refill")
TAKES = 0.001  # seconds, of a statement
IN_VAIN = 4


class Fate(Enum):
    """What becomes of a statement that is sent, or of its answer."""

    LOST = "lost"  # and the connection with it
    LATE = "late"  # its connection is lost, and it arrives all the same, some time
    REFUSED = "refused"  # it fails, and the connection lives


class Sent(NamedTuple):
    """A statement on its way; or `answered`, and its answer is."""

    name: str
    answered: bool = False


class ModelConnection:
    """A connection to the model. `committed` is told what transactional handlers have done in a transaction."""

    def __init__(self, database: Database, committed: Callable[[list[Any]], None]) -> None:
        self.database = database
        self.closed = self.broken = self.is_pooled = False
        self.adapters = SimpleNamespace(register_loader=lambda *_: None)
        self._incarnation = database.incarnation
        self._committed = committed
        self._page: Any = None  # asked for by the last full poll, and what came
        self._in_vain = 0  # so often it came again
        self._effects: list[list[Any]] = []
        self._last: list[Callable[[], object]] = []  # what the transaction in hand does when it commits

    def close(self) -> None:
        self.closed = True

    def ask(self, name: str, run: Callable[[], T]) -> T:
        self._check()
        fate = pause(Sent(name))
        if fate is Fate.LATE and name in MAY_BE_LATE and not self.closed:
            self.database.arriving.append(run)
        if fate is Fate.REFUSED:
            raise QueryCanceled("canceling statement due to statement timeout")
        self._check(lost=fate is not None)
        self.database.clock.now += TAKES
        answer = run()
        self._check(lost=pause(Sent(name, answered=True)) is not None)
        return answer

    def _check(self, *, lost: bool = False) -> None:
        if lost or self._incarnation != self.database.incarnation:
            self.closed = True
        if self.closed:
            raise OperationalError("the connection is lost")

    # The transactions of handlers.

    @property
    def info(self) -> Any:
        inside = bool(self._effects) and not self.closed
        return SimpleNamespace(transaction_status=TransactionStatus.INTRANS if inside else TransactionStatus.IDLE)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """A transaction of handlers."""
        self._check()
        self._effects.append([])
        try:
            yield
        except BaseException:
            self._effects.clear()
            self._last = []
            raise
        (effects,) = self._effects
        self._effects.clear()
        last, self._last = self._last, []
        self._check()
        self._committed(effects)
        for run in last:
            run()
        self._check(lost=pause(Sent("commit", answered=True)) is not None)

    @property
    def in_hand(self) -> list[Any]:
        """What handlers have done in the transaction that is not committed yet."""
        return [what for level in self._effects for what in level]

    def effect(self, what: Any) -> None:
        self._effects[-1].append(what)

    # The statements, by the names of their functions.

    def run_tick(self, _: str, __: str, me: UUID, listed: Iterable[int], known: int | None = None) -> TickResult:
        return self.ask("tick", lambda: self.database.tick(me, list(listed), known))

    def recheck_idle(self, _: str, __: str, me: UUID, known: int, before: IdleCheck) -> IdleCheck | None:
        return self.ask("calm", lambda: self.database.calm(me, known, before))

    def claim_partitions(self, _: str, __: str, me: UUID) -> list[OwnedPartition]:
        return self.ask("claim", lambda: self.database.claim(me))

    def take_up_partitions(self, _: str, __: str, me: UUID, epochs: Mapping[int, int]) -> list[OwnedPartition]:
        return self.ask("take_up", lambda: self.database.take_up(me, epochs))

    def save(
        self, _: str, __: str, me: UUID, savings: Sequence[CursorSave], parks: Sequence[SaveEntry] = (),
        done_ids: Sequence[int] = (), *, durable: bool = False, session: Any = None,
    ) -> tuple[set[int], float]:  # fmt: skip
        def run() -> set[int]:
            return self.database.save(me, savings, parks, done_ids, durable=durable)

        if not self._effects:
            return self.ask("save", run), 0.001
        # Its rows are locked until the commit, which follows at once: nothing comes between the two.
        self._check(lost=pause(Sent("save")) is not None)
        mine = self.database.owned(me, savings)
        if len(mine) == len(savings):
            self._last.append(run)
        return mine, 0.001

    def run_script(self, script: bytes) -> tuple[str | None, ...]:
        """Do what a script around the handlers of a transaction does with its savepoint."""
        self._check()
        if script.startswith(RELEASE):
            done = self._effects.pop()
            self._effects[-1] += done
        if script == BEGIN_WITH_SAVEPOINT or script.endswith(SAVEPOINT):
            self._effects.append([])
        return ("", "0") if script == READ_SESSION else ("1",)

    def rollback_event(self) -> None:
        self._check()
        self._effects[-1].clear()

    def list_blocking(self, _: str, __: str, partitions: Sequence[int]) -> list[StoredRow]:
        return self.ask("blocking", lambda: self.database.blocking(partitions))

    def count_loose_rows(self, _: str, __: str, partitions: Sequence[int]) -> dict[int, LooseRows]:
        return self.ask("loose_rows", lambda: self.database.loose_rows(partitions))

    def list_ahead(self, _: str, __: str, partitions: Sequence[int]) -> list[Pair]:
        return self.ask("ahead", lambda: self.database.ahead(partitions))

    def list_spills(self, _: str, __: str, partitions: Sequence[int]) -> list[StoredSpill]:
        return self.ask("spills", lambda: self.database.list_spills(partitions))

    def refill(self, _: str, __: str, me: UUID, wanted: Refill) -> list[RefilledKey] | None:
        return self.ask("refill", lambda: self.database.refill(me, wanted))

    def load_due(
        self,
        _: str,
        __: str,
        mine: Sequence[int],
        taken: Sequence[int],
        early: Sequence[int],
        room: int,
        share: int,
        letters: int,
    ) -> list[StoredRow]:
        return self.ask("due", lambda: self.database.due(mine, taken, early, room, share, letters))

    def run_check(self, _: str, listed: Iterable[int]) -> IdleCheck:
        return self.ask("look", lambda: self.database.look(list(listed)))

    def is_drawn_unchanged(self, _: str, drawn: int) -> bool:
        return self.ask("still", lambda: self.database.still(drawn))

    def poll_page(
        self, _: str, asks: Any, shared: Any, *, lo: int, hi: int, limits: Any, sweep: Any = None, types: Any = None
    ) -> PolledPage:
        polled = self.ask(
            "poll",
            lambda: self.database.poll(asks, shared, lo=lo, hi=hi, limits=limits, sweep=sweep, types=types),
        )
        page = [(ask.partition, ask.last_id, ask.room, ask.after_id) for ask in asks], polled.rows
        self._in_vain = self._in_vain + 1 if polled.rows and page == self._page else 0
        assert self._in_vain < IN_VAIN, f"the log is asked in vain, for {page}"
        self._page = page
        return polled

    def read_new_records(self, _: str, shared: Any, partitions: str, types: Any = None) -> QuickPage:
        return self.ask("quick", lambda: self.database.quick(shared, partitions, types))

    def load_bodies(self, _: str, wanted: Sequence[Pair]) -> list[Row]:
        return self.ask("bodies", lambda: self.database.bodies(wanted))

    def load_payloads(self, _: str, wanted: Sequence[Pair], most: int) -> dict[Pair, Row | None]:
        return self.ask("payloads", lambda: self.database.payloads(wanted, most))

    def mark_leaving(self, _: str, me: UUID) -> None:
        self.ask("leave", lambda: self.database.leave(me))

    def find_wanted_types(self, _: str, __: str) -> frozenset[str] | None:
        self._check()
        return self.database.wanted

    def check_intact(self, _: str, __: str | None = None) -> None:
        self._check()

    def note_running(self, *_: object) -> None:
        self._check()

    def note_limits(self, *_: object) -> None:
        self._check()

    def note_traffic(self, *_: object) -> None:
        self._check()


REPLACED: Mapping[Any, Sequence[str]] = {
    cursors: ("run_tick", "recheck_idle", "claim_partitions", "take_up_partitions", "save"),
    blocking: ("run_script",),
    effects: ("rollback_event",),
    parked: ("list_blocking", "count_loose_rows", "list_ahead", "list_spills", "refill", "load_due"),
    records: ("poll_page", "read_new_records", "load_bodies", "load_payloads"),
    idle_check: ("run_check", "is_drawn_unchanged"),
    instances: ("mark_leaving", "note_running"),
    proof: ("check_intact",),
    subscriptions: ("find_wanted_types",),
    limits: ("note_limits",),
    traffic: ("note_traffic",),
}


def install(patch: pytest.MonkeyPatch) -> None:
    """Have the model answer every statement of a worker."""
    for module, names in REPLACED.items():
        for name in names:
            patch.setattr(module, name, _asking(name))
    patch.setattr(poller, "use_raw_loaders", lambda _: None)


def _asking(name: str) -> Callable[..., Any]:
    def ask(conn: ModelConnection, *arguments: Any, **keywords: Any) -> Any:
        return getattr(conn, name)(*arguments, **keywords)

    return ask
