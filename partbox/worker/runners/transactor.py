"""Run the transactional handlers of one process, in a thread of their own."""

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
from partbox.text.wording import format_count
from partbox.worker.context import Context
from partbox.worker.engine.transactions import CalledOffError, Stage
from partbox.worker.reports.outcomes import notify_saved
from partbox.worker.runners.effects.effects import Effects
from partbox.worker.runners.event_loop import EventLoop
from partbox.worker.runners.transaction import Transaction, TransactionGoneError, TransactionParts
from partbox.worker.session import log_lost_connection

MAX_EVENTS = 100
CHECK_INTERVAL = 0.01  # seconds between two checks for events that may run, or that stand in the way
BUSY_CHECK_INTERVAL = 0.25  # seconds between two checks for events that stand in the way while others run
RETRY_DELAY = 0.1  # seconds until the next transaction after a failure
# Events of a transaction that gave way for a lock: below this number, other processes have all the events that are in
# the way.
FEW_EVENTS = 5
MAX_BACK_OFF = 0.02  # seconds at most until the next transaction then
CANCEL_GRACE = 1.0  # seconds for a cancelled handler to end

_EFFECTS_CLASSES = {
    TransactionKind.PSYCOPG: ("effects", "PsycopgEffects"),
    TransactionKind.ASYNC_PSYCOPG: ("async_psycopg", "AsyncPsycopgEffects"),
    TransactionKind.SQLALCHEMY: ("sqlalchemy", "SqlalchemyEffects"),
    TransactionKind.ASYNC_SQLALCHEMY: ("async_sqlalchemy", "AsyncSqlalchemyEffects"),
    TransactionKind.DJANGO: ("django", "DjangoEffects"),
}


class EffectsByKind:
    """The objects that run transactional handlers, one for each database library and mode (sync or async) in use.

    They are `Effects` objects, created anew for each database session. The transactor's thread uses them. The poller's
    thread uses `check` and `needs_lent_conn`."""

    def __init__(self, context: Context, kinds: Collection[TransactionKind], loop: EventLoop) -> None:
        self._context = context
        self._loop = loop
        self._classes = {kind: _load_class(kind) for kind in kinds}
        self._session: WatchedConnection | None = None
        self._effects: dict[TransactionKind, Effects] = {}

    @property
    def needs_lent_conn(self) -> bool:
        """True if some transactional handlers run on a connection that the polling thread opens for them."""
        return any(each.needs_lent_conn for each in self._classes.values())

    def check(self, reading: Conn) -> None:
        """Raise SettingsError if some transactional handlers would run in another database than the outbox's."""
        # `reading` is a connection to the outbox's database.
        for each in self._classes.values():
            each.check(reading)

    def get_effects(self, kind: TransactionKind, session: WatchedConnection) -> Effects:
        """Return the `Effects` object for this kind and database session, created at the first call."""
        if session is not self._session:
            self.close()
            self._session = session
        found = self._effects.get(kind)
        if found is None:
            found = self._effects[kind] = self._classes[kind](self._context, session, self._loop)
        return found

    def interrupt(self) -> None:
        """Cancel all transactional handlers that await something. Any thread may call this."""
        # The cancellation ends their tasks for good.
        for each in list(self._effects.values()):
            each.interrupt()

    def go_idle(self) -> None:
        """Release the connections that transactional handlers do not need while no event runs."""
        for each in self._effects.values():
            each.go_idle()

    def close(self) -> None:
        """Close the connections of transactional handlers of all kinds."""
        # The `Effects` objects are closed too. The next call of `get_effects` creates new ones.
        for each in self._effects.values():
            each.close()
        self._effects.clear()
        self._session = None


def _load_class(kind: TransactionKind) -> type[Effects]:
    module, name = _EFFECTS_CLASSES[kind]
    found: type[Effects] = getattr(import_module(f"partbox.worker.runners.effects.{module}"), name)
    return found


