"""The thread of the transactional handlers of one process."""

import random
import threading
import time
from collections.abc import Callable, Collection
from functools import partial
from importlib import import_module
from typing import Any
from uuid import UUID

from psycopg import Connection, Error

from partbox.db.deadline import HungError, WatchedConnection
from partbox.db.sql import Conn
from partbox.handlers.transactional import TransactionKind
from partbox.text.wording import counted
from partbox.worker.context import Context
from partbox.worker.engine.transactions import CalledOffError, Stage
from partbox.worker.reports.outcomes import notify_saved
from partbox.worker.runners.effects.effects import Effects
from partbox.worker.runners.event_loop import EventLoop
from partbox.worker.runners.transaction import GoneError, Transaction, TransactionParts
from partbox.worker.session import log_lost_connection

MAX_EVENTS = 100
CHECK_INTERVAL = 0.01  # seconds between two looks for what may run, or stands in the way
BUSY_CHECK_INTERVAL = 0.25  # ... or stands in the way of some, while others run
RETRY_DELAY = 0.1
FEW_EVENTS = (
    5  # events of a transaction that gave way for a lock, below which others have so many that all are in the way
)
MAX_BACK_OFF = 0.02  # seconds at most until the next one then
CANCEL_GRACE = 1.0  # seconds for a handler that was cancelled to end

_EFFECTS_CLASSES = {
    TransactionKind.PSYCOPG: ("effects", "PsycopgEffects"),
    TransactionKind.ASYNC_PSYCOPG: ("async_psycopg", "AsyncPsycopgEffects"),
    TransactionKind.SQLALCHEMY: ("sqlalchemy", "SqlalchemyEffects"),
    TransactionKind.ASYNC_SQLALCHEMY: ("async_sqlalchemy", "AsyncSqlalchemyEffects"),
    TransactionKind.DJANGO: ("django", "DjangoEffects"),
}


class EffectsByKind:
    """The effects of one process: of each kind that its handlers need one, made anew for each session.

    The thread of the transactor has the effects; `check` and `needs_lent_conn` are for the poller's.
    """

    def __init__(self, context: Context, kinds: Collection[TransactionKind], loop: EventLoop) -> None:
        self._context = context
        self._loop = loop
        self._classes = {kind: _load_class(kind) for kind in kinds}
        self._session: WatchedConnection | None = None
        self._effects: dict[TransactionKind, Effects] = {}

    @property
    def needs_lent_conn(self) -> bool:
        """True if they need a connection that is lent."""
        return any(each.needs_lent_conn for each in self._classes.values())

    def check(self, reading: Conn) -> None:
        """Raise SettingsError if one of them would not be in the database of `reading`."""
        for each in self._classes.values():
            each.check(reading)

    def of(self, kind: TransactionKind, session: WatchedConnection) -> Effects:
        """Return the effects of this kind in this session; they are made at the first call."""
        if session is not self._session:
            self.close()
            self._session = session
        found = self._effects.get(kind)
        if found is None:
            found = self._effects[kind] = self._classes[kind](self._context, session, self._loop)
        return found

    def interrupt(self) -> None:
        """Cancel what handlers await, for good. Any thread."""
        for each in list(self._effects.values()):
            each.interrupt()

    def go_idle(self) -> None:
        """There is nothing to do for now."""
        for each in self._effects.values():
            each.go_idle()

    def close(self) -> None:
        """Forget them: what comes next begins anew."""
        for each in self._effects.values():
            each.close()
        self._effects.clear()
        self._session = None


def _load_class(kind: TransactionKind) -> type[Effects]:
    module, name = _EFFECTS_CLASSES[kind]
    found: type[Effects] = getattr(import_module(f"partbox.worker.runners.effects.{module}"), name)
    return found


