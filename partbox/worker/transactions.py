"""Runs transactional handlers: their effects and the cursor that has passed their events commit together.

One transaction at a time, of at most `MOST` events or `LONGEST` seconds, on a connection of its own. Each event runs in
a savepoint; one that fails, or is not done, is rolled back to it and parked in the same transaction. The last statement
is the fenced save, so partition rows are locked only then; if a partition is no longer mine everything is rolled back.

A new record is started only if after this save the cursor will have passed it: all new ones before it are finished,
parked or in the same transaction, and no late one is unfinished. So a partition goes on in the order of ids. Late
records are parked when they are read and run as parked ones, whose rows go with their effects; these wait only until a
save has passed them.
Whatever stands in the way for over a second, by running somewhere else, is parked. Meanwhile the ordinary saver leaves
the partition alone.

Whatever goes wrong, what was read is forgotten and read again from the saved cursors, which say whether the transaction
has committed; until then its lanes stay as they are, so that nothing passes its events. If it failed at the commit (a
deferred constraint), or by what handlers did to the session, its events run one by one until one does it again: the
error is that one's. So is the loss of the transaction to a handler that ends it, or closes the connection; a connection
that breaks is an event's error only if the same event sees it break twice in a row.
"""

import logging
import threading
import time
from collections.abc import Iterable
from typing import Any, NamedTuple
from uuid import UUID

from psycopg import Connection, DatabaseError, Error, OperationalError, Rollback
from psycopg.pq import TransactionStatus

from partbox.db import cursors
from partbox.db.deadline import HungError, allowing
from partbox.events import DeliveredEvent
from partbox.observe import Observers
from partbox.observe.telling import tell
from partbox.outcomes import Done
from partbox.rules.parking import Verdict
from partbox.rules.wording import counted
from partbox.worker.delivering.delivery import Delivery
from partbox.worker.delivering.dispatcher import Dispatcher
from partbox.worker.delivering.endpoint import Endpoint, Kind
from partbox.worker.forks import leave
from partbox.worker.losses import tell_lost
from partbox.worker.saving.partition_save import PartitionSave, committed, sent, tell_saved
from partbox.worker.signals import Signals
from partbox.worker.state.holdings import Holdings
from partbox.worker.state.partition import Lane, Partition
from partbox.worker.state.resumption import Pair

log = logging.getLogger("partbox.worker")

MOST = 100
LONGEST = 0.05
LOOK = 0.01  # seconds between two looks for what may run, or stands in the way
BUSY_LOOK = 0.25  # ... or stands in the way of some, while others run
RETRY = 0.1


class _GoneError(Error):
    """The transaction is not there any more after a handler ran."""

    def __init__(self, event: DeliveredEvent, result: object) -> None:
        self.pair: Pair = event.identity
        why = f": {result}" if isinstance(result, BaseException) else ""
        super().__init__(f"the handler of {event!r} left no transaction behind{why}")


class Run(NamedTuple):
    """One event of the transaction, what became of it, and the seconds that its handler ran; None if it did not."""

    lane: Lane
    event: DeliveredEvent
    endpoint: Endpoint
    verdict: Verdict | None
    result: object
    seconds: float | None

    @property
    def pair(self) -> Pair:
        return self.event.identity


class _Queue:
    """The lanes of one partition that wait with a transactional event: by the id of a new one, or with a parked one."""

    __slots__ = ("new", "parked")

    def __init__(self) -> None:
        self.new: dict[int, Lane] = {}
        self.parked: dict[Lane, None] = {}

    def add(self, lane: Lane) -> None:
        head = lane.queue[0]
        if head.parked is not None:
            self.parked[lane] = None
        else:
            self.new[head.id] = lane

    def first(self) -> int | None:
        """The lowest id."""
        return min((lane.queue[0].id for lane in (*self.new.values(), *self.parked) if lane.queue), default=None)

    def stale(self) -> list[Lane]:
        """Takes out the lanes whose head is not there any more: parked behind another, or read anew."""
        new = [id for id, lane in self.new.items() if not lane.queue or lane.queue[0].id != id]
        parked = [lane for lane in self.parked if not lane.queue or lane.queue[0].parked is None]
        for lane in parked:
            del self.parked[lane]
        return [*(self.new.pop(id) for id in new), *parked]


