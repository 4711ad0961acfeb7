"""Transactional events: whose turn it is, and what becomes of the one transaction that is in hand.

A record is started only if after the transaction's save the cursor will have passed it: its effects are committed with
that cursor (DESIGN 6). The ordinary saver leaves the partitions alone meanwhile (`Partition.in_transaction`).

    RUNNING ──> ENDING ──> SAVED ──> OVER          ENDING: what became of its events is noted, and its save is sent
       │          └──────────┴────────^            SAVED: the save is answered, the commit is not
       └──> CONDEMNED ────────────────┘            CONDEMNED: a connection was lost while its handlers ran
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
    """The stages of a transaction, as above."""

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
    """The transaction must not commit: others have read anew, or own, what it has run."""


class RunOutcome(NamedTuple):
    """An event that ran, and what became of it."""

    lane: Lane
    event: DeliveredEvent
    verdict: Verdict | None


class OpenTransaction:
    """A transaction as the engine knows it. `conn`, `me` and `kind` are its driver's, and opaque here."""

    __slots__ = ("conn", "judged", "kind", "lanes", "last", "me", "stage", "taken", "undone_partition")

    def __init__(self, conn: Any, me: UUID) -> None:
        self.conn = conn
        self.me = me
        self.kind: Any = None  # of its events, once one is picked, if there are several kinds
        self.stage = Stage.RUNNING
        self.judged: list[RunOutcome] = []
        self.undone_partition: Partition | None = (
            None  # with an event that was undone, and is the first of the next transaction
        )
        self.lanes: set[Lane] = set()  # that it has begun
        self.taken: dict[Partition, set[int]] = {}  # new records that it has run, or is to hold behind them
        self.last: dict[Partition, int] = {}  # the last new record that was run

    def enter(self, stage: Stage) -> None:
        """Go on to this stage."""
        assert stage in _NEXT[self.stage], f"{self.stage} -> {stage}"
        self.stage = stage


