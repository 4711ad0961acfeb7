"""Transactions of the transactor: handlers whose effects are committed with the save of their events.

One transaction runs many events, one after the other. It ends with the saves of the partitions of these events. If it
fails, everything in it is read anew.
"""

from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

from partbox.events import DeliveredEvent
from partbox.protocol.verdict import Verdict
from partbox.worker.engine.lock import under_lock
from partbox.worker.engine.outcomes import Outcomes
from partbox.worker.engine.partition import Lane, Partition
from partbox.worker.engine.saves import PartitionSave, gather, note_committed
from partbox.worker.engine.scheduler import LaneScheduler
from partbox.worker.engine.state import EngineState
from partbox.worker.engine.transaction_queue import TransactionQueue


class Stage(Enum):
    """The stage of a transaction.

    RUNNING      handlers run
    ENDING       its events are recorded as done and its saves are being sent
    SAVED        its saves are sent, the commit is not
    CONDEMNED    it must not commit, because the connection was lost meanwhile
    OVER         it is committed or rolled back
    """

    RUNNING = "running"
    ENDING = "ending"
    SAVED = "saved"
    CONDEMNED = "condemned"
    OVER = "over"


_NEXT = {
    Stage.RUNNING: {Stage.ENDING, Stage.CONDEMNED, Stage.OVER},
    Stage.ENDING: {Stage.SAVED, Stage.OVER},
    Stage.SAVED: {Stage.OVER},
    Stage.CONDEMNED: {Stage.OVER},
    Stage.OVER: set[Stage](),
}


class CalledOffError(Exception):
    """Raised instead of a commit if the transaction must not commit any more."""


class RunOutcome(NamedTuple):
    """An event that has run in a transaction, with its verdict, None if it is done."""

    lane: Lane
    event: DeliveredEvent
    verdict: Verdict | None


class OpenTransaction:
    """A transaction from its begin until it is over.

    `kind` is the kind of its handlers, which all share. `taken` has the new records of each partition that are in the
    transaction, and `last` the highest of them that has run. `undone_partition` has an event that was put back.
    """

    __slots__ = ("conn", "judged", "kind", "lanes", "last", "me", "stage", "taken", "undone_partition")

    def __init__(self, conn: Any, me: UUID) -> None:
        self.conn = conn
        self.me = me
        self.kind: Any = None
        self.stage = Stage.RUNNING
        self.judged: list[RunOutcome] = []
        self.undone_partition: Partition | None = None
        self.lanes: set[Lane] = set()
        self.taken: dict[Partition, set[int]] = {}
        self.last: dict[Partition, int] = {}

    def enter(self, stage: Stage) -> None:
        """Enter the next stage."""
        assert stage in _NEXT[self.stage], f"{self.stage} -> {stage}"
        self.stage = stage


