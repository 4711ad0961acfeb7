"""The thread that reads: fences, pages, ticks, and the bodies of parked records.

It owns all connections of the process. When one is lost all are closed, everything that was read is forgotten,
and reading goes on from the *saved* cursors: after a crash of the server that lost a tail, ids and transaction ids are
given out again, and nothing remembered about them holds. Only what is done or running is remembered, by id and event
id, so that a plain reconnect starts nothing twice. A statement that fails on a live connection resets nothing, unless
its error says that something is gone which the session had, a table or a privilege: then a new one begins, with checks.
"""

import threading
import time
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from psycopg import Connection, Error

from partbox.db.blocking import use_raw_loaders
from partbox.db.connect import TransientSchemaError, check
from partbox.db.delivery import proof
from partbox.db.operator import subscriptions
from partbox.db.schema import migrate
from partbox.platform import boottime
from partbox.protocol.intervals import FEW_PARTITIONS, SHORTEST_TICK, longest_tick, next_tick_delay
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

UNOWNED_PAUSE = 0.02  # seconds after which one without partitions, which has nothing to read, looks for a plan
RETRY_PAUSE = 0.1
RECONNECT_PAUSES = (0.1, 2.0)


@dataclass(eq=False)
class Poller:  # with all parts that its thread moves, and what it remembers from one step to the next
    """Reads the partitions of one process until it is ended."""

    context: Context
    sessions: SessionFactory
    ownership: Ownership
    reader: LogReader
    parked: ParkedReader
    timeouts: HandlerTimeouts
    dead_letters: DeadLetters
    load: LoadReport
    notes: Sequence[ProcessNote]
    pacer: Pacer
    saver: Saver
    transactor: Transactor | None
    restart_asked: threading.Event = field(default_factory=threading.Event)
    """Set: what was read is not to be trusted, a session is to begin anew."""
    _end_asked: threading.Event = field(default_factory=threading.Event)
    _has_begun: bool = False  # a session has begun once
    _reconnect_in: float = RECONNECT_PAUSES[0]
    _ticked_at: float = 0.0
    _tick_at: float = 0.0
    _awaiting_since: float | None = None

    def __post_init__(self) -> None:
        self._engine = self.context.engine
        self._wakeup = self.context.wakeup
        self._slot = self.context.slot
        self._thread = threading.Thread(target=self._run, name="partbox-poller", daemon=True)

    def start(self) -> None:
        if self.transactor is not None:
            self.transactor.start()
        self.saver.start()
        self._thread.start()

    def wake(self) -> None:
        """Look at once."""
        self.pacer.reset_pause()
        self._wakeup.call()

    def end_transactions(self) -> bool:
        """End after the transaction in hand; False if a transactional handler had to be abandoned."""
        return self.transactor is None or self.transactor.stop(1.0)

    def end(self) -> None:
        """End now, whatever is still owned; transactions have ended."""
        self._end_asked.set()
        self._wakeup.call()
        self._thread.join()
        self.pacer.stop()
        self.saver.stop()

    def restart_session(self) -> None:
        """A connection is lost, or what was read is not to be trusted: read anew, on new connections."""
        self.restart_asked.set()
        self._wakeup.call()

    def _run(self) -> None:
        try:
            while not self._end_asked.is_set():
                self._try_session()
        except BaseException as error:
            self.context.signals.report_failure(error)

    def _try_session(self) -> None:
        try:
            self._run_session()
        except (Error, TransientSchemaError) as error:
            if isinstance(error, TransientSchemaError) and not self._has_begun:
                raise
            log_lost_connection(error, self.context.subscription, "poller")
            self.pacer.listener.read_notifications()
            self._end_asked.wait(self._reconnect_in)
            self._reconnect_in = min(RECONNECT_PAUSES[1], self._reconnect_in * 2)

    def _run_session(self) -> None:
        """From connecting to the loss of a connection: then all are closed, and all is read anew (⛨ DESIGN 4)."""
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
        """Begin a session on these connections: nothing is known of the log yet.

        SchemaError unless this is our schema, in its own cluster, and all of it can be read; unless an earlier session
        has `checked` the same.
        """
        schema = self.context.schema
        if not checked:
            with proof.without_row_security(session.reading):
                migrate.check(session.reading, schema)
                check(session.reading, schema)
            # An answer that could be less than everything is an error (⛨ DESIGN 4, EVIDENCE I1).
            proof.intact(session.reading, schema, self.context.subscription)
            proof.check_none_hidden(session.reading, schema, self.context.subscription)
            if self.transactor is not None:
                self.transactor.effects.check(session.reading)
        session.begin_incarnation(schema)
        use_raw_loaders(session.reading)
        self.pacer.begin_session(session.reading)
        self.restart_asked.clear()
        self.reader.forget()
        self._resume_partitions(session)

    def _resume_partitions(self, session: Session) -> None:
        self._pause_writers()
        conn = session.reading
        self._engine.intake.wanted_types = subscriptions.wanted_types(
            conn, self.context.schema, self.context.subscription
        )
        self.ownership.resume(conn)
        self.reader.regroup()
        for note in self.notes:
            note.restart(self.ownership.me)
        self.saver.set_connection(session.saving, self.ownership.me)
        if self.transactor is not None:
            self.transactor.set_connection(session.effects or session.reading, self.ownership.me)

    def _pause_writers(self) -> None:
        """Wait for the save in hand, and for a transaction that is about to commit; none does after this."""
        if self.transactor is not None:
            self.transactor.suspend()
        self.saver.set_connection(None, None)

    def _try_step(self, session: Session) -> None:
        try:
            has_new = self.run_step(session)
            self._slot[READ_AT] = boottime()
            self._wait(session.reading, has_new)
            self._reconnect_in = RECONNECT_PAUSES[0]
        except Error as error:
            if session.reading.closed or proof.ends_session(error):
                raise
            self.context.log("loop_error", "reading failed and is tried again: %s", error, loop="poller")
            self.pacer.listener.read_notifications()
            self._end_asked.wait(RETRY_PAUSE)

    def run_step(self, session: Session) -> bool:
        """Look once: tick if it is time, run what is parked and due, read what is new; True if anything new came."""
        conn = session.reading
        self._begin_step()
        if self.ownership.is_outdated:
            self._resume_partitions(session)
        if self._slot[STOPPING]:
            self._drain(conn)
        due = set[int]()
        if self._is_tick_due():
            due.update(self._tick(conn))
            self._engine.parked_scheduler.wake_trials()
            self._write_reports(conn)
        due.update(self._engine.parked_scheduler.take_keyless())
        self._fetch_due(conn, due)
        self.parked.fetch_blocked(conn, self.ownership.me)
        return self.reader.read(conn, self._may_continue)

    def _begin_step(self) -> None:
        """Show life, judge handlers that run too long; what has woken the poller until here is looked at now."""
        if self._engine.is_forked:  # by an observer, or what gives the DSN
            exit_forked(None)
        self._slot[POLL_TICK] = boottime()
        self.timeouts.check_overdue()
        self.dead_letters.check_overdue()
        self._wakeup.was_called = False
        self._wakeup.clear()
        self._engine.limits.give_permits(time.monotonic())

    def _drain(self, conn: Connection[Any]) -> None:
        """Drain whatever is owned, and note that this process was told to end."""
        self.ownership.drain_all()
        self.ownership.note_leaving(conn)
        self.reader.regroup()

    def _is_tick_due(self) -> bool:
        return time.monotonic() >= self._tick_at or self.ownership.is_replanned

    def _tick(self, conn: Connection[Any]) -> Collection[int]:
        """Settle what is mine, and when to ask again; the partitions in which a row that blocks nothing is due."""
        now, most = time.monotonic(), self._longest_pause()
        self._ticked_at, self._tick_at = now, now + most  # also if the statement fails
        tick = self.ownership.tick(conn, self.reader.list_transactions())
        if tick.idle_check is not None:
            self.reader.take_tick_check(tick.idle_check)
        if not tick.is_calm:
            self.reader.regroup()
        self._awaiting_since = (self._awaiting_since or now) if tick.awaits_release else None
        awaited = None if self._awaiting_since is None else now - self._awaiting_since
        self._tick_at = min(self._tick_at, now + next_tick_delay(tick.next_due_in, awaited, most))
        return tick.due

    def force_tick(self) -> None:
        """Make the next look a tick too: what was assigned is claimed, and what is due is found."""
        self._tick_at = 0.0

    def _write_reports(self, conn: Connection[Any]) -> None:
        self.load.report()
        for note in self.notes:
            note.refresh(conn)

    def _fetch_due(self, conn: Connection[Any], due: Collection[int]) -> None:
        """Run rows of these partitions that block nothing and are due; if there may be more, tick again soon."""
        if due and self.parked.fetch_due(conn, self.ownership.me, due):
            self._tick_at = min(self._tick_at, time.monotonic() + SHORTEST_TICK)

    def _may_continue(self) -> bool:
        """True while nothing but reading on needs the connection."""
        now = time.monotonic()
        if (
            self._wakeup.was_called
            or now >= self._tick_at
            or self._slot[STOPPING]
            or self._engine.parked_scheduler.has_work(now)
        ):
            return False
        if self._engine.limits.is_due(now):
            return False
        return not (self.ownership.is_outdated or self.ownership.is_replanned)

    def _longest_pause(self) -> float:
        """The most seconds between two looks that nobody has called for."""
        owned = self._engine.claims.count()
        calm = owned < FEW_PARTITIONS and self.pacer.listener.is_hearing and self._engine.is_quiet()
        return longest_tick(owned, self.context.settings.lease, calm=calm)

    def _wait(self, conn: Connection[Any], has_new: bool) -> None:
        """Wait until the next look is due, or somebody calls for it."""
        most = self._longest_pause()
        self._tick_at = min(self._tick_at, self._ticked_at + most)  # less than at the last tick, if something has come
        pause = self.pacer.next_pause(conn, has_new, self.reader.log_state, nap=most)
        if not pause:
            return
        now = time.monotonic()
        if self.reader.waits_for_saves:
            pause = FENCE_SECONDS  # a save wakes it
        elif not self._engine.claims.count():
            pause = min(pause, UNOWNED_PAUSE)
        wakeup = self._engine.parked_scheduler.next_at()
        until = min(self._tick_at, now + pause, self._tick_at if wakeup is None else wakeup)
        while (permit_at := self._engine.limits.next_at(now)) is not None and permit_at < until:
            if self._wakeup.wait(max(0.0, permit_at - now)):
                return
            now = time.monotonic()
            self._engine.limits.give_permits(now)
        self._wakeup.wait(max(0.0005, until - now))
