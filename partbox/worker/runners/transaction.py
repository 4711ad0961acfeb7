"""Run one transaction of transactional handlers, from its first event to the commit."""

import time
from contextlib import suppress
from typing import NamedTuple, cast

from psycopg import Connection, DatabaseError, Error, OperationalError

from partbox.events import DeliveredEvent
from partbox.handlers.transactional import TransactionKind
from partbox.protocol.verdict import Verdict
from partbox.text.printing import text_of
from partbox.worker.context import Context
from partbox.worker.engine.partition import Lane
from partbox.worker.engine.resumption import RecordIdentity
from partbox.worker.engine.saves import PartitionSave
from partbox.worker.engine.transactions import OpenTransaction, RunOutcome
from partbox.worker.reports.outcomes import EventReports
from partbox.worker.runners.effects.effects import Effects
from partbox.worker.runners.endpoint import Endpoint
from partbox.worker.runners.lane_runner import LaneRunner

MAX_SECONDS = 0.05  # seconds after which a transaction takes no further event

CONFLICTS = {"40001", "40P01"}
"""Serialization failures and deadlocks. More than one transaction takes part in each of them."""
SHARED_ERRORS = CONFLICTS | {"55P03", "23503", "42P03", "42P05", "42P07"}
"""Errors that other events of the same transaction may have caused.

Conflicts; a lock timeout while they held locks; a foreign key that they deferred or not; a name that they have taken in
the session.
"""
MAX_CAUSES = 20  # errors in the chain of causes that are checked
MAX_CONFLICTS = 2
"""The number of conflicts that an event may have alone before it is charged."""


class TransactionGoneError(Error):
    """The error that a transaction is gone, because a handler ended the transaction or its connection broke."""

    def __init__(self, event: DeliveredEvent, result: object) -> None:
        self.identity: RecordIdentity = event.identity
        # `__class__` of the application's object may return anything.
        failed = issubclass(type(result), BaseException)
        why = f": {text_of(result)}" if failed else ""
        super().__init__(f"the transaction of the handler is gone{why}")


class Blame:
    """The search for the event that made a transaction of several events fail.

    Its events run one by one until one of them fails again, and that event is charged with the failure. Only the thread
    that runs transactional handlers (the transactor) uses this class."""

    def __init__(self) -> None:
        self._single_runs = 0  # the number of events that run one at a time
        self._errors_to_charge: dict[RecordIdentity, BaseException] = {}
        self._tries: dict[RecordIdentity, int] = {}  # conflicts of each event while it was alone
        # The event whose handler saw the connection break, if none has ended since.
        self._broken_by: RecordIdentity | None = None

    def find_event_limit(self, event_limit: int) -> int:
        """Return the maximum number of events for the next transaction, which is at most `event_limit`."""
        # The maximum is 1 while events run one by one to find the cause of a failure.
        return 1 if self._single_runs else event_limit

    def take_error(self, event: DeliveredEvent) -> BaseException | None:
        """Return the error that this event caused in an earlier transaction, or None."""
        # The error is returned only once. It becomes the result of the event.
        return self._errors_to_charge.pop(event.identity, None)

    def spare_event(self, event: DeliveredEvent, error: BaseException, *, has_others: bool) -> bool:
        """Return True if other events may have caused the error, so that the event runs again without blame."""
        # Other events may cause a lock timeout, a deadlock or a serialization failure, so the event runs again without
        # them before it is charged.
        # `has_others`: its transaction has other events that are done, and holds their locks.
        state = sqlstate_of(error)
        if has_others:
            return state in SHARED_ERRORS
        is_spared = self._take_retry(event.identity, state)
        if is_spared:
            self._single_runs = max(self._single_runs, 1)
        return is_spared

    def note_committed(self, pairs: list[RecordIdentity]) -> None:
        """Record that a transaction of the given events has committed."""
        # None of them is suspected of a failure any more.
        self._single_runs = max(0, self._single_runs - len(pairs))
        self._broken_by = None
        if self._tries:
            for pair in pairs:
                self._tries.pop(pair, None)

    def note_lost(self, conn: Connection[object], error: TransactionGoneError) -> None:
        """Record that a handler ended the transaction or lost its connection, and whether its event is to blame."""
        # The handler has ended the transaction or closed the connection, and its event is charged with the error. A
        # connection that breaks is an event's error only if it breaks twice in a row while the same event runs.
        if not conn.broken or self._broken_by == error.identity:
            self._errors_to_charge[error.identity] = RuntimeError(str(error))
        self._broken_by = error.identity

    def note_failure(self, pairs: list[RecordIdentity], error: Error, *, saved: bool) -> None:
        """Record that a transaction of the given events failed at its end."""
        # Any event may be the cause of an error at the commit (a deferred constraint), or of an error from a changed
        # session. Then the events run one by one.
        # `saved`: it failed after the delivery positions were saved, at the commit. Handlers have caused a failure at
        # the commit. An earlier failure is theirs too, unless the server was the reason.
        if not saved and (not isinstance(error, DatabaseError) or isinstance(error, OperationalError)):
            return
        self._single_runs = len(pairs)
        if len(pairs) == 1 and not self._take_retry(pairs[0], error.sqlstate):
            # The commit raised the error, not the handler, so all of its frames are partbox's.
            self._errors_to_charge[pairs[0]], self._single_runs = error.with_traceback(None), 0

    def _take_retry(self, pair: RecordIdentity, state: str | None) -> bool:
        tries = self._tries.pop(pair, 0)
        if state not in CONFLICTS or tries == MAX_CONFLICTS:
            return False
        self._tries[pair] = tries + 1
        return True