class Transactor:
    """The thread that runs handlers in database transactions, one transaction after another. The poller gives and takes
    away its connection."""

    def __init__(self, parts: TransactionParts, kinds: Collection[TransactionKind], loop: EventLoop) -> None:
        self._parts = parts
        self.effects = EffectsByKind(parts.context, kinds, loop)
        self._context = parts.context
        self._reports = parts.reports
        self._transactions = parts.context.engine.transactions
        self._transactions.is_transactional = parts.runner.is_transactional
        if len(kinds) > 1:
            self._transactions.kind_of = lambda event: parts.runner.routes[event.route].transaction
        parts.context.engine.wakes.wake_transactor = self.wake
        self._use_lock = threading.Lock()
        self._work_ready = threading.Event()
        self._stop_asked = threading.Event()
        self._evicted_at = 0.0
        self._event_limit = MAX_EVENTS
        self._thread = threading.Thread(target=self._run, name="partbox-transactions", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout: float) -> bool:
        """End the thread after its current transaction. Return False if that takes over `timeout` seconds."""
        # After the timeout a running async handler is cancelled.
        self._stop_asked.set()
        self._work_ready.set()
        self._thread.join(timeout)
        if not self._thread.is_alive():
            return True
        self.effects.interrupt()
        self._thread.join(CANCEL_GRACE)
        return False

    def set_connection(self, conn: Connection[Any], me: UUID | None) -> None:
        """Run transactions from now on with the connection `conn`, as the worker instance `me`."""
        # Events that were read before are forgotten.
        self._transactions.set_connection(conn, me)
        self._work_ready.set()

    def suspend(self) -> None:
        """Prevent any further commit of transactional handlers. Wait for a COMMIT in progress."""
        # A transaction whose handlers still run is marked so that it will not commit.
        if self._transactions.suspend():
            # The lock is held during a COMMIT, so that to get it means that none is in progress.
            with self._use_lock:
                pass

    def close(self, conn: Connection[Any]) -> None:
        """Close the connection now, or when the transaction that still uses it ends."""
        # Such a transaction must not commit.
        if not self._transactions.defer_close(conn):
            conn.close()

    def limit_to_one(self) -> None:
        """Limit each transaction of transactional handlers to one event from now on."""
        self._event_limit = 1

    def choose_first_partition(self) -> int | None:
        """Choose the partition with the oldest waiting event for the next turn. Return the event's id, or None."""
        # The oldest event has the lowest id. The result is None if no event waits for a transaction.
        return self._transactions.put_lowest_first()

    def wake(self) -> None:
        """Wake the thread that runs transactions, because it may have work."""
        # An event waits for a transaction, or a save has ended that may have been in its way.
        if self._transactions.has_waiting:
            self._work_ready.set()

    def run_once(self) -> bool:
        """Run one transaction of waiting events. Return False if no event may run."""
        # Once the thread is started, only it may call this.
        with self._use_lock:
            open_transaction = self._transactions.begin()
            if open_transaction is None:
                return False
            transaction = Transaction(self._parts, open_transaction)
            picked, now = transaction.start_next(), time.monotonic()
            if not picked or now - self._evicted_at > BUSY_CHECK_INTERVAL:
                self._evicted_at = now
                self._transactions.evict_slow(now)
            if picked:
                self._run_transaction(transaction)
            else:
                self.effects.go_idle()
            closing = self._transactions.end(open_transaction)
            if closing is not None:
                closing.close()
        if open_transaction.undone_partition is not None and len(transaction.handled_events) < FEW_EVENTS:
            self._stop_asked.wait(random.uniform(0.0, MAX_BACK_OFF))
        return picked

    def _run(self) -> None:
        try:
            while not self._stop_asked.is_set():
                self._work_ready.wait(CHECK_INTERVAL if self._transactions.has_waiting else None)
                self._work_ready.clear()
                while not self._stop_asked.is_set() and self.run_once():
                    pass
            self.effects.close()
        except BaseException as error:
            self._context.signals.report_failure(error)

    def _run_transaction(self, transaction: Transaction) -> None:
        effects: Effects | None = None
        try:
            effects = self.effects.get_effects(transaction.kind, transaction.open_transaction.conn)
            effects.drive(partial(transaction.run, effects, self._parts.blame.find_event_limit(self._event_limit)))
        except (Error, CalledOffError) as error:
            self._handle_failure(transaction, effects, error)
            return
        self._parts.blame.note_committed(transaction.identities)
        self._call_hooks(effects)
        self._report_events(transaction)
        notify_saved(self._context.observers, transaction.saves, transaction.save_seconds)

    def _report_events(self, transaction: Transaction) -> None:
        tally = self._reports.build_tally()
        for run in transaction.handled_events:
            if tally is not None:
                tally.count_timed(run.endpoint, run.event, run.seconds or 0.0, done=run.verdict is None)
            self._reports.report_settled(run.event, run.verdict, run.result, run.seconds)
        if tally is not None:
            self._reports.report_delivered(tally)

    def _call_hooks(self, effects: Effects) -> None:
        # Handlers have deferred these functions until after the commit. Their errors are only logged, because nothing
        # can be undone any more.
        calls = [*effects.take_commit_hooks()]
        if calls:
            self._call_hook(lambda: effects.drive(lambda: [*map(self._call_hook, calls)]))

    def _call_hook(self, call: Callable[[], object]) -> None:
        try:
            call()
        except BaseException as error:
            # SystemExit too: a hook must not end the process.
            text = "the transaction is committed, but a hook that ran after the commit has failed: %s: %s"
            self._context.log("transaction_hook_failed", text, type(error).__name__, error, trace=error)

    def _handle_failure(self, transaction: Transaction, effects: Effects | None, error: Error | CalledOffError) -> None:
        # The failure is logged, and the event that caused it is searched for.
        # The saved delivery positions (cursors) are then read again, unless the poller does so already.
        events, text = len(transaction.handled_events), "a transaction of %s failed and runs again: %s"
        self._context.log("transaction_failed", text, format_count(events, "event"), error, events=events)
        if isinstance(error, HungError):
            log_lost_connection(error, self._context.subscription, "transactions")
        stage = self._transactions.note_failed(transaction.open_transaction)
        if stage is not Stage.CONDEMNED:
            if effects is not None:
                self._assign_blame(transaction, effects, error, stage)
            self._context.signals.report_broken()
        self.effects.close()
        if stage is not Stage.CONDEMNED:
            self._stop_asked.wait(RETRY_DELAY)

    def _assign_blame(self, transaction: Transaction, effects: Effects, error: Exception, stage: Stage) -> None:
        if isinstance(error, TransactionGoneError):
            self._parts.blame.note_lost(effects.conn, error)
        elif isinstance(error, Error) and stage is not Stage.RUNNING and not effects.conn.closed:
            self._parts.blame.note_failure(transaction.identities, error, saved=stage is Stage.SAVED)