class Transactor:
    """One transaction after the other. The poller gives it a connection, and takes it away."""

    def __init__(self, parts: TransactionParts, kinds: Collection[TransactionKind], loop: EventLoop) -> None:
        self._parts = parts
        self.effects = EffectsByKind(parts.context, kinds, loop)
        self._context = parts.context
        self._reports = parts.reports
        self._transactions = parts.context.engine.transactions
        self._transactions.is_transactional = parts.runner.is_transactional
        if len(kinds) > 1:
            self._transactions.kind_of = lambda event: parts.runner.routes[event.route].transaction
        parts.context.engine.wakes.transact = self.wake
        self._use_lock = threading.Lock()
        self._work_ready = threading.Event()
        self._stopped = threading.Event()
        self._relieved_at = 0.0
        self._event_limit = MAX_EVENTS
        self._thread = threading.Thread(target=self._run, name="partbox-transactions", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout: float) -> bool:
        """End after the transaction in hand; False if that takes longer than `timeout` seconds.

        A handler that is `async def` is cancelled then, and its transaction rolled back.
        """
        self._stopped.set()
        self._work_ready.set()
        self._thread.join(timeout)
        if not self._thread.is_alive():
            return True
        self.effects.interrupt()
        self._thread.join(CANCEL_GRACE)
        return False

    def set_connection(self, conn: Connection[Any], me: UUID | None) -> None:
        """Work through `conn`, as `me`. What was read before is forgotten."""
        self._transactions.set_connection(conn, me)
        self._work_ready.set()

    def suspend(self) -> None:
        """No transaction commits after this: one that is about to has, one whose handlers run is condemned."""
        if self._transactions.suspend():
            with self._use_lock:
                pass

    def close(self, conn: Connection[Any]) -> None:
        """Close a connection; if a condemned transaction uses it, when that ends."""
        if not self._transactions.defer_close(conn):
            conn.close()

    def one_by_one(self) -> None:
        """From now on a transaction has one event."""
        self._event_limit = 1

    def first(self) -> int | None:
        """The lowest id that waits for its turn, if any does; its partition has the next one."""
        return self._transactions.put_lowest_first()

    def wake(self) -> None:
        """Something waits, or a save is over which may have been in its way."""
        if self._transactions.waiting:
            self._work_ready.set()

    def run_once(self) -> bool:
        """One transaction, if there is something to do. The thread only, if it runs."""
        with self._use_lock:
            open_transaction = self._transactions.begin()
            if open_transaction is None:
                return False
            transaction = Transaction(self._parts, open_transaction)
            picked, now = transaction.start_next(), time.monotonic()
            if not picked or now - self._relieved_at > BUSY_CHECK_INTERVAL:
                self._relieved_at = now
                self._transactions.evict_slow(now)
            if picked:
                self._run_transaction(transaction)
            else:
                self.effects.go_idle()
            closing = self._transactions.end(open_transaction)
            if closing is not None:
                closing.close()
        if open_transaction.undone_partition is not None and len(transaction.handled_events) < FEW_EVENTS:
            self._stopped.wait(random.uniform(0.0, MAX_BACK_OFF))
        return picked

    def _run(self) -> None:
        try:
            while not self._stopped.is_set():
                self._work_ready.wait(CHECK_INTERVAL if self._transactions.waiting else None)
                self._work_ready.clear()
                while not self._stopped.is_set() and self.run_once():
                    pass
            self.effects.close()
        except BaseException as error:
            self._context.signals.report_failure(error)

    def _run_transaction(self, transaction: Transaction) -> None:
        effects: Effects | None = None
        try:
            effects = self.effects.of(transaction.kind, transaction.open_transaction.conn)
            effects.drive(partial(transaction.run, effects, self._parts.blame.event_limit(self._event_limit)))
        except (Error, CalledOffError) as error:
            self._handle_failure(transaction, effects, error)
            return
        self._parts.blame.note_committed(transaction.pairs)
        self._call_hooks(effects)
        self._report_events(transaction)
        notify_saved(self._context.observers, transaction.saves, transaction.save_took)

    def _report_events(self, transaction: Transaction) -> None:
        tally = self._reports.tally()
        for run in transaction.handled_events:
            if tally is not None:
                tally.count_timed(run.endpoint, run.event, run.seconds or 0.0, done=run.verdict is None)
            self._reports.report_settled(run.event, run.verdict, run.result, run.seconds)
        if tally is not None:
            self._reports.report_delivered(tally)

    def _call_hooks(self, effects: Effects) -> None:
        """Make the calls that wait for the commit; what one raises is told, for nothing can be undone any more."""
        calls = [*effects.hooks()]
        if calls:
            self._call_hook(lambda: effects.drive(lambda: [*map(self._call_hook, calls)]))

    def _call_hook(self, call: Callable[[], object]) -> None:
        try:
            call()
        except BaseException as error:  # also SystemExit: what a handler leaves behind does not end the process
            text = "the transaction is committed, but a hook that it called behind that has failed: %s: %s"
            self._context.log("transaction_hook_failed", text, type(error).__name__, error, trace=error)

    def _handle_failure(self, transaction: Transaction, effects: Effects | None, error: Error | CalledOffError) -> None:
        """Say so, find who is to blame, and have all read anew; unless the poller is about to, or has done so."""
        events, text = len(transaction.handled_events), "a transaction of %s failed, which runs again: %s"
        self._context.log("transaction_failed", text, counted(events, "event"), error, events=events)
        if isinstance(error, HungError):
            log_lost_connection(error, self._context.subscription, "transactions")
        stage = self._transactions.failed(transaction.open_transaction)
        if stage is not Stage.CONDEMNED:
            if effects is not None:
                self._assign_blame(transaction, effects, error, stage)
            self._context.signals.report_broken()
        self.effects.close()
        if stage is not Stage.CONDEMNED:
            self._stopped.wait(RETRY_DELAY)

    def _assign_blame(self, transaction: Transaction, effects: Effects, error: Exception, stage: Stage) -> None:
        if isinstance(error, GoneError):
            self._parts.blame.note_lost(effects.conn, error)
        elif isinstance(error, Error) and stage is not Stage.RUNNING and not effects.conn.closed:
            self._parts.blame.note_failure(transaction.pairs, error, saved=stage is Stage.SAVED)