def sqlstate_of(raised: BaseException) -> str | None:
    """Return the SQLSTATE code of an error that other events may have caused, else None."""
    # The code may come from an error in the chain of causes. `SHARED_ERRORS` has the codes of errors that other events
    # of the transaction may have caused.
    error: BaseException | None = raised
    # The error is an object of the application whose own methods may fail.
    with suppress(Exception):
        for _ in range(MAX_CAUSES):
            if error is None or (isinstance(error, Error) and error.sqlstate in SHARED_ERRORS):
                break
            error = error.__cause__ or error.__context__
        return error.sqlstate if isinstance(error, Error) and error.sqlstate in SHARED_ERRORS else None
    return None


class HandledEvent(NamedTuple):
    """An event that has run in a transaction, with its handler, the handler's result, and the decision (verdict) that
    follows."""

    # `seconds` is None if the handler did not run.

    event: DeliveredEvent
    endpoint: Endpoint
    verdict: Verdict | None
    result: object
    seconds: float | None


class TransactionParts(NamedTuple):
    """The objects that all transactions of transactional handlers in a process share."""

    context: Context
    runner: LaneRunner
    reports: EventReports
    blame: Blame


class Transaction:
    """A database transaction that runs event handlers, and saves in the same commit which events were handled.

    `open_transaction` is its state in the engine."""

    def __init__(self, parts: TransactionParts, open_transaction: OpenTransaction) -> None:
        self._parts = parts
        self._context = parts.context
        self._transactions = parts.context.engine.transactions
        self.open_transaction = open_transaction
        self.handled_events: list[HandledEvent] = []
        self.saves: list[PartitionSave] = []
        self.save_seconds = 0.0
        self._next_event: tuple[Lane, DeliveredEvent] | None = None

    @property
    def identities(self) -> list[RecordIdentity]:
        return [run.event.identity for run in self.handled_events]

    @property
    def kind(self) -> TransactionKind:
        """The kind of transaction that the next event needs: psycopg, SQLAlchemy or Django, sync or async."""
        # All events of one transaction have the same kind.
        assert self._next_event is not None
        kind = self._parts.runner.routes[self._next_event[1].route].transaction
        assert kind is not None
        return kind

    def start_next(self) -> bool:
        """Take the next event that may run in this transaction. Return False if there is none."""
        trusted = self._parts.runner.may_start()
        self._next_event = self._transactions.start_next(self.open_transaction, time.monotonic()) if trusted else None
        return self._next_event is not None

    def run(self, effects: Effects, event_limit: int) -> None:
        """Run up to `event_limit` events in a transaction, record them as handled, and commit."""
        # The delivery positions of the partitions are saved in the transaction.
        # The save is the last statement.
        # The error of anything that prevents the commit is raised.
        until = time.monotonic() + MAX_SECONDS
        with effects.transaction():
            effects.begin()
            while self._run_event(effects, *self._get_next_event()):
                if len(self.handled_events) == event_limit or time.monotonic() >= until or not self.start_next():
                    break
            self.saves = self._transactions.record_outcomes(self.open_transaction, time.monotonic())
            if self.saves:
                self._save(effects)
        self._transactions.note_committed(self.open_transaction, self.saves, time.monotonic())

    def _run_event(self, effects: Effects, lane: Lane, event: DeliveredEvent) -> bool:
        endpoint = self._parts.runner.routes[event.route]
        started = lane.started_at
        refusal = self._parts.blame.take_error(event) or endpoint.find_refusal(event, started)
        result = refusal or endpoint.context().run(effects.call_in_savepoint, endpoint, event)
        ended = not effects.is_intact
        if ended:
            result = self._find_end_error(effects, event, result)
        elif issubclass(type(result), BaseException) and self._put_back_spared(
            endpoint, lane, event, cast(BaseException, result)
        ):
            return False
        seconds = None if refusal else time.monotonic() - started
        verdict = endpoint.judge(event, result, started)
        self.handled_events.append(HandledEvent(event, endpoint, verdict, result, seconds))
        self._transactions.note_run_outcome(self.open_transaction, RunOutcome(lane, event, verdict))
        return not ended

    @property
    def _holds_locks(self) -> bool:
        # The transaction may hold locks once one of its events is done. A failed event is rolled back and holds none.
        return any(run.verdict is None for run in self.handled_events)

    @staticmethod
    def _find_end_error(effects: Effects, event: DeliveredEvent, result: object) -> Exception:
        # The handler of the event has committed the transaction.
        # A new transaction is begun first. GoneError is raised if the transaction is lost. After such a commit the
        # earlier events are done for good, and the new transaction saves them.
        gone = TransactionGoneError(event, result)
        if effects.conn.closed or not effects.begin_anew():
            raise gone
        return RuntimeError(f"{gone}: the handler has committed it, and its changes until then stay")

    def _put_back_spared(self, endpoint: Endpoint, lane: Lane, event: DeliveredEvent, error: BaseException) -> bool:
        # The result is True if other events may have caused the error, and the event was put back in its queue.
        # The error is not counted, and the event's changes are rolled back. An event that is parked (set aside in a
        # row) is not put back.
        if not self._parts.blame.spare_event(event, error, has_others=self._holds_locks):
            return False
        if not self._transactions.note_undone(self.open_transaction, lane, event):
            return False
        endpoint.circuit.note_undecided(event, lane.started_at)
        self._context.engine.outcomes.put_back(lane, event)
        return True

    def _get_next_event(self) -> tuple[Lane, DeliveredEvent]:
        assert self._next_event is not None
        return self._next_event

    def _save(self, effects: Effects) -> None:
        still_owned, self.save_seconds = effects.save(self.open_transaction.instance_id, self.saves)
        # The events of a lost partition belong to another process, which may handle them already. So all effects of
        # this transaction are rolled back.
        lost = [save.tenure for save in self.saves if save.tenure.number not in still_owned]
        if lost:
            self._context.signals.report_refused(lost)
            raise Error(f"{len(lost)} partitions were lost meanwhile")
        self._transactions.note_saved(self.open_transaction)
