"""One transaction, from picking its first event to its commit: its save is the last statement (DESIGN 6)."""

import time
from typing import Any, NamedTuple

from psycopg import Connection, Error, Rollback
from psycopg.pq import TransactionStatus

from partbox.db.deadline import allowing
from partbox.db.delivery import cursors
from partbox.events import DeliveredEvent
from partbox.outcomes import Done
from partbox.protocol.verdict import Verdict
from partbox.worker.context import Context
from partbox.worker.engine.partition import Lane
from partbox.worker.engine.reconnect import Pair
from partbox.worker.engine.saves import PartitionSave, sent
from partbox.worker.engine.transactions import Judged, OpenTransaction
from partbox.worker.fork_safety import leave
from partbox.worker.reports.outcomes import Reports
from partbox.worker.runners.blame import Blame, GoneError
from partbox.worker.runners.endpoint import Endpoint
from partbox.worker.runners.lane_runner import LaneRunner

LONGEST = 0.05


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
        self.conn: Connection[Any] = opened.conn
        self.runs: list[Run] = []
        self.saves: list[PartitionSave] = []
        self.save_took = 0.0
        self._next: tuple[Lane, DeliveredEvent] | None = None

    @property
    def pairs(self) -> list[Pair]:
        return [run.event.identity for run in self.runs]

    def pick(self) -> bool:
        """Take the next event that may run, if there is one."""
        trusted = self._around.runner.trusted()
        self._next = self._transactions.pick(self.opened, time.monotonic()) if trusted else None
        return self._next is not None

    def run(self, most: int) -> None:
        """Run what was picked and what follows, at most so many, and commit. Raises whatever prevents that."""
        until = time.monotonic() + LONGEST
        with self.conn.transaction():
            # A handler may take its time; what must be quick is what comes after the save.
            cursors.begin_effects(self.conn, self._context.schema)
            while self._next is not None:
                self._run_one(*self._next)
                if len(self.runs) == most or time.monotonic() >= until or not self.pick():
                    break
            self.saves = self._transactions.note(self.opened)
            self._save()
        self._transactions.committed(self.opened, self.saves, time.monotonic())

    def _run_one(self, lane: Lane, event: DeliveredEvent) -> None:
        endpoint = self._around.runner.routes[event.route]
        started = lane.started
        refusal = self._around.blame.take_error(event) or endpoint.refusal(started)
        result = refusal or self._call(endpoint, event)
        seconds = None if refusal else time.monotonic() - started
        verdict = endpoint.judge(event, result, started)
        self.runs.append(Run(event, endpoint, verdict, result, seconds))
        self._transactions.ran(self.opened, Judged(lane, event, verdict))

    def _call(self, endpoint: Endpoint, event: DeliveredEvent) -> object:
        """Call the handler in a savepoint, which is rolled back unless the event is done."""
        result: object = None
        try:
            with self.conn.transaction() as savepoint:
                try:
                    with allowing(self.conn):
                        result = endpoint.call(event, self.conn)
                except BaseException as error:  # also SystemExit: a handler does not end the process
                    result = error
                if self._context.engine.forked:
                    leave(result)
                if result is not None and not isinstance(result, Done):
                    raise Rollback(savepoint)
        except BaseException as error:
            result = result if isinstance(result, BaseException) else error
        if self.conn.info.transaction_status != TransactionStatus.INTRANS:
            raise GoneError(event, result)
        return result

    def _save(self) -> None:
        context = self._context
        cursors.end_effects(self.conn, context.schema, context.settings.lease / 2)
        mine, self.save_took = cursors.save(
            self.conn, context.schema, context.subscription, self.opened.me, *sent(self.saves), durable=True
        )
        lost = [save.tenure for save in self.saves if save.tenure.number not in mine]
        if lost:
            context.signals.lost(lost)
            raise Error(f"{len(lost)} partitions were lost meanwhile")
        self._transactions.saved(self.opened)