class Transactions:
    """The thread of the transactional handlers of one process. The poller gives it a connection, and takes it away."""

    def __init__(
        self,
        holdings: Holdings,
        delivery: Delivery,
        dispatcher: Dispatcher,
        schema: str,
        subscription: str,
        lease: float,
        *,
        observers: Observers,
        signals: Signals,
    ) -> None:
        self._holdings = holdings
        self._delivery = delivery
        self.dispatcher = dispatcher
        self._schema = schema
        self._subscription = subscription
        self._lease = lease
        self.observers = observers
        self.signals = signals
        self._queues: dict[Partition, _Queue] = {}
        self._conn: Connection[Any] | None = None
        self._me: UUID | None = None
        self._session = 0  # a transaction of an earlier one is condemned: it does not commit
        self._current: _Transaction | None = None
        self._closing: Connection[Any] | None = None  # to be closed after the transaction in hand
        self._using = threading.Lock()
        self._work = threading.Event()
        self._stopped = threading.Event()
        self._unstuck_at = 0.0
        self._most = MOST
        self._alone = 0  # a commit has failed: so many events one at a time
        self._guilty: dict[Pair, BaseException] = {}
        self._broke_at: Pair | None = None  # the event whose handler saw the connection break, if none has ended since
        self._unended: list[Lane] = []  # of a transaction that failed, until they are read anew
        self._thread = threading.Thread(target=self._run, name="partbox-transactions", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout: float) -> bool:
        """End after the transaction in hand; False if that takes longer than `timeout` seconds."""
        self._stopped.set()
        self._work.set()
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def connected(self, conn: Connection[Any], me: UUID | None) -> None:
        """Work through `conn`, as `me`. What was read before is forgotten."""
        with self._holdings.lock:
            self._conn, self._me = conn, me
            unended, self._unended = self._unended, []
            for lane in unended:
                self.dispatcher.end_serial(lane)
        self._work.set()

    def hold_still(self) -> None:
        """No transaction commits after this: one that is about to has, one whose handlers run is condemned."""
        with self._holdings.lock:
            self._conn = None
            self._session += 1
            ending = self._current is not None and self._current.noted
            self._queues.clear()
        if ending:
            with self._using:
                pass

    def close(self, conn: Connection[Any]) -> None:
        """Close a connection; if a condemned transaction uses it, when that ends."""
        with self._holdings.lock:
            if self._current is not None and self._current.uses(conn):
                self._closing = conn
                return
        conn.close()

    def one_by_one(self) -> None:
        """From now on a transaction has one event."""
        self._most = 1

    def first(self) -> int | None:
        """The lowest id that waits for its turn, if any does; its partition has the next one."""
        with self._holdings.lock:
            heads = {partition: queue.first() for partition, queue in self._queues.items()}
            found = [(id, partition) for partition, id in heads.items() if id is not None]
            if not found:
                return None
            id, partition = min(found, key=lambda each: each[0])
            self._queues = {partition: self._queues[partition]} | self._queues
            return id

    def wake(self) -> None:
        """A save is over, which may have been in the way."""
        if self._queues:
            self._work.set()

    def wait(self, lane: Lane) -> None:
        """The lane's next event is for me, unless it has changed meanwhile. Lock held."""
        if not self.go_on(lane):
            self.dispatcher.ready([lane])

    def go_on(self, lane: Lane) -> bool:
        """Whether the lane's next event is for me, and then waits for its turn. Lock held."""
        if self._delivery.routes[lane.queue[0].route].kind is not Kind.TRANSACTIONAL:
            return False
        self._queues.setdefault(lane.partition, _Queue()).add(lane)
        self._work.set()
        return True

    # The thread.

    def _run(self) -> None:
        try:
            while not self._stopped.is_set():
                self._work.wait(LOOK if self._queues else None)
                self._work.clear()
                while not self._stopped.is_set() and self.once():
                    pass
        except BaseException as error:
            self.signals.failed(error)

    def once(self) -> bool:
        """One transaction; whether there was something to do. The thread only, if it runs."""
        with self._using:
            with self._holdings.lock:
                if self._conn is None or self._me is None:
                    return False
                transaction = self._current = _Transaction(self, self._conn, self._me)
            picked = transaction.pick()
            if not picked or time.monotonic() - self._unstuck_at > BUSY_LOOK:
                self._unstick()
            if picked:
                transaction.run()
            with self._holdings.lock:
                self._current = None
                closing, self._closing = self._closing, None
            if closing is not None:
                closing.close()
            return picked

    def yield_turn(self, partitions: Iterable[Partition]) -> None:
        """The next transaction begins with the other partitions. Lock held."""
        for partition in partitions:
            if partition in self._queues:
                self._queues[partition] = self._queues.pop(partition)

    def _unstick(self) -> None:
        """Park what stands in the way for long; let go lanes whose events went another way."""
        self._unstuck_at = now = time.monotonic()
        with self._holdings.lock:
            for partition, queue in list(self._queues.items()):
                self.dispatcher.unstick((partition,), now)
                for lane in queue.stale():
                    self.dispatcher.begin(lane)
                    self.dispatcher.end_serial(lane)

    def next(self, taken: dict[Partition, set[int]], used: set[Lane]) -> Lane | None:
        """A lane whose head may run now in this transaction; it is taken out of the queues. Lock held."""
        for partition, queue in list(self._queues.items()):
            if partition.stopping or not (queue.new or queue.parked):
                del self._queues[partition]
            elif partition.last_save.under_way and not partition.serial:
                continue  # that save would set the cursor back behind the effects
            elif (lane := _head(partition, queue, taken.get(partition, set()))) is not None:
                if lane not in used:
                    self.dispatcher.begin(lane)
                    used.add(lane)
                return lane
        return None


