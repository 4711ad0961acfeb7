"""Transactional events: picks the next event for the transactor, and records the outcome of its transaction. The
effects of an event are committed together with a cursor that has passed the event."""

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
from partbox.worker.engine.saves import PartitionSave, gather_save, note_committed
from partbox.worker.engine.scheduler import LaneScheduler
from partbox.worker.engine.state import EngineState
from partbox.worker.engine.transaction_queue import TransactionQueue


class Stage(Enum):
    """The stages of a database transaction in which event handlers run, from the first handler to the end."""

    # ENDING: the outcomes of its events are recorded, and its save is sent. SAVED: the save is answered, the commit is
    # not. CONDEMNED: a connection was lost while its handlers ran.

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
    """The error that stops a commit, because a connection was lost, or the events were read again or have another
    owner."""


class RunOutcome(NamedTuple):
    """The result of running one event in a transaction. `verdict` is None if the event is done, else says what
    follows."""

    lane: Lane
    event: DeliveredEvent
    verdict: Verdict | None


class OpenTransaction:
    """The state of one transaction in which handlers run: the events taken so far, their outcomes, and its stage."""

    # `lanes` are the queues of its events. `conn`, `instance_id` and `kind` are opaque values of the transactor, the
    # thread that runs transactions.

    __slots__ = (
        "conn",
        "instance_id",
        "kind",
        "lanes",
        "last_ids",
        "run_outcomes",
        "stage",
        "taken_ids",
        "undone_partition",
    )

    def __init__(self, conn: Any, me: UUID) -> None:
        self.conn = conn
        self.instance_id = me
        # The kind of its events, once one is picked, if there are several kinds.
        self.kind: Any = None
        self.stage = Stage.RUNNING
        self.run_outcomes: list[RunOutcome] = []
        # The partition of an event that was undone and is the first of the next transaction.
        self.undone_partition: Partition | None = None
        self.lanes: set[Lane] = set()
        # New records that the transaction has run, or that it holds behind them.
        self.taken_ids: dict[Partition, set[int]] = {}
        # The last new record of each partition that has run.
        self.last_ids: dict[Partition, int] = {}

    def enter_stage(self, stage: Stage) -> None:
        # Only the transitions that the stages allow are valid.
        assert stage in _NEXT[self.stage], f"{self.stage} -> {stage}"
        self.stage = stage


