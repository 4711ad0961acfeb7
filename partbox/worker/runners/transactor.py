"""The thread of the transactional handlers of one process."""

import threading
import time
from typing import Any
from uuid import UUID

from psycopg import Connection, Error

from partbox.db.deadline import HungError
from partbox.text.wording import counted
from partbox.worker.engine.partition import Lane
from partbox.worker.reports.outcomes import tell_saved
from partbox.worker.runners.blame import GoneError
from partbox.worker.runners.transaction import Surroundings, Transaction
from partbox.worker.session import tell_lost

MOST = 100
LOOK = 0.01  # seconds between two looks for what may run, or stands in the way
BUSY_LOOK = 0.25  # ... or stands in the way of some, while others run
RETRY = 0.1


class Transactor:
    """One transaction after the other. The poller gives it a connection, and takes it away."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._context = around.context
        self._lock = around.context.engine.lock
        self._reports = around.settlement.reports
        self._conn: Connection[Any] | None = None
        self._me: UUID | None = None
        self._current: Transaction | None = None
        self._closing: Connection[Any] | None = None  # to be closed after the transaction in hand
        self._using = threading.Lock()
        self._work = threading.Event()
        around.context.engine.wakes.transact = self.wake
        self._stopped = threading.Event()
        self._unstuck_at = 0.0
        self._most = MOST
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
        with self._lock:  # lanes end here or in `_failed`, never in both
            self._conn, self._me = conn, me
            self._end_unended()
        self._work.set()

    def hold_still(self) -> None:
        """No transaction commits after this: one that is about to has, one whose handlers run is condemned."""
        with self._lock:  # a transaction is condemned, or its end is awaited
            self._conn = None
            if self._current is not None:
                self._current.condemned = True
            ending = self._current is not None and self._current.noted
            self._around.waiting.clear()
        if ending:
            with self._using:
                pass

    def close(self, conn: Connection[Any]) -> None:
        """Close a connection; if a condemned transaction uses it, when that ends."""
        with self._lock:  # the transaction in hand may end meanwhile, and close nothing
            if self._current is not None and self._current.conn is conn:
                self._closing = conn
                return
        conn.close()

    def one_by_one(self) -> None:
        """From now on a transaction has one event."""
        self._most = 1

    def first(self) -> int | None:
        """The lowest id that waits for its turn, if any does; its partition has the next one."""
        with self._lock:  # no lane joins or leaves the queues while they are compared
            return self._around.waiting.put_first()

    def wake(self) -> None:
        """A save is over, which may have been in the way."""
        if self._around.waiting:
            self._work.set()

    def wait(self, lane: Lane) -> None:
        """The lane's next event is transactional, unless it has changed meanwhile. Lock held."""
        if self._around.runner.is_transactional(lane.queue[0]):
            self._around.waiting.add(lane)
            self._work.set()
        else:
            self._around.dispatcher.ready([lane])

    def once(self) -> bool:
        """One transaction, if there is something to do. The thread only, if it runs."""
        with self._using:
            with self._lock:  # nobody takes the connection away between the look at it and its use
                if self._conn is None or self._me is None:
                    return False
                transaction = self._current = Transaction(self._around, self._conn, self._me)
            picked = transaction.pick()
            if not picked or time.monotonic() - self._unstuck_at > BUSY_LOOK:
                self._unstick()
            if picked:
                self._try(transaction)
            with self._lock:  # as in `close`
                self._current = None
                closing, self._closing = self._closing, None
            if closing is not None:
                closing.close()
            return picked

    def _run(self) -> None:
        try:
            while not self._stopped.is_set():
                self._work.wait(LOOK if self._around.waiting else None)
                self._work.clear()
                while not self._stopped.is_set() and self.once():
                    pass
        except BaseException as error:
            self._context.signals.failed(error)

    def _try(self, transaction: Transaction) -> None:
        try:
            transaction.run(self._around.blame.most(self._most))
        except Error as error:
            self._failed(transaction, error)
            return
        self._around.blame.committed(len(transaction.runs))
        self._report(transaction)
        tell_saved(self._context.observers, transaction.saves, transaction.save_took)
        self._context.wakeup.call()

    def _report(self, transaction: Transaction) -> None:
        tally = self._reports.tally()
        for run in transaction.runs:
            if tally is not None:
                tally.ran(run.endpoint, run.event, run.seconds or 0.0, done=run.verdict is None)
            self._reports.settled(run.event, run.verdict, run.result, run.seconds)
        if tally is not None:
            self._reports.delivered(tally)

    def _failed(self, transaction: Transaction, error: Error) -> None:
        """Rolled back, or perhaps not: the saved cursors will tell. Until they are read nothing here goes on."""
        events, text = len(transaction.runs), "a transaction of %s failed, which runs again: %s"
        self._context.log("transaction_failed", text, counted(events, "event"), error, events=events)
        if isinstance(error, HungError):
            tell_lost(error, self._context.subscription, "transactions")
        with self._lock:  # against `connected` and `hold_still`: one side ends the lanes
            transaction.undo()
            self._unended += transaction.used
            if transaction.condemned:
                if self._conn is not None:  # they have been read anew already
                    self._end_unended()
                return
            self._around.waiting.clear()
            self._conn = None
        if isinstance(error, GoneError):
            self._around.blame.lost(transaction.conn, error)
        elif transaction.ending and not transaction.conn.closed:
            self._around.blame.failed(transaction.pairs, error, saved=transaction.saved)
        self._context.signals.broken()
        self._stopped.wait(RETRY)

    def _end_unended(self) -> None:
        unended, self._unended = self._unended, []
        for lane in unended:
            self._around.dispatcher.end_serial(lane)

    def _unstick(self) -> None:
        """Park what stands in the way for long; let go lanes whose events went another way."""
        self._unstuck_at = now = time.monotonic()
        with self._lock:  # what waits is looked at and let go as one
            self._around.dispatcher.unstick(self._around.waiting.partitions(), now)
            for lane in self._around.waiting.take_stale():
                self._around.dispatcher.begin(lane)
                self._around.dispatcher.end_serial(lane)