class Transactions:
    """The part of the engine for the transactor."""

    def __init__(self, state: EngineState, outcomes: Outcomes, scheduler: LaneScheduler) -> None:
        self._state = state
        self._lock = state.lock
        self._outcomes = outcomes
        self._scheduler = scheduler
        self._queue = TransactionQueue()
        self._conn: Any = None
        self._me: UUID | None = None
        self._current: OpenTransaction | None = None
        self._conn_to_close: Any = None
        self._failed_lanes: list[Lane] = []
        scheduler.transact = self.queue_lane
        self.is_transactional: Callable[[DeliveredEvent], bool] = lambda event: False
        self.kind_of: Callable[[DeliveredEvent], Any] | None = None

    @property
    def waiting(self) -> bool:
        """True if a lane waits for the transactor. Needs no lock."""
        return bool(self._queue)

    @under_lock
    def set_connection(self, conn: Any, me: UUID | None) -> None:
        """Use this connection for transactions, as instance `me`."""
        self._conn, self._me = conn, me
        self._end_lanes()

    @under_lock
    def suspend(self) -> bool:
        """Stop transactions on the current connection. Return True if one is about to commit.

        A transaction whose handlers run is condemned.
        """
        self._conn = None
        self._queue.clear()
        current = self._current
        if current is not None and current.stage is Stage.RUNNING:
            current.enter(Stage.CONDEMNED)
        return current is not None and current.stage in (Stage.ENDING, Stage.SAVED)

    @under_lock
    def defer_close(self, conn: Any) -> bool:
        """Have a connection closed at the end of the transaction that uses it. Return False if none does."""
        if self._current is None or self._current.conn is not conn:
            return False
        self._conn_to_close = conn
        return True

    @under_lock
    def begin(self) -> OpenTransaction | None:
        """Begin a transaction, or return None without a connection."""
        if self._conn is None or self._me is None:
            return None
        self._current = OpenTransaction(self._conn, self._me)
        return self._current

    @under_lock
    def start_next(self, transaction: OpenTransaction, now: float) -> tuple[Lane, DeliveredEvent] | None:
        """Start the next event of a transaction, and return it with its lane, or None if there is none."""
        if transaction.stage is Stage.CONDEMNED:
            return None
        fits = None if transaction.kind is None else partial(self._fits_kind, transaction)
        lane = self._queue.take(transaction.taken, fits)
        if lane is None:
            return None
        if self.kind_of is not None:
            transaction.kind = self.kind_of(lane.queue[0])
        if lane not in transaction.lanes:
            self._scheduler.begin(lane, now)
            transaction.lanes.add(lane)
        partition, event = lane.partition, lane.queue.popleft()
        partition.in_transaction = True
        if event.parked is None:
            transaction.taken.setdefault(partition, set()).add(event.id)
        lane.current, lane.started = event, now
        return lane, event

    @under_lock
    def ran(self, transaction: OpenTransaction, judged: RunOutcome) -> None:
        """Record that an event has run in the transaction."""
        transaction.judged.append(judged)
        lane, event, verdict = judged
        lane.current = None
        if event.parked is None:
            transaction.last[lane.partition] = event.id
        if verdict is not None and verdict.blocks and lane.key[0] is not None:
            waiting = {each.id for each in list(lane.queue) if each.parked is None}
            transaction.taken.setdefault(lane.partition, set()).update(waiting)
        elif lane.queue and self.is_transactional(lane.queue[0]):
            self._queue.add(lane)

    @under_lock
    def note_undone(self, transaction: OpenTransaction, lane: Lane, event: DeliveredEvent) -> bool:
        """Record that an event was undone and is put back. Return False if it is parked already."""
        if lane.parked_running is event:
            return False
        lane.current = None
        transaction.undone_partition = lane.partition
        return True

    @under_lock
    def note(self, transaction: OpenTransaction, now: float) -> list[PartitionSave]:
        """Record the outcomes of all events of the transaction, and return the saves to send before the commit.

        Raise `CalledOffError` if a partition was lost or read anew. Raise RuntimeError if a cursor would not pass the
        events, because they would run again after the commit.
        """
        if transaction.stage is Stage.CONDEMNED:
            raise CalledOffError("a connection was lost meanwhile")
        for lane, _, _ in transaction.judged:
            if lane.partition.lost or lane.partition.incarnation != lane.incarnation:
                raise CalledOffError(f"partition {lane.partition.number} was lost meanwhile")
        transaction.enter(Stage.ENDING)
        for judged in transaction.judged:
            self._outcomes.note(*judged)
        saves = [gather(partition, now) for partition in _partitions_of(transaction)]
        for save in saves:
            last = transaction.last.get(save.partition)
            if last is not None and not save.partition.progress.passes(save.target, last):
                raise RuntimeError(f"partition {save.partition.number}: its cursor would not pass its effects")
        return saves

    @under_lock
    def saved(self, transaction: OpenTransaction) -> None:
        """Record that the saves are sent, and the commit comes next."""
        transaction.enter(Stage.SAVED)

    @under_lock
    def note_committed(self, transaction: OpenTransaction, saves: list[PartitionSave], now: float) -> None:
        """Record that the transaction is committed, and end its lanes."""
        note_committed(self._state, saves, now)
        partitions, undone_partition = _partitions_of(transaction), transaction.undone_partition
        for partition in partitions if undone_partition is None else {*partitions, undone_partition}:
            partition.in_transaction = False
            self._state.mark_dirty(partition)
        self._queue.move_to_back(partitions)
        for lane in transaction.lanes:
            self._scheduler.end_transactional(lane)
        if undone_partition is not None:
            self._queue.move_to_front(undone_partition)
        self._state.wakes.interrupt_poller()

    @under_lock
    def failed(self, transaction: OpenTransaction) -> Stage:
        """Undo the outcomes of a transaction that failed, and return the stage in which it did."""
        if transaction.stage in (Stage.ENDING, Stage.SAVED):
            for lane, event, _ in transaction.judged:
                lane.partition.progress.unfinish(event.id)
                lane.partition.parked.deleting.pop(event.id, None)
        for lane in transaction.lanes:
            lane.current = None
        self._failed_lanes += transaction.lanes
        if transaction.stage is Stage.CONDEMNED:
            if self._conn is not None:
                self._end_lanes()
            return Stage.CONDEMNED
        if self._conn is None:
            return Stage.CONDEMNED
        self._queue.clear()
        self._conn = None
        return transaction.stage

    @under_lock
    def end(self, transaction: OpenTransaction) -> Any:
        """End the transaction. Return a connection to close, or None."""
        transaction.enter(Stage.OVER)
        self._current = None
        closing, self._conn_to_close = self._conn_to_close, None
        return closing

    @under_lock
    def put_lowest_first(self) -> int | None:
        """Give the next turn to the partition with the lowest waiting id, and return that id."""
        return self._queue.put_lowest_first()

    @under_lock
    def evict_slow(self, now: float) -> None:
        """Park events that hold up partitions in which transactional events wait."""
        self._scheduler.evict_slow(self._queue.partitions(), now)
        for lane in self._queue.take_stale():
            self._scheduler.begin(lane, now)
            self._scheduler.end_transactional(lane)

    def queue_lane(self, lane: Lane) -> None:
        """Queue a lane for the transactor, or for runners if its next event is not transactional."""
        if self.is_transactional(lane.queue[0]):
            self._queue.add(lane)
            self._state.wakes.transact()
        else:
            self._scheduler.make_ready([lane])

    def _fits_kind(self, transaction: OpenTransaction, event: DeliveredEvent) -> bool:
        return self.kind_of is None or self.kind_of(event) == transaction.kind

    def _end_lanes(self) -> None:
        lanes, self._failed_lanes = self._failed_lanes, []
        for lane in lanes:
            self._scheduler.end_transactional(lane)


def _partitions_of(transaction: OpenTransaction) -> set[Partition]:
    return {judged.lane.partition for judged in transaction.judged}
