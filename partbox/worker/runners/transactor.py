"""The thread of the transactional handlers of one process."""

import threading
import time
from typing import Any
from uuid import UUID

from psycopg import Connection, Error

from partbox.db.deadline import HungError
from partbox.text.wording import counted
from partbox.worker.engine.transactions import CalledOffError, Stage
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
        self._reports = around.reports
        self._transactions = around.context.engine.transactions
        self._transactions.is_transactional = around.runner.is_transactional
        around.context.engine.wakes.transact = self.wake
        self._using = threading.Lock()
        self._work = threading.Event()
        self._stopped = threading.Event()
        self._unstuck_at = 0.0
        self._most = MOST
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
        self._transactions.connected(conn, me)
        self._work.set()

    def hold_still(self) -> None:
        """No transaction commits after this: one that is about to has, one whose handlers run is condemned."""
        if self._transactions.hold_still():
            with self._using:
                pass

    def close(self, conn: Connection[Any]) -> None:
        """Close a connection; if a condemned transaction uses it, when that ends."""
        if not self._transactions.closes_later(conn):
            conn.close()

    def one_by_one(self) -> None:
        """From now on a transaction has one event."""
        self._most = 1

    def first(self) -> int | None:
        """The lowest id that waits for its turn, if any does; its partition has the next one."""
        return self._transactions.put_first()

    def wake(self) -> None:
        """Something waits, or a save is over which may have been in its way."""
        if self._transactions.waiting:
            self._work.set()

    def once(self) -> bool:
        """One transaction, if there is something to do. The thread only, if it runs."""
        with self._using:
            opened = self._transactions.begin()
            if opened is None:
                return False
            transaction = Transaction(self._around, opened)
            picked, now = transaction.pick(), time.monotonic()
            if not picked or now - self._unstuck_at > BUSY_LOOK:
                self._unstuck_at = now
                self._transactions.unstick(now)
            if picked:
                self._try(transaction)
            closing = self._transactions.end(opened)
            if closing is not None:
                closing.close()
            return picked

    def _run(self) -> None:
        try:
            while not self._stopped.is_set():
                self._work.wait(LOOK if self._transactions.waiting else None)
                self._work.clear()
                while not self._stopped.is_set() and self.once():
                    pass
        except BaseException as error:
            self._context.signals.failed(error)

    def _try(self, transaction: Transaction) -> None:
        try:
            transaction.run(self._around.blame.most(self._most))
        except (Error, CalledOffError) as error:
            self._failed(transaction, error)
            return
        self._around.blame.committed(len(transaction.runs))
        self._report(transaction)
        tell_saved(self._context.observers, transaction.saves, transaction.save_took)

    def _report(self, transaction: Transaction) -> None:
        tally = self._reports.tally()
        for run in transaction.runs:
            if tally is not None:
                tally.ran(run.endpoint, run.event, run.seconds or 0.0, done=run.verdict is None)
            self._reports.settled(run.event, run.verdict, run.result, run.seconds)
        if tally is not None:
            self._reports.delivered(tally)

    def _failed(self, transaction: Transaction, error: Error | CalledOffError) -> None:
        """Say so, find who is to blame, and have all read anew; unless the poller is about to, or has done so."""
        events, text = len(transaction.runs), "a transaction of %s failed, which runs again: %s"
        self._context.log("transaction_failed", text, counted(events, "event"), error, events=events)
        if isinstance(error, HungError):
            tell_lost(error, self._context.subscription, "transactions")
        stage = self._transactions.failed(transaction.opened)
        if stage is Stage.CONDEMNED:
            return
        if isinstance(error, GoneError):
            self._around.blame.lost(transaction.conn, error)
        elif isinstance(error, Error) and stage is not Stage.RUNNING and not transaction.conn.closed:
            self._around.blame.failed(transaction.pairs, error, saved=stage is Stage.SAVED)
        self._context.signals.broken()
        self._stopped.wait(RETRY)
