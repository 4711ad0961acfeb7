"""One transaction, from picking its first event to its commit: its save is the last statement (DESIGN 6)."""

import time
from typing import NamedTuple

from psycopg import Error

from partbox.events import DeliveredEvent
from partbox.handlers.transactional import TransactionKind
from partbox.protocol.verdict import Verdict
from partbox.worker.context import Context
from partbox.worker.engine.partition import Lane
from partbox.worker.engine.reconnect import Pair
from partbox.worker.engine.saves import PartitionSave
from partbox.worker.engine.transactions import Judged, OpenTransaction
from partbox.worker.reports.outcomes import Reports
from partbox.worker.runners.blame import Blame, GoneError
from partbox.worker.runners.effects.effects import Effects
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
        result = effects.call(endpoint, event)
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
