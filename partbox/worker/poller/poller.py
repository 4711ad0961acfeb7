"""The poller's thread: it reads pages, ticks, and fetches parked rows.

The poller owns the main connections of the process. If one is lost, all are closed, everything that was read is
forgotten, and reading goes on from the *saved* cursors: after a server crash that lost a tail, ids and transaction ids
are given out again, and nothing remembered about them holds."""

import threading
import time
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from psycopg import Connection, Error

from partbox.db.blocking import use_raw_loaders
from partbox.db.connect import TransientSchemaError, check_server
from partbox.db.delivery import proof
from partbox.db.operator import subscriptions
from partbox.db.schema import migrate
from partbox.platform import boottime
from partbox.protocol.intervals import FEW_PARTITIONS, SHORTEST_TICK, longest_tick, next_tick_delay
from partbox.protocol.retry import Exponential, Jittered
from partbox.worker.context import Context
from partbox.worker.fork_safety import exit_forked
from partbox.worker.ownership.ownership import Ownership
from partbox.worker.poller.log_poll import FENCE_SECONDS, LogReader
from partbox.worker.poller.pacing import Pacer
from partbox.worker.poller.parked_fetch import ParkedReader
from partbox.worker.reports.load import LoadReport
from partbox.worker.reports.process_notes import ProcessNote
from partbox.worker.runners.dead_letters import DeadLetters
from partbox.worker.runners.timeouts import HandlerTimeouts
from partbox.worker.runners.transactor import Transactor
from partbox.worker.saver.saver import Saver
from partbox.worker.session import Session, SessionFactory, log_lost_connection
from partbox.worker.slot import POLL_TICK, READ_AT, STOPPING

UNOWNED_PAUSE = 0.02  # seconds after which a process without partitions looks for a plan
# Pauses before a failed step or session is tried again. Processes that fail together do not try again together.
RETRY_POLICY = Jittered(Exponential(0.1, 2.0), (0.5, 1.0))