class Transactions:
    """The bookkeeping for transactions in which event handlers run and their progress is saved.

    The transactor, the thread that runs these handlers, uses it. Each operation is one critical section, because other
    threads lose partitions, save progress and condemn transactions meanwhile."""

    def __init__(self, state: EngineState, outcomes: Outcomes, scheduler: LaneScheduler) -> None:
        self._state = state
        self._lock = state.lock
        self._outcomes = outcomes
        self._scheduler = scheduler
        self._queue = TransactionQueue()
        self._conn: Any = None
        self._instance_id: UUID | None = None
        self._current: OpenTransaction | None = None
        # A connection to close after the current transaction.
        self._conn_to_close: Any = None
        # Lanes of failed transactions, until their partitions are read anew.
        self._failed_lanes: list[Lane] = []
        scheduler.queue_transactional = self.queue_lane
        # Both functions take an event and are set by the transactor, `kind_of` only if there are several kinds of
        # transactions.
        self.is_transactional: Callable[[DeliveredEvent], bool] = lambda event: False
        self.kind_of: Callable[[DeliveredEvent], Any] | None = None

    @property
    def has_waiting(self) -> bool:
        """True if events wait for a transaction to run in. Needs no lock."""
        # A lane (queue of one key) waits for the transactor, as its next event needs a transaction.
        return bool(self._queue)

    # The lanes of a failed transaction end here or in `note_failed`, never in both.
    @under_lock
    def set_connection(self, conn: Any, me: UUID | None) -> None:
        """Let transactions run on this connection, as worker instance `me`."""
        # All partitions were read anew before.
        # Lanes of a failed transaction end here or in `note_failed`, never in both.
        self._conn, self._instance_id = conn, me
        self._end_lanes()

    # A transaction is either condemned, or its end is awaited.
    @under_lock
    def suspend(self) -> bool:
        """Stop transactions until a connection is set again. Return True if the current one must be awaited."""
        # No transaction begins or commits meanwhile, except a current one that commits first.
        self._conn = None
        self._queue.clear()
        current = self._current
        if current is not None and current.stage is Stage.RUNNING:
            # Its handlers still run.
            current.enter_stage(Stage.CONDEMNED)
        return current is not None and current.stage in (Stage.ENDING, Stage.SAVED)

    @under_lock
    def defer_close(self, conn: Any) -> bool:
        """Return True if a transaction still uses this connection, which must not be closed yet."""
        # `end` then returns the connection for closing.
        if self._current is None or self._current.conn is not conn:
            return False
        # Under the lock the current transaction cannot end in between, and leave the connection open.
        self._conn_to_close = conn
        return True

    @under_lock
    def begin(self) -> OpenTransaction | None:
        """Begin a transaction in which handlers run. Return None if there is no connection."""
        if self._conn is None or self._instance_id is None:
            return None
        # Under the lock, no thread takes the connection away between the check and its use.
        self._current = OpenTransaction(self._conn, self._instance_id)
        return self._current

    @under_lock
    def start_next(self, transaction: OpenTransaction, now: float) -> tuple[Lane, DeliveredEvent] | None:
        """Take the next waiting event that may run in this transaction. Return its queue and the event, or None."""
        # An event starts only if the cursor of the transaction will have passed it. The saver leaves the partition
        # alone meanwhile (`Partition.in_transaction`).
        # The start of the event is recorded.
        if transaction.stage is Stage.CONDEMNED:
            return None
        # Under the lock no thread saves, drains or loses the partition between the choice and the start.
        fits = None if transaction.kind is None else partial(self._fits_kind, transaction)
        lane = self._queue.take(transaction.taken_ids, fits)
        if lane is None:
            return None
        if self.kind_of is not None:
            transaction.kind = self.kind_of(lane.queue[0])
        if lane not in transaction.lanes:
            self._scheduler.begin_transactional(lane, now)
            transaction.lanes.add(lane)
        partition, event = lane.partition, lane.queue.popleft()
        partition.in_transaction = True
        if event.parked is None:
            transaction.taken_ids.setdefault(partition, set()).add(event.id)
        lane.current_event, lane.started_at = event, now
        return lane, event

    # Other threads look at the events that wait in the lane.
    @under_lock
    def note_run_outcome(self, transaction: OpenTransaction, outcome: RunOutcome) -> None:
        """Record that the handler of an event in this transaction has ended."""
        # The outcome counts only when the transaction ends.
        transaction.run_outcomes.append(outcome)
        lane, event, verdict = outcome
        # The event does not run any more, even if the transaction fails.
        lane.current_event = None
        if event.parked is None:
            transaction.last_ids[lane.partition] = event.id
        if verdict is not None and verdict.blocks and lane.key[0] is not None:
            waiting = {each.id for each in list(lane.queue) if each.parked is None}
            # The events behind a blocked one will be held with this save.
            transaction.taken_ids.setdefault(lane.partition, set()).update(waiting)
        elif lane.queue and self.is_transactional(lane.queue[0]):
            self._queue.add(lane)

    # The event may be parked while it runs, or put back, but never both.
    @under_lock
    def note_undone(self, transaction: OpenTransaction, lane: Lane, event: DeliveredEvent) -> bool:
        """Record that the changes of one event were rolled back. Return False if the event was set aside meanwhile."""
        # If the result is True, the caller puts the event back. An event that was set aside is parked.
        # An event is parked or put back, not both. If it is not parked, the caller puts it back and picks no other
        # event, and its partition has the next turn.
        if lane.parked_running is event:
            return False
        lane.current_event = None
        transaction.undone_partition = lane.partition
        return True

    @under_lock
    def record_outcomes(self, transaction: OpenTransaction, now: float) -> list[PartitionSave]:
        """Record the results of a transaction's events, and return the progress to save in the same commit."""
        # CalledOffError is raised if the transaction must not commit. RuntimeError is raised if a cursor would not pass
        # the effects.
        if transaction.stage is Stage.CONDEMNED:
            raise CalledOffError("a connection was lost meanwhile")
        for lane, _, _ in transaction.run_outcomes:
            if lane.partition.is_lost or lane.partition.incarnation != lane.incarnation:
                raise CalledOffError(f"partition {lane.partition.number} was lost meanwhile")
        # Under the lock no loss and no other save comes between the outcomes and the saves.
        transaction.enter_stage(Stage.ENDING)
        for judged in transaction.run_outcomes:
            self._outcomes.note_verdict(*judged)
        saves = [gather_save(partition, now) for partition in _partitions_of(transaction)]
        for save in saves:
            # Effects are committed with a cursor that has passed their events, or not at all.
            last = transaction.last_ids.get(save.partition)
            if last is not None and not save.partition.progress.passes_for_good(save.target, last):
                raise RuntimeError(
                    f"partition {save.partition.number}: the cursor would not pass the transaction's events"
                )
        return saves

    # `suspend` decides by the stage.
    @under_lock
    def note_saved(self, transaction: OpenTransaction) -> None:
        """Record that the transaction has saved its progress, so that only its commit is left."""
        # The save statement was answered.
        transaction.enter_stage(Stage.SAVED)

    @under_lock
    def note_committed(self, transaction: OpenTransaction, saves: list[PartitionSave], now: float) -> None:
        """Record that the transaction has committed, and let the queues of its events go on."""
        # The transaction was committed with `saves`. Its lanes are ended, so that other runners may take them.
        # The saver may then save their partitions again.
        note_committed(self._state, saves, now)
        partitions, undone_partition = _partitions_of(transaction), transaction.undone_partition
        for partition in partitions if undone_partition is None else {*partitions, undone_partition}:
            # The saver may have the partition again only now, when the committed cursor is recorded.
            partition.in_transaction = False
            # Other threads may have changed the partition meanwhile.
            self._state.mark_dirty(partition)
        self._queue.move_to_back(partitions)
        for lane in transaction.lanes:
            self._scheduler.end_transactional(lane)
        if undone_partition is not None:
            self._queue.move_to_front(undone_partition)
        self._state.wakes.interrupt_poller()

    # The lanes end here, or in `set_connection` or `suspend`, never in both.
    @under_lock
    def note_failed(self, transaction: OpenTransaction) -> Stage:
        """Stop all transactions after this transaction has failed. Return the stage in which it failed."""
        # The transaction was rolled back, or its COMMIT was not answered.
        # Transactions stay stopped until the saved cursors are read. CONDEMNED is returned if `suspend` waits for the
        # end of this transaction.
        if transaction.stage in (Stage.ENDING, Stage.SAVED):
            for lane, event, _ in transaction.run_outcomes:
                lane.partition.progress.unfinish(event.id)
                lane.partition.parked.unsaved_deletions.pop(event.id, None)
        for lane in transaction.lanes:
            lane.current_event = None
        self._failed_lanes += transaction.lanes
        if transaction.stage is Stage.CONDEMNED:
            if self._conn is not None:
                # The partitions have been read anew already.
                self._end_lanes()
            return Stage.CONDEMNED
        if self._conn is None:
            return Stage.CONDEMNED
        self._queue.clear()
        self._conn = None
        return transaction.stage

    # The current transaction may end meanwhile, and would then close no connection.
    @under_lock
    def end(self, transaction: OpenTransaction) -> Any:
        """Record that the transaction is over. Return the connection that must be closed now, or None."""
        # The closing of the connection had to wait for the transaction.
        transaction.enter_stage(Stage.OVER)
        self._current = None
        closing, self._conn_to_close = self._conn_to_close, None
        return closing

    # No lane joins or leaves the queues while they are compared.
    @under_lock
    def put_lowest_first(self) -> int | None:
        return self._queue.put_lowest_first()

    @under_lock
    def evict_slow(self, now: float) -> None:
        """Set aside running events that are slow, in partitions where other events wait for a transaction."""
        # The slow events are parked. Waiting lanes whose first event was parked or read again are ended.
        self._scheduler.evict_slow(self._queue.list_partitions(), now)
        for lane in self._queue.take_stale():
            self._scheduler.begin_transactional(lane, now)
            self._scheduler.end_transactional(lane)

    def queue_lane(self, lane: Lane) -> None:
        """Queue events of one key (a lane) to run in a transaction if the first event needs one, else without. The
        caller holds the lock."""
        # A lane whose first event has a transactional handler goes to the transactor.
        if self.is_transactional(lane.queue[0]):
            self._queue.add(lane)
            self._state.wakes.wake_transactor()
        else:
            self._scheduler.make_ready([lane])

    def _fits_kind(self, transaction: OpenTransaction, event: DeliveredEvent) -> bool:
        # A transaction has one connection and therefore one kind of handler.
        return self.kind_of is None or self.kind_of(event) == transaction.kind

    def _end_lanes(self) -> None:
        lanes, self._failed_lanes = self._failed_lanes, []
        for lane in lanes:
            self._scheduler.end_transactional(lane)


def _partitions_of(transaction: OpenTransaction) -> set[Partition]:
    return {judged.lane.partition for judged in transaction.run_outcomes}