def _head(partition: Partition, queue: _Queue, taken: set[int]) -> Lane | None:
    for lane in queue.parked:
        if lane.queue and lane.queue[0].parked is not None and partition.parked.passed(lane.queue[0].parked):
            del queue.parked[lane]
            return lane
    id = partition.progress.next_in_line(taken)
    waiting = queue.new.get(id) if id is not None else None
    if waiting is None or id is None or not waiting.queue or waiting.queue[0].id != id:
        return None
    return queue.new.pop(id)


class _Transaction:
    """One transaction, from picking its first event to its end."""

    def __init__(self, owner: Transactions, conn: Connection[Any], me: UUID) -> None:
        self._owner = owner
        self._holdings = owner._holdings
        self._conn = conn
        self._me = me
        self._session = owner._session
        self._runs: list[Run] = []
        self._taken: dict[Partition, set[int]] = {}
        self._last: dict[Partition, int] = {}  # the last new record that was run
        self._used: set[Lane] = set()
        self._next: tuple[Lane, DeliveredEvent] | None = None
        self.noted = False
        self._ending = False
        self._saved = False

    @property
    def condemned(self) -> bool:
        """A connection was lost meanwhile, or an identity: its events are read anew. Lock held."""
        return self._session != self._owner._session

    def uses(self, conn: Connection[Any]) -> bool:
        return self._conn is conn

    def pick(self) -> bool:
        """Take the next event that may run; whether there is one."""
        self._next = None
        if not self._owner._delivery.trusted():
            return False
        with self._holdings.lock:
            lane = None if self.condemned else self._owner.next(self._taken, self._used)
            if lane is None:
                return False
            partition = lane.partition
            partition.serial = True
            event = lane.queue.popleft()
            if event.parked is None:
                self._taken.setdefault(partition, set()).add(event.id)
                self._last[partition] = event.id
            lane.current, lane.started = event, time.monotonic()
            self._next = (lane, event)
            return True

    def run(self) -> None:
        """Run it and what follows, and commit."""
        most = 1 if self._owner._alone else self._owner._most
        until = time.monotonic() + LONGEST
        try:
            with self._conn.transaction():
                # A handler may take its time; what must be quick is what comes after the save.
                cursors.begin_effects(self._conn, self._owner._schema)
                while self._next is not None:
                    self._run_one(*self._next)
                    if len(self._runs) == most or time.monotonic() >= until or not self.pick():
                        break
                self._save(self._note())
                self._saved = True
        except Exception as error:
            self._failed(error)
            return
        self._owner._alone = max(0, self._owner._alone - len(self._runs))
        self._owner._broke_at = None
        self._committed()

    def _run_one(self, lane: Lane, event: DeliveredEvent) -> None:
        endpoint = self._owner._delivery.routes[event.route]
        started = lane.started
        refusal = self._owner._guilty.pop(event.identity, None) or endpoint.refusal(started)
        result = refusal or self._result(endpoint, event)
        seconds = None if refusal else time.monotonic() - started
        verdict = endpoint.judge(event, result, started)
        self._runs.append(Run(lane, event, endpoint, verdict, result, seconds))
        with self._holdings.lock:
            lane.current = None  # it does not run any more, whatever the others do
            if verdict is not None and verdict.blocks and lane.key[0] is not None:
                waiting = {each.id for each in list(lane.queue) if each.parked is None}
                self._taken.setdefault(lane.partition, set()).update(waiting)  # to be held, with this save
            elif lane.queue:
                self._owner.go_on(lane)

    def _result(self, endpoint: Endpoint, event: DeliveredEvent) -> object:
        result: object = None
        try:
            with self._conn.transaction() as savepoint:
                try:
                    with allowing(self._conn):
                        result = endpoint.call(event, self._conn)
                except BaseException as error:  # also SystemExit: a handler does not end the process
                    result = error
                if self._holdings.forked:
                    leave(result)
                if result is not None and not isinstance(result, Done):
                    raise Rollback(savepoint)
        except BaseException as error:
            result = result if isinstance(result, BaseException) else error
        if self._conn.info.transaction_status != TransactionStatus.INTRANS:
            raise _GoneError(event, result)
        return result

    def _note(self) -> list[PartitionSave]:
        """Note what became of each event, and take what is to be saved."""
        with self._holdings.lock:
            partitions = {run.lane.partition for run in self._runs}
            if self.condemned:
                raise Error("a connection was lost meanwhile")
            for run in self._runs:
                if run.lane.partition.lost or run.lane.partition.life != run.lane.life:
                    raise Error(f"partition {run.lane.partition.number} was lost meanwhile")
            self.noted = True
            for run in self._runs:
                self._owner._delivery.note(run.lane, run.event, run.verdict)
            batches = [PartitionSave(partition) for partition in partitions]
            for batch in batches:
                last = self._last.get(batch.partition)
                if last is not None and not batch.partition.progress.passes(batch.target, last):
                    raise RuntimeError(f"partition {batch.partition.number}: its cursor would not pass its effects")
            return batches

    def _save(self, batches: list[PartitionSave]) -> None:
        owner = self._owner
        self._batches, self._ending = batches, True
        cursors.end_effects(self._conn, owner._schema, owner._lease / 2)
        savings, parks, done_ids = sent(batches)
        mine, self._save_took = cursors.save(
            self._conn, owner._schema, owner._subscription, self._me, savings, parks, done_ids, durable=True
        )
        lost = [batch.partition for batch in batches if batch.partition.number not in mine]
        if lost:
            owner.signals.lost(lost)
            raise Error(f"{len(lost)} partitions were lost meanwhile")

    def _committed(self) -> None:
        with self._holdings.lock:
            committed(self._holdings, self._batches)
            partitions = {run.lane.partition for run in self._runs}
            for partition in partitions:
                partition.serial = False
                self._holdings.touch(partition)  # what others did in it meanwhile
            self._owner.yield_turn(partitions)
            for lane in self._used:
                self._owner.dispatcher.end_serial(lane)
        self._report()
        tell_saved(self._owner.observers, self._batches, self._save_took)
        self._owner.signals.saved()

    def _report(self) -> None:
        reports = self._owner._delivery.reports
        tally = reports.tally()
        for run in self._runs:
            if tally is not None:
                tally.ran(run.endpoint, run.event, run.seconds or 0.0, done=run.verdict is None)
            reports.settled(run.event, run.verdict, run.result, run.seconds)
        if tally is not None:
            reports.delivered(tally)

    def _failed(self, error: Exception) -> None:
        """Rolled back, or perhaps not: the saved cursors will tell. Until they are read nothing here goes on."""
        if not isinstance(error, Error):
            raise error
        owner = self._owner
        text, events = "a transaction of %s failed, which runs again: %s", len(self._runs)
        of = counted(events, "event")
        tell(log, "transaction_failed", text, of, error, subscription=owner._subscription, events=events)
        if isinstance(error, HungError):
            tell_lost(error, owner._subscription, "transactions")
        with self._holdings.lock:
            for run in self._runs if self.noted else ():
                run.lane.partition.progress.finished.pop(run.event.id, None)
                run.lane.partition.parked.deleting.pop(run.event.id, None)
            for lane in self._used:
                lane.current = None
            condemned = self.condemned
            owner._unended += self._used
            if condemned and owner._conn is not None:  # they have been read anew already
                unended, owner._unended = owner._unended, []
                for lane in unended:
                    owner.dispatcher.end_serial(lane)
            if not condemned:
                owner._queues.clear()
                owner._conn = None
        if condemned:
            return
        self._blame(error)
        owner.signals.broken()
        owner._stopped.wait(RETRY)

    def _blame(self, error: Error) -> None:
        """Find out whose error it is; it is that event's result when it runs next."""
        owner = self._owner
        if isinstance(error, _GoneError):
            if not self._conn.broken or owner._broke_at == error.pair:
                owner._guilty[error.pair] = RuntimeError(str(error))
            owner._broke_at = error.pair
        elif self._ending and not self._conn.closed and self._is_theirs(error):
            owner._alone = len(self._runs)
            if len(self._runs) == 1:
                # The commit has raised it, not the handler: its frames are ours alone.
                owner._guilty[self._runs[0].pair], owner._alone = error.with_traceback(None), 0

    def _is_theirs(self, error: Error) -> bool:
        """Whether handlers have brought it about: at the commit always, before it unless the server was the matter."""
        return self._saved or (isinstance(error, DatabaseError) and not isinstance(error, OperationalError))
