"""One transaction, from picking its first event to its commit: its save is the last statement (DESIGN 6)."""

import time
from typing import NamedTuple

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
    sees it break twice in a row.
    """

    def __init__(self) -> None:
        self._alone = 0  # so many events run one at a time
        self._guilty: dict[Pair, BaseException] = {}
        self._broke_at: Pair | None = None  # the event whose handler saw the connection break, if none has ended since

    def most(self, most: int) -> int:
        """The events that the next transaction may have, of usually so many."""
        return 1 if self._alone else most

    def take_error(self, event: DeliveredEvent) -> BaseException | None:
        """The error that this event has brought about; it is its result now."""
        return self._guilty.pop(event.identity, None)

    def committed(self, events: int) -> None:
        """A transaction of so many events has committed."""
        self._alone = max(0, self._alone - events)
        self._broke_at = None

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
        if len(pairs) == 1:
            # The commit has raised it, not the handler: its frames are ours alone.
            self._guilty[pairs[0]], self._alone = error.with_traceback(None), 0


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
            while self._next is not None:
                self._run_one(effects, *self._next)
                if len(self.runs) == most or time.monotonic() >= until or not self.pick():
                    break
            self.saves = self._transactions.note(self.opened, time.monotonic())
            self._save(effects)
        self._transactions.committed(self.opened, self.saves, time.monotonic())

    def _run_one(self, effects: Effects, lane: Lane, event: DeliveredEvent) -> None:
        endpoint = self._around.runner.routes[event.route]
        started = lane.started
        refusal = self._around.blame.take_error(event) or endpoint.refusal(started)
        result = refusal or self._call(effects, endpoint, event)
        seconds = None if refusal else time.monotonic() - started
        verdict = endpoint.judge(event, result, started)
        self.runs.append(Run(event, endpoint, verdict, result, seconds))
        self._transactions.ran(self.opened, Judged(lane, event, verdict))

    @staticmethod
    def _call(effects: Effects, endpoint: Endpoint, event: DeliveredEvent) -> object:
        result = endpoint.context().run(effects.call, endpoint, event)
        if not effects.is_intact:
            raise GoneError(event, result)
        return result

    def _save(self, effects: Effects) -> None:
        mine, self.save_took = effects.save(self.opened.me, self.saves)
        lost = [save.tenure for save in self.saves if save.tenure.number not in mine]
        if lost:
            self._context.signals.lost(lost)
            raise Error(f"{len(lost)} partitions were lost meanwhile")
        self._transactions.saved(self.opened)
