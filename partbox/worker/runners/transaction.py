"""One transaction, from picking its first event to its commit: its save is the last statement (DESIGN 6)."""

import time
from contextlib import suppress
from typing import NamedTuple, cast

from psycopg import Connection, DatabaseError, Error, OperationalError

from partbox.events import DeliveredEvent
from partbox.handlers.transactional import TransactionKind
from partbox.protocol.verdict import Verdict
from partbox.text.printing import text_of
from partbox.worker.context import Context
from partbox.worker.engine.partition import Lane
from partbox.worker.engine.reconnect import Pair
from partbox.worker.engine.saves import PartitionSave
from partbox.worker.engine.transactions import Judged, OpenTransaction
from partbox.worker.reports.outcomes import Reports
from partbox.worker.runners.effects.effects import Effects
from partbox.worker.runners.endpoint import Endpoint
from partbox.worker.runners.lane_runner import LaneRunner

LONGEST = 0.05

CONFLICTS = {"40001", "40P01"}
"""Serialization failures and deadlocks: more than one has a part in each."""
SHARED = CONFLICTS | {"55P03", "23503", "42P03", "42P05", "42P07"}
"""Errors by which an event may suffer from others of its transaction: conflicts; a lock that was waited for too long
while theirs were held; a foreign key that they have deferred or not; a name of the session that they have taken."""
DEEPEST = 20  # errors behind a handler's that are looked at
TRIES = 2
"""Conflicts that an event may have alone before it is charged."""


class GoneError(Error):
    """The transaction is not there any more after a handler ran."""

    def __init__(self, event: DeliveredEvent, result: object) -> None:
        self.pair: Pair = event.identity
        failed = issubclass(type(result), BaseException)  # its __class__ may say anything
        why = f": {text_of(result)}" if failed else ""
        super().__init__(f"the handler left no transaction behind{why}")


class Blame:
    """Finds the event to blame for a transaction that failed. The transactor's thread only.

    At the commit (a deferred constraint), or by what handlers did to the session, it may be any event's: then its
    events run one by one until one does it again, and the error is that one's. So is the loss of the transaction to a
    handler that ends it, or closes the connection; a connection that breaks is an event's error only if the same event
    sees it break twice in a row. A lock that an event does not get at once, a deadlock or a serialization failure may
    be others' making, too: the event runs again without them before it is charged.
    """

    def __init__(self) -> None:
        self._alone = 0  # so many events run one at a time
        self._guilty: dict[Pair, BaseException] = {}
        self._tries: dict[Pair, int] = {}  # how often an event was in a conflict, alone
        self._broke_at: Pair | None = None  # the event whose handler saw the connection break, if none has ended since

    def most(self, most: int) -> int:
        """The events that the next transaction may have, of usually so many."""
        return 1 if self._alone else most

    def take_error(self, event: DeliveredEvent) -> BaseException | None:
        """The error that this event has brought about; it is its result now."""
        return self._guilty.pop(event.identity, None)

    def spares(self, event: DeliveredEvent, error: BaseException, *, beside: bool) -> bool:
        """True if the error may be of others' making, and so the event is to run again before it is charged.

        `beside`: others are done in its transaction, whose locks are held while it waits for more.
        """
        state = sqlstate_of(error)
        if beside:
            return state in SHARED
        spared = self._tries_left(event.identity, state)
        if spared:
            self._alone = max(self._alone, 1)
        return spared

    def committed(self, pairs: list[Pair]) -> None:
        """A transaction of these events has committed."""
        self._alone = max(0, self._alone - len(pairs))
        self._broke_at = None
        if self._tries:
            for pair in pairs:
                self._tries.pop(pair, None)

    def lost(self, conn: Connection[object], error: GoneError) -> None:
        """A handler left no transaction behind."""
        if not conn.broken or self._broke_at == error.pair:
            self._guilty[error.pair] = RuntimeError(str(error))
        self._broke_at = error.pair

    def failed(self, pairs: list[Pair], error: Error, *, saved: bool) -> None:
        """A transaction of these events failed at its end; `saved`: after the save, at the commit.

        Handlers have brought it about: at the commit always, before it unless the server was the matter.
        """
        if not saved and (not isinstance(error, DatabaseError) or isinstance(error, OperationalError)):
            return
        self._alone = len(pairs)
        if len(pairs) == 1 and not self._tries_left(pairs[0], error.sqlstate):
            # The commit has raised it, not the handler: its frames are ours alone.
            self._guilty[pairs[0]], self._alone = error.with_traceback(None), 0

    def _tries_left(self, pair: Pair, state: str | None) -> bool:
        """True, a few times, if the event that ran alone was in a conflict."""
        tries = self._tries.pop(pair, 0)
        if state not in CONFLICTS or tries == TRIES:
            return False
        self._tries[pair] = tries + 1
        return True


