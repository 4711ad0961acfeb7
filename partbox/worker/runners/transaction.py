"""One transaction, from picking its first event to its commit."""

import time
from typing import Any, NamedTuple
from uuid import UUID

from psycopg import Connection, Error, Rollback
from psycopg.pq import TransactionStatus

from partbox.db.deadline import allowing
from partbox.db.delivery import cursors
from partbox.events import DeliveredEvent
from partbox.outcomes import Done
from partbox.protocol.verdict import Verdict
from partbox.worker.context import Context
from partbox.worker.engine.partition import Lane, Partition
from partbox.worker.engine.reconnect import Pair
from partbox.worker.engine.saves import PartitionSave, committed, gather, sent
from partbox.worker.engine.transaction_queue import Waiting
from partbox.worker.forks import leave
from partbox.worker.runners.blame import Blame, GoneError
from partbox.worker.runners.dispatcher import Dispatcher
from partbox.worker.runners.endpoint import Endpoint
from partbox.worker.runners.lane_runner import LaneRunner
from partbox.worker.runners.settlement import Settlement

LONGEST = 0.05


class Run(NamedTuple):
    """One event of the transaction, what became of it, and the seconds that its handler ran; None if it did not."""

    lane: Lane
    event: DeliveredEvent
    endpoint: Endpoint
    verdict: Verdict | None
    result: object
    seconds: float | None


class Surroundings(NamedTuple):
    """The parts that all transactions of a process work with."""

    context: Context
    runner: LaneRunner
    settlement: Settlement
    dispatcher: Dispatcher
    waiting: Waiting
    blame: Blame


class Transaction:
    """It is `condemned` when a connection or an identity was lost meanwhile: it does not commit, what it has run is
    read anew. `noted`: what became of its events is; `ending`: its save is sent; `saved`: and answered."""

    def __init__(self, around: Surroundings, conn: Connection[Any], me: UUID) -> None:
        self._around = around
        self._context = around.context
        self._lock = around.context.engine.lock
        self.conn = conn
        self._me = me
        self.condemned = False
        self.noted = self.ending = self.saved = False
        self.runs: list[Run] = []
        self.used: set[Lane] = set()
        self.saves: list[PartitionSave] = []
        self.save_took = 0.0
        self._next: tuple[Lane, DeliveredEvent] | None = None
        self._taken: dict[Partition, set[int]] = {}
        self._last: dict[Partition, int] = {}  # the last new record that was run

    @property
    def pairs(self) -> list[Pair]:
        return [run.event.identity for run in self.runs]

    def pick(self) -> bool:
        """Take the next event that may run, if there is one."""
        self._next = None
        if not self._around.runner.trusted():
            return False
        with self._lock:  # nothing may save, drain or lose the partition between the look at it and the start
            lane = None if self.condemned else self._around.waiting.take(self._taken)
            if lane is None:
                return False
            if lane not in self.used:
                self._around.dispatcher.begin(lane)
                self.used.add(lane)
            partition = lane.partition
            partition.serial = True
            event = lane.queue.popleft()
            if event.parked is None:
                self._taken.setdefault(partition, set()).add(event.id)
                self._last[partition] = event.id
            lane.current, lane.started = event, time.monotonic()
            self._next = (lane, event)
            return True

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
            self._note()
            self._save()
        self._committed()

    def undo(self) -> None:
        """It has failed: what it had noted is not so. Its lanes wait until they are read anew. Lock held."""
        for run in self.runs if self.noted else ():
            run.lane.partition.progress.unfinish(run.event.id)
            run.lane.partition.parked.deleting.pop(run.event.id, None)
        for lane in self.used:
            lane.current = None

    def _run_one(self, lane: Lane, event: DeliveredEvent) -> None:
        endpoint = self._around.runner.routes[event.route]
        started = lane.started
        refusal = self._around.blame.take_error(event) or endpoint.refusal(started)
        result = refusal or self._call(endpoint, event)
        seconds = None if refusal else time.monotonic() - started
        verdict = endpoint.judge(event, result, started)
        self.runs.append(Run(lane, event, endpoint, verdict, result, seconds))
        with self._lock:  # others hold and take what waits in the lane
            lane.current = None  # it does not run any more, whatever the others do
            if verdict is not None and verdict.blocks and lane.key[0] is not None:
                waiting = {each.id for each in list(lane.queue) if each.parked is None}
                self._taken.setdefault(lane.partition, set()).update(waiting)  # to be held, with this save
            elif lane.queue and self._around.runner.is_transactional(lane.queue[0]):
                self._around.waiting.add(lane)

    def _call(self, endpoint: Endpoint, event: DeliveredEvent) -> object:
        """In a savepoint, to which what is not done is rolled back."""
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

    def _note(self) -> None:
        """Note what became of each event, and take what is to be saved."""
        with self._lock:  # no loss and no save of the saver comes between what is noted and what is gathered
            if self.condemned:
                raise Error("a connection was lost meanwhile")
            for run in self.runs:
                if run.lane.partition.lost or run.lane.partition.incarnation != run.lane.incarnation:
                    raise Error(f"partition {run.lane.partition.number} was lost meanwhile")
            self.noted = True
            for run in self.runs:
                self._context.engine.outcomes.note(run.lane, run.event, run.verdict)
            self.saves = [gather(partition) for partition in {run.lane.partition for run in self.runs}]
            for save in self.saves:
                last = self._last.get(save.partition)
                if last is not None and not save.partition.progress.passes(save.target, last):
                    raise RuntimeError(f"partition {save.partition.number}: its cursor would not pass its effects")

    def _save(self) -> None:
        context, self.ending = self._context, True
        cursors.end_effects(self.conn, context.schema, context.settings.lease / 2)
        mine, self.save_took = cursors.save(
            self.conn, context.schema, context.subscription, self._me, *sent(self.saves), durable=True
        )
        lost = [save.tenure for save in self.saves if save.tenure.number not in mine]
        if lost:
            context.signals.lost(lost)
            raise Error(f"{len(lost)} partitions were lost meanwhile")
        self.saved = True

    def _committed(self) -> None:
        around = self._around
        with self._lock:  # the saver has the partitions again only when memory knows the saved cursor
            committed(self._context.engine, self.saves, time.monotonic())
            partitions = {run.lane.partition for run in self.runs}
            for partition in partitions:
                partition.serial = False
                self._context.engine.touch(partition)  # what others did in it meanwhile
            around.waiting.put_last(partitions)
            for lane in self.used:
                around.dispatcher.end_serial(lane)