# One class with all the parts that the thread moves, and with all that it remembers between two steps.
@dataclass(eq=False)
class Poller:
    """The thread that reads new events and due retries from the database for one worker process. It owns all parts that
    it drives."""

    context: Context
    sessions: SessionFactory
    ownership: Ownership
    reader: LogReader
    parked_reader: ParkedReader
    timeouts: HandlerTimeouts
    dead_letters: DeadLetters
    load_report: LoadReport
    notes: Sequence[ProcessNote]
    pacer: Pacer
    saver: Saver
    transactor: Transactor | None
    # Set if the data that was read may be wrong, so that a new session must begin.
    restart_asked: threading.Event = field(default_factory=threading.Event)
    _end_asked: threading.Event = field(default_factory=threading.Event)
    _has_begun: bool = False
    _failures: int = 0
    _ticked_at: float = 0.0
    _tick_at: float = 0.0
    _awaiting_since: float | None = None

    def __post_init__(self) -> None:
        self._engine = self.context.engine
        self._wakeup = self.context.wakeup
        self._slot = self.context.slot
        self._thread = threading.Thread(target=self._run, name="partbox-poller", daemon=True)

    def start(self) -> None:
        """Start the threads that read events, save progress and, if needed, run transactional handlers."""
        if self.transactor is not None:
            self.transactor.start()
        self.saver.start()
        self._thread.start()

    def wake(self) -> None:
        """Wake the poller so that it looks for new events at once."""
        # The pause between its polls is reset too.
        self.pacer.reset_pause()
        self._wakeup.interrupt_poller()

    def end_transactions(self) -> bool:
        """Stop transactional handlers after the current transaction. Return False if a handler had to be abandoned."""
        # A handler that had to be abandoned still runs.
        return self.transactor is None or self.transactor.stop(1.0)

    def end(self) -> None:
        """End the polling and saving threads now, even if the process still owns partitions."""
        # Transactions must have ended before.
        self._end_asked.set()
        self._wakeup.interrupt_poller()
        self._thread.join()
        self.pacer.stop()
        self.saver.stop()

    def restart_session(self) -> None:
        """Close the poller's database connections, and read everything again on new ones."""
        # This is needed if a connection is lost or the data that was read may be wrong. The poller's own thread does
        # the work.
        self.restart_asked.set()
        self._wakeup.interrupt_poller()

    def _run(self) -> None:
        try:
            while not self._end_asked.is_set():
                self._try_session()
        except BaseException as error:
            self.context.signals.report_failure(error)

    def _try_session(self) -> None:
        # A session lasts until a connection is lost. After a failed attempt there is a pause. Only finished and running
        # events are remembered, by id and event id, so that a plain reconnect starts nothing twice.
        # `TransientSchemaError` is raised if it ends the first session.
        try:
            self._run_session()
        except (Error, TransientSchemaError) as error:
            if isinstance(error, TransientSchemaError) and not self._has_begun:
                raise
            log_lost_connection(error, self.context.subscription, "poller")
            # Read notifications even now: unread notifications fill the server's notification queue.
            self.pacer.listener.read_notifications()
            self._pause_after_failure()

    def _pause_after_failure(self) -> None:
        self._failures += 1
        self._end_asked.wait(RETRY_POLICY.next_delay(self._failures))

    def _run_session(self) -> None:
        # A session lasts until a connection is lost. The next session reads everything anew from the saved cursors.
        with ExitStack() as connections:
            needs_lent_conn = self.transactor is not None and self.transactor.effects.needs_lent_conn
            close_effects = self.transactor.close if self.transactor is not None and needs_lent_conn else None
            session = self.sessions.open(connections, close_effects)
            try:
                self.begin_session(session)
                self._has_begun = True
                while not self._end_asked.is_set() and not self.restart_asked.is_set():
                    self._try_step(session)
            finally:
                self._pause_writers()

    def begin_session(self, session: Session, *, checked: bool = False) -> None:
        """Check the database on new connections, and begin to read from the saved positions."""
        # A statement that fails on a live connection resets nothing, unless its error says that the session has lost a
        # table or a privilege: then a new session begins, with all checks.
        # `SchemaError` is raised unless it is the worker's schema, in its own cluster, and fully readable. The check is
        # skipped if an earlier session has `checked` this.
        schema = self.context.schema
        if not checked:
            # An answer that could be less than everything must be an error.
            with proof.without_row_security(session.reading):
                migrate.check_schema_version(session.reading, schema)
                # Every new connection is checked. The database may be replaced by a logical copy under a running
                # worker. The copy has the same owners and epochs, so the fence of saves would let the old cursors pass.
                check_server(session.reading, schema)
            proof.check_intact(session.reading, schema, self.context.subscription)
            proof.check_none_hidden(session.reading, schema, self.context.subscription)
            if self.transactor is not None:
                self.transactor.effects.check(session.reading)
        session.begin_incarnation(schema)
        use_raw_loaders(session.reading)
        self.pacer.begin_session(session.reading)
        self.restart_asked.clear()
        self.reader.forget_session()
        self._resume_partitions(session)

    def _resume_partitions(self, session: Session) -> None:
        self._pause_writers()
        conn = session.reading
        self._engine.intake.restart(
            subscriptions.find_wanted_types(conn, self.context.schema, self.context.subscription)
        )
        self.ownership.resume(conn)
        self.reader.discard_groups()
        for note in self.notes:
            note.restart(self.ownership.instance_id)
        self.saver.set_connection(session.saving, self.ownership.instance_id)
        if self.transactor is not None:
            self.transactor.set_connection(session.effects or session.reading, self.ownership.instance_id)

    def _pause_writers(self) -> None:
        # Writes in progress end first. No more are allowed until a new connection is set.
        # The writes are the save in progress and a transaction that is about to commit.
        if self.transactor is not None:
            self.transactor.suspend()
        self.saver.set_connection(None, None)

    def _try_step(self, session: Session) -> None:
        try:
            has_new = self.run_step(session)
            self._slot[READ_AT] = boottime()
            self._wait(session.reading, has_new)
            self._failures = 0
        except Error as error:
            if session.reading.closed or proof.ends_session(error):
                raise
            self.context.log("loop_error", "reading failed and is tried again: %s", error, loop="poller")
            # Unread notifications fill the server's notification queue.
            self.pacer.listener.read_notifications()
            self._pause_after_failure()

    def run_step(self, session: Session) -> bool:
        """Run one step of the poller: read new events and due retries. Return True if more may wait."""
        # The step checks the owned partitions if that is due, fetches parked events that may run, and reads new events.
        conn = session.reading
        self._begin_step()
        if self.ownership.is_outdated:
            self._resume_partitions(session)
        if self._slot[STOPPING]:
            self._drain(conn)
        due = set[int]()
        if self._is_tick_due():
            due.update(self._tick(conn))
            self._engine.parked_scheduler.wake_trials(time.monotonic())
            self._write_reports(conn)
        due.update(self._engine.parked_scheduler.take_keyless())
        self._fetch_due_rows(conn, due)
        self.parked_reader.fetch_blocked(conn, self.ownership.instance_id)
        has_refilled = self.parked_reader.refill_spilled(conn, self.ownership.instance_id)
        return self.reader.read(conn, self._may_continue) or has_refilled

    def _begin_step(self) -> None:
        # An observer, or the function that supplies the DSN, may have forked.
        if self._engine.is_forked:
            exit_forked(None)
        self._slot[POLL_TICK] = boottime()
        self.timeouts.check_overdue()
        self.dead_letters.check_overdue()
        # Clear before anything is read: this step serves all calls until here.
        self._wakeup.was_interrupted = False
        self._wakeup.clear()
        self._engine.limits.give_permits(time.monotonic())

    def _drain(self, conn: Connection[Any]) -> None:
        self.ownership.drain_all()
        self.ownership.note_leaving(conn)
        self.reader.discard_groups()

    def _is_tick_due(self) -> bool:
        return time.monotonic() >= self._tick_at or self.ownership.is_replanned

    def _tick(self, conn: Connection[Any]) -> Collection[int]:
        # This checks which partitions the process owns, and plans the next check.
        # Returned are the partitions with a due parked row that blocks no later events.
        now, most = time.monotonic(), self._compute_longest_pause()
        # Set both before the statement, so that they hold if it fails too.
        self._ticked_at, self._tick_at = now, now + most
        tick = self.ownership.tick(conn, self.reader.list_transactions())
        if tick.idle_check is not None:
            self.reader.take_tick_check(tick.idle_check)
        if not tick.is_calm:
            self.reader.discard_groups()
        self._awaiting_since = (self._awaiting_since or now) if tick.awaits_release else None
        awaited = None if self._awaiting_since is None else now - self._awaiting_since
        self._tick_at = min(self._tick_at, now + next_tick_delay(tick.next_due_in, awaited, most))
        return tick.due_partitions

    def force_tick(self) -> None:
        """Make the next step check which partitions this process owns."""
        # The check claims assigned partitions and finds due parked rows.
        self._tick_at = 0.0

    def _write_reports(self, conn: Connection[Any]) -> None:
        self.load_report.report_load()
        for note in self.notes:
            note.refresh(conn)

    def _fetch_due_rows(self, conn: Connection[Any], due: Collection[int]) -> None:
        # There may be more rows that block nothing and are due, so the next tick comes soon.
        if due and self.parked_reader.fetch_due(conn, self.ownership.instance_id, due):
            self._tick_at = min(self._tick_at, time.monotonic() + SHORTEST_TICK)

    def _may_continue(self) -> bool:
        # The result is True while no other task than reading the backlog needs the connection.
        # The poller was not woken, and no check, stop, parked event or permit is due.
        now = time.monotonic()
        if (
            self._wakeup.was_interrupted
            or now >= self._tick_at
            or self._slot[STOPPING]
            or self._engine.parked_scheduler.has_work(now)
        ):
            return False
        if self._engine.limits.is_due(now):
            return False
        return not (self.ownership.is_outdated or self.ownership.is_replanned)

    def _compute_longest_pause(self) -> float:
        # The time between two checks of the partitions when nothing else calls for one (seconds).
        owned = self._engine.claims.count_partitions()
        calm = owned < FEW_PARTITIONS and self.pacer.listener.is_hearing and self._engine.is_quiet()
        return longest_tick(owned, self.context.settings.lease, calm=calm)

    def _wait(self, conn: Connection[Any], has_new: bool) -> None:
        # The wait ends when the next step is due or the poller is woken.
        # Permits of rate-limited handlers that fall due meanwhile are given out.
        most = self._compute_longest_pause()
        # The longest pause may have become shorter since the tick, if something has come.
        self._tick_at = min(self._tick_at, self._ticked_at + most)
        pause = self.pacer.choose_next_pause(conn, has_new, self.reader.log_state, nap=most)
        if not pause:
            return
        now = time.monotonic()
        if self.reader.waits_for_saves:
            # A save wakes the poller before that.
            pause = FENCE_SECONDS
        elif not self._engine.claims.count_partitions():
            pause = min(pause, UNOWNED_PAUSE)
        # A tick tells what a poll tells, so a tick that is due soon after the next poll takes the place of that poll.
        if self._tick_at < now + 1.5 * pause:
            self._tick_at = min(self._tick_at, now + pause)
        wakeup = self._engine.parked_scheduler.find_next_due()
        until = min(self._tick_at, now + pause, self._tick_at if wakeup is None else wakeup)
        while (permit_at := self._engine.limits.find_next_check(now)) is not None and permit_at < until:
            if self._wakeup.wait(max(0.0, permit_at - now)):
                return
            now = time.monotonic()
            self._engine.limits.give_permits(now)
        self._wakeup.wait(max(0.0005, until - now))