def sqlstate_of(raised: BaseException) -> str | None:
    """Return the code of SHARED that a handler's error has, or one behind it; None without one."""
    error: BaseException | None = raised
    with suppress(Exception):  # an object of the application's own whose very questions fail
        for _ in range(DEEPEST):
            if error is None or (isinstance(error, Error) and error.sqlstate in SHARED):
                break
            error = error.__cause__ or error.__context__
        return error.sqlstate if isinstance(error, Error) and error.sqlstate in SHARED else None
    return None


class Run(NamedTuple):
    """One event of the transaction, what became of it, and the seconds that its handler ran; None if it did not."""

    event: DeliveredEvent
    endpoint: Endpoint
    verdict: Verdict | None
    result: object
    seconds: float | None


class Surroundings(NamedTuple):
    """The parts that all transactions of a process work with."""

    context: Context
    runner: LaneRunner
    reports: Reports
    blame: Blame


class Transaction:
    """Runs the handlers and statements of one transaction; what it is in memory is `opened`."""

    def __init__(self, around: Surroundings, opened: OpenTransaction) -> None:
        self._around = around
        self._context = around.context
        self._transactions = around.context.engine.transactions
        self.opened = opened
        self.runs: list[Run] = []
        self.saves: list[PartitionSave] = []
        self.save_took = 0.0
        self._next: tuple[Lane, DeliveredEvent] | None = None

    @property
    def pairs(self) -> list[Pair]:
        return [run.event.identity for run in self.runs]

    @property
    def kind(self) -> TransactionKind:
        """The kind that the picked event needs, which is that of the whole transaction."""
        assert self._next is not None
        kind = self._around.runner.routes[self._next[1].route].transaction
        assert kind is not None
        return kind

    def pick(self) -> bool:
        """Take the next event that may run, if there is one."""
        trusted = self._around.runner.trusted()
        self._next = self._transactions.pick(self.opened, time.monotonic()) if trusted else None
        return self._next is not None

    def run(self, effects: Effects, most: int) -> None:
        """Run what was picked and what follows, at most so many, and commit. Raises whatever prevents that."""
        until = time.monotonic() + LONGEST
        with effects.transaction():
            effects.begin()
            while self._run_one(effects, *self._picked()):
                if len(self.runs) == most or time.monotonic() >= until or not self.pick():
                    break
            self.saves = self._transactions.note(self.opened, time.monotonic())
            if self.saves:
                self._save(effects)
        self._transactions.committed(self.opened, self.saves, time.monotonic())

    def _run_one(self, effects: Effects, lane: Lane, event: DeliveredEvent) -> bool:
        """Run one event; False if none is to follow it in this transaction."""
        endpoint = self._around.runner.routes[event.route]
        started = lane.started
        refusal = self._around.blame.take_error(event) or endpoint.refusal(started)
        result = refusal or endpoint.context().run(effects.call, endpoint, event)
        ended = not effects.is_intact
        if ended:
            result = self._end_of(effects, event, result)
        elif issubclass(type(result), BaseException) and self._undone(
            endpoint, lane, event, cast(BaseException, result)
        ):
            return False
        seconds = None if refusal else time.monotonic() - started
        verdict = endpoint.judge(event, result, started)
        self.runs.append(Run(event, endpoint, verdict, result, seconds))
        self._transactions.ran(self.opened, Judged(lane, event, verdict))
        return not ended

    @property
    def _holds_locks(self) -> bool:
        """True if an event of this transaction is done; of others nothing is left."""
        return any(run.verdict is None for run in self.runs)

    @staticmethod
    def _end_of(effects: Effects, event: DeliveredEvent, result: object) -> Exception:
        """Return the error of an event that has committed the transaction of all; raise GoneError if it is lost.

        The events before it are done for good. They are saved in another transaction, which begins here.
        """
        gone = GoneError(event, result)
        if effects.conn.closed or not effects.begin_anew():
            raise gone
        return RuntimeError(f"{gone}: it has committed it, and what it did until then stays")

    def _undone(self, endpoint: Endpoint, lane: Lane, event: DeliveredEvent, error: BaseException) -> bool:
        """Put the event back, of whose run nothing is left, if its error may be of others' making: True then.

        Not one that is parked already, for it runs for long.
        """
        if not self._around.blame.spares(event, error, beside=self._holds_locks):
            return False
        if not self._transactions.undone(self.opened, lane, event):
            return False
        endpoint.note_undecided(lane.started)
        self._context.engine.outcomes.put_back(lane, event)
        return True

    def _picked(self) -> tuple[Lane, DeliveredEvent]:
        assert self._next is not None
        return self._next

    def _save(self, effects: Effects) -> None:
        mine, self.save_took = effects.save(self.opened.me, self.saves)
        lost = [save.tenure for save in self.saves if save.tenure.number not in mine]
        if lost:
            self._context.signals.lost(lost)
            raise Error(f"{len(lost)} partitions were lost meanwhile")
        self._transactions.saved(self.opened)
