"""One transaction, from picking its first event to its commit: its save is the last statement (DESIGN 6)."""

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

MAX_SECONDS = 0.05

CONFLICTS = {"40001", "40P01"}
"""Serialization failures and deadlocks: more than one has a part in each."""
SHARED_ERRORS = CONFLICTS | {"55P03", "23503", "42P03", "42P05", "42P07"}
"""Errors by which an event may suffer from others of its transaction: conflicts; a lock that was waited for too long
while theirs were held; a foreign key that they have deferred or not; a name of the session that they have taken."""
MAX_CAUSES = 20  # errors behind a handler's that are looked at
MAX_CONFLICTS = 2
"""Conflicts that an event may have alone before it is charged."""


class GoneError(Error):
    """The transaction is not there any more after a handler ran."""

    def __init__(self, event: DeliveredEvent, result: object) -> None:
        self.pair: RecordIdentity = event.identity
        failed = issubclass(type(result), BaseException)  # its __class__ may say anything
        why = f": {text_of(result)}" if failed else ""
        super().__init__(f"the handler left no transaction behind{why}")


class Blame:
    """Finds the event to blame for a transaction that failed. The transactor's thread only.

    At the commit (a deferred constraint), or by what handlers did to the session, it may be any event's: then its
    events run one by one until one does it again, and the error is that one's. So is the loss of the transaction to a
    handler that ends it, or closes the connection; a connection that breaks is an event's error only if the same event
    sees it break twice in a row. A lock that an event does not get at once, a deadlock or a serialization failure may
    be others' making, too: the event runs again without them before it is charged.
    """

    def __init__(self) -> None:
        self._single_runs = 0  # so many events run one at a time
        self._errors_to_charge: dict[RecordIdentity, BaseException] = {}
        self._tries: dict[RecordIdentity, int] = {}  # how often an event was in a conflict, alone
        self._broke_at: RecordIdentity | None = (
            None  # the event whose handler saw the connection break, if none has ended since
        )

    def event_limit(self, event_limit: int) -> int:
        """The events that the next transaction may have, of usually so many."""
        return 1 if self._single_runs else event_limit

    def take_error(self, event: DeliveredEvent) -> BaseException | None:
        """The error that this event has brought about; it is its result now."""
        return self._errors_to_charge.pop(event.identity, None)

    def spare_event(self, event: DeliveredEvent, error: BaseException, *, has_others: bool) -> bool:
        """True if the error may be of others' making, and so the event is to run again before it is charged.

        `has_others`: others are done in its transaction, whose locks are held while it waits for more.
        """
        state = sqlstate_of(error)
        if has_others:
            return state in SHARED_ERRORS
        is_spared = self._take_retry(event.identity, state)
        if is_spared:
            self._single_runs = max(self._single_runs, 1)
        return is_spared

    def note_committed(self, pairs: list[RecordIdentity]) -> None:
        """A transaction of these events has committed."""
        self._single_runs = max(0, self._single_runs - len(pairs))
        self._broke_at = None
        if self._tries:
            for pair in pairs:
                self._tries.pop(pair, None)

    def note_lost(self, conn: Connection[object], error: GoneError) -> None:
        """A handler left no transaction behind."""
        if not conn.broken or self._broke_at == error.pair:
            self._errors_to_charge[error.pair] = RuntimeError(str(error))
        self._broke_at = error.pair

    def note_failure(self, pairs: list[RecordIdentity], error: Error, *, saved: bool) -> None:
        """A transaction of these events failed at its end; `saved`: after the save, at the commit.

        Handlers have brought it about: at the commit always, before it unless the server was the matter.
        """
        if not saved and (not isinstance(error, DatabaseError) or isinstance(error, OperationalError)):
            return
        self._single_runs = len(pairs)
        if len(pairs) == 1 and not self._take_retry(pairs[0], error.sqlstate):
            # The commit has raised it, not the handler: its frames are ours alone.
            self._errors_to_charge[pairs[0]], self._single_runs = error.with_traceback(None), 0

    def _take_retry(self, pair: RecordIdentity, state: str | None) -> bool:
        """True, a few times, if the event that ran alone was in a conflict."""
        tries = self._tries.pop(pair, 0)
        if state not in CONFLICTS or tries == MAX_CONFLICTS:
            return False
        self._tries[pair] = tries + 1
        return True


def sqlstate_of(raised: BaseException) -> str | None:
    """Return the code of SHARED that a handler's error has, or one behind it; None without one."""
    error: BaseException | None = raised
    with suppress(Exception):  # an object of the application's own whose very questions fail
        for _ in range(MAX_CAUSES):
            if error is None or (isinstance(error, Error) and error.sqlstate in SHARED_ERRORS):
                break
            error = error.__cause__ or error.__context__
        return error.sqlstate if isinstance(error, Error) and error.sqlstate in SHARED_ERRORS else None
    return None