class Transactions:
    """The verbs of the transactor. Each is one section: others lose partitions, save, and call a transaction off.

    `is_transactional` says so of an event's handler, `kind_of` which transaction that needs, where there are several
    kinds; the transactor puts them in.
    """

    def __init__(self, state: EngineState, outcomes: Outcomes, scheduler: LaneScheduler) -> None:
        self._state = state
        self._lock = state.lock
        self._outcomes = outcomes
        self._scheduler = scheduler
        self._queue = TransactionQueue()
        self._conn: Any = None
        self._me: UUID | None = None
        self._current: OpenTransaction | None = None
        self._conn_to_close: Any = None  # a connection, to be closed after the transaction in hand
        self._failed_lanes: list[Lane] = []  # of transactions that failed, until they are read anew
        scheduler.transact = self.queue_lane
        self.is_transactional: Callable[[DeliveredEvent], bool] = lambda event: False
        self.kind_of: Callable[[DeliveredEvent], Any] | None = None

    @property
    def waiting(self) -> bool:
        """True if any lane waits; read without the lock."""
        return bool(self._queue)

    # The connection.

    @under_lock  # lanes of a failed transaction end here or in `failed`, never in both
    def set_connection(self, conn: Any, me: UUID | None) -> None:
        """Transactions are run on this connection, as `me`. What was read before is forgotten."""
        self._conn, self._me = conn, me
        self._end_lanes()

    @under_lock  # a transaction is condemned, or its end is awaited
    def suspend(self) -> bool:
        """No transaction begins or commits after this, but for one that is about to: True if it is to be awaited."""
        self._conn = None
        self._queue.clear()
        current = self._current
        if current is not None and current.stage is Stage.RUNNING:
            current.enter(Stage.CONDEMNED)
        return current is not None and current.stage in (Stage.ENDING, Stage.SAVED)

    @under_lock  # the transaction in hand may end meanwhile, and close nothing
    def defer_close(self, conn: Any) -> bool:
        """True if a transaction uses this connection: `end` returns it then, and it is to be closed."""
        if self._current is None or self._current.conn is not conn:
            return False
        self._conn_to_close = conn
        return True

    # One transaction.

    @under_lock  # nobody takes the connection away between the look at it and its use
    def begin(self) -> OpenTransaction | None:
        """Begin a transaction, if there is a connection for it."""
        if self._conn is None or self._me is None:
            return None
        self._current = OpenTransaction(self._conn, self._me)
        return self._current

    @under_lock  # nothing may save, drain or lose the partition between the look at it and the start
    def start_next(self, transaction: OpenTransaction, now: float) -> tuple[Lane, DeliveredEvent] | None:
        """Start the next event that may run in this transaction, if there is one."""
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

    @under_lock  # others hold and take what waits in the lane
    def ran(self, transaction: OpenTransaction, judged: RunOutcome) -> None:
        """Its handler has ended; what became of it is noted only when the transaction ends."""
        transaction.judged.append(judged)
        lane, event, verdict = judged
        lane.current = None  # it does not run any more, whatever the others do
        if event.parked is None:
            transaction.last[lane.partition] = event.id
        if verdict is not None and verdict.blocks and lane.key[0] is not None:
            waiting = {each.id for each in list(lane.queue) if each.parked is None}
            transaction.taken.setdefault(lane.partition, set()).update(waiting)  # to be held, with this save
        elif lane.queue and self.is_transactional(lane.queue[0]):
            self._queue.add(lane)

    @under_lock  # it is parked while it runs, or put back, and not both
    def note_undone(self, transaction: OpenTransaction, lane: Lane, event: DeliveredEvent) -> bool:
        """Note that nothing is left of the run of this event; False if it was parked meanwhile.

        The caller puts it back, and picks no other. Its partition has the next turn.
        """
        if lane.parked_running is event:
            return False
        lane.current = None
        transaction.undone_partition = lane.partition
        return True

    @under_lock  # no loss and no save of the saver comes between what is noted and what is gathered
    def note(self, transaction: OpenTransaction, now: float) -> list[PartitionSave]:
        """Note what became of its events, and gather its save; CalledOffError if it must not commit."""
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
            # Effects are committed with a cursor that has passed them, or not at all (DESIGN 6).
            if last is not None and not save.partition.progress.passes(save.target, last):
                raise RuntimeError(f"partition {save.partition.number}: its cursor would not pass its effects")
        return saves

    @under_lock  # `suspend` looks at the stage
    def saved(self, transaction: OpenTransaction) -> None:
        """Its save is answered; the commit is next."""
        transaction.enter(Stage.SAVED)

    @under_lock  # the saver has the partitions again only when memory knows the saved cursor
    def note_committed(self, transaction: OpenTransaction, saves: list[PartitionSave], now: float) -> None:
        """Note that the transaction is committed, with these saves."""
        note_committed(self._state, saves, now)
        partitions, undone_partition = _partitions_of(transaction), transaction.undone_partition
        for partition in partitions if undone_partition is None else {*partitions, undone_partition}:
            partition.in_transaction = False
            self._state.mark_dirty(partition)  # what others did in it meanwhile
        self._queue.move_to_back(partitions)
        for lane in transaction.lanes:
            self._scheduler.end_transactional(lane)
        if undone_partition is not None:
            self._queue.move_to_front(undone_partition)
        self._state.wakes.interrupt_poller()

    @under_lock  # against `set_connection` and `suspend`: one side ends the lanes
    def failed(self, transaction: OpenTransaction) -> Stage:
        """Stop after a rollback, or a COMMIT without an answer: nothing goes on until the saved cursors are read.

        Returns the stage in which it failed; CONDEMNED also where it was ending, and `suspend` waits for that.
        """
        if transaction.stage in (Stage.ENDING, Stage.SAVED):
            for lane, event, _ in transaction.judged:
                lane.partition.progress.unfinish(event.id)
                lane.partition.parked.deleting.pop(event.id, None)
        for lane in transaction.lanes:
            lane.current = None
        self._failed_lanes += transaction.lanes
        if transaction.stage is Stage.CONDEMNED:
            if self._conn is not None:  # they have been read anew already
                self._end_lanes()
            return Stage.CONDEMNED
        if self._conn is None:
            return Stage.CONDEMNED
        self._queue.clear()
        self._conn = None
        return transaction.stage

    @under_lock  # as in `defer_close`
    def end(self, transaction: OpenTransaction) -> Any:
        """End the transaction; return the connection that is to be closed now, if any is."""
        transaction.enter(Stage.OVER)
        self._current = None
        closing, self._conn_to_close = self._conn_to_close, None
        return closing

    # What waits.

    @under_lock  # no lane joins or leaves the queues while they are compared
    def put_lowest_first(self) -> int | None:
        """The lowest id that waits for its turn, if any does; its partition has the next one."""
        return self._queue.put_lowest_first()

    @under_lock  # what waits is looked at and let go as one
    def evict_slow(self, now: float) -> None:
        """Park what stands in the way for long; let go lanes whose events went another way."""
        self._scheduler.evict_slow(self._queue.partitions(), now)
        for lane in self._queue.take_stale():
            self._scheduler.begin(lane, now)
            self._scheduler.end_transactional(lane)

    def queue_lane(self, lane: Lane) -> None:
        """The lane's next event is transactional, unless it has changed meanwhile. Lock held."""
        if self.is_transactional(lane.queue[0]):
            self._queue.add(lane)
            self._state.wakes.transact()
        else:
            self._scheduler.make_ready([lane])

    def _fits_kind(self, transaction: OpenTransaction, event: DeliveredEvent) -> bool:
        """True if the event needs a transaction of the kind that this one is: one is on one connection."""
        return self.kind_of is None or self.kind_of(event) == transaction.kind

    def _end_lanes(self) -> None:
        lanes, self._failed_lanes = self._failed_lanes, []
        for lane in lanes:
            self._scheduler.end_transactional(lane)


def _partitions_of(transaction: OpenTransaction) -> set[Partition]:
    return {judged.lane.partition for judged in transaction.judged}