class HandledEvent(NamedTuple):
    """One event of the transaction, what became of it, and the seconds that its handler ran; None if it did not."""

    event: DeliveredEvent
    endpoint: Endpoint
    verdict: Verdict | None
    result: object
    seconds: float | None


class TransactionParts(NamedTuple):
    """The parts that all transactions of a process work with."""

    context: Context
    runner: LaneRunner
    reports: EventReports
    blame: Blame


class Transaction:
    """Runs the handlers and statements of one transaction; what it is in memory is `open_transaction`."""

    def __init__(self, parts: TransactionParts, open_transaction: OpenTransaction) -> None:
        self._parts = parts
        self._context = parts.context
        self._transactions = parts.context.engine.transactions
        self.open_transaction = open_transaction
        self.handled_events: list[HandledEvent] = []
        self.saves: list[PartitionSave] = []
        self.save_took = 0.0
        self._next_event: tuple[Lane, DeliveredEvent] | None = None

    @property
    def pairs(self) -> list[RecordIdentity]:
        return [run.event.identity for run in self.handled_events]

    @property
    def kind(self) -> TransactionKind:
        """The kind that the picked event needs, which is that of the whole transaction."""
        assert self._next_event is not None
        kind = self._parts.runner.routes[self._next_event[1].route].transaction
        assert kind is not None
        return kind

    def start_next(self) -> bool:
        """Take the next event that may run, if there is one."""
        trusted = self._parts.runner.may_start()
        self._next_event = self._transactions.start_next(self.open_transaction, time.monotonic()) if trusted else None
        return self._next_event is not None

    def run(self, effects: Effects, event_limit: int) -> None:
        """Run what was picked and what follows, at most so many, and commit. Raises whatever prevents that."""
        until = time.monotonic() + MAX_SECONDS
        with effects.transaction():
            effects.begin()
            while self._run_event(effects, *self._picked_event()):
                if len(self.handled_events) == event_limit or time.monotonic() >= until or not self.start_next():
                    break
            self.saves = self._transactions.note(self.open_transaction, time.monotonic())
            if self.saves:
                self._save(effects)
        self._transactions.note_committed(self.open_transaction, self.saves, time.monotonic())

    def _run_event(self, effects: Effects, lane: Lane, event: DeliveredEvent) -> bool:
        """Run one event; False if none is to follow it in this transaction."""
        endpoint = self._parts.runner.routes[event.route]
        started = lane.started
        refusal = self._parts.blame.take_error(event) or endpoint.refusal(started)
        result = refusal or endpoint.context().run(effects.call, endpoint, event)
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
        self._transactions.ran(self.open_transaction, RunOutcome(lane, event, verdict))
        return not ended

    @property
    def _holds_locks(self) -> bool:
        """True if an event of this transaction is done; of others nothing is left."""
        return any(run.verdict is None for run in self.handled_events)

    @staticmethod
    def _find_end_error(effects: Effects, event: DeliveredEvent, result: object) -> Exception:
        """Return the error of an event that has committed the transaction of all; raise GoneError if it is lost.

        The events before it are done for good. They are saved in another transaction, which begins here.
        """
        gone = GoneError(event, result)
        if effects.conn.closed or not effects.begin_anew():
            raise gone
        return RuntimeError(f"{gone}: it has committed it, and what it did until then stays")

    def _put_back_spared(self, endpoint: Endpoint, lane: Lane, event: DeliveredEvent, error: BaseException) -> bool:
        """Put the event back, of whose run nothing is left, if its error may be of others' making: True then.

        Not one that is parked already, for it runs for long.
        """
        if not self._parts.blame.spare_event(event, error, has_others=self._holds_locks):
            return False
        if not self._transactions.note_undone(self.open_transaction, lane, event):
            return False
        endpoint.note_undecided(lane.started)
        self._context.engine.outcomes.put_back(lane, event)
        return True

    def _picked_event(self) -> tuple[Lane, DeliveredEvent]:
        assert self._next_event is not None
        return self._next_event

    def _save(self, effects: Effects) -> None:
        still_owned, self.save_took = effects.save(self.open_transaction.me, self.saves)
        lost = [save.tenure for save in self.saves if save.tenure.number not in still_owned]
        if lost:
            self._context.signals.report_refused(lost)
            raise Error(f"{len(lost)} partitions were lost meanwhile")
        self._transactions.saved(self.open_transaction)
