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

from partbox.db.blocking import lean
from partbox.db.connect import PassingSchemaError, check
from partbox.db.delivery import proof
from partbox.db.operator import subscriptions
from partbox.db.schema import migrate
from partbox.platform import boottime
from partbox.protocol.intervals import FEW, SOON, longest_tick, until_next_tick
from partbox.worker.context import Context
from partbox.worker.fork_safety import leave
from partbox.worker.ownership.ownership import Ownership
from partbox.worker.poller.log_poll import LOOK_AGAIN, LogReader
from partbox.worker.poller.pacing import Pacer
from partbox.worker.poller.parked_fetch import ParkedReader
from partbox.worker.reports.load import LoadReport
from partbox.worker.reports.process_notes import Note
from partbox.worker.runners.dead_letters import DeadLetters
from partbox.worker.runners.timeouts import Timeouts
from partbox.worker.runners.transactor import Transactor
from partbox.worker.saver.saver import Saver
from partbox.worker.session import Session, SessionFactory, tell_lost
from partbox.worker.slot import POLL_TICK, READ_AT, STOPPING

OWNING_NOTHING = 0.02  # seconds after which one without partitions, which has nothing to read, looks for a plan
RETRY = 0.1
RECONNECT = (0.1, 2.0)


@dataclass(eq=False)
class Poller:  # with all parts that its thread moves, and what it remembers from one step to the next
    """Reads the partitions of one process until it is ended."""

    context: Context
    sessions: SessionFactory
    ownership: Ownership
    reader: LogReader
    parked: ParkedReader
    timeouts: Timeouts
    letters: DeadLetters
    load: LoadReport
    notes: Sequence[Note]
    pace: Pacer
    saver: Saver
    transactor: Transactor | None
    broken: threading.Event = field(default_factory=threading.Event)
    """Set: what was read is not to be trusted, a session is to begin anew."""
    _ended: threading.Event = field(default_factory=threading.Event)
    _began: bool = False  # a session has begun once
    _reconnect_in: float = RECONNECT[0]
    _ticked_at: float = 0.0
    _tick_at: float = 0.0
    _awaits_since: float | None = None

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
        self.pace.hurry()
        self._wakeup.call()

    def end_transactions(self) -> bool:
        """End after the transaction in hand; False if a transactional handler had to be abandoned."""
        return self.transactor is None or self.transactor.stop(1.0)

    def end(self) -> None:
        """End now, whatever is still owned; transactions have ended."""
        self._ended.set()
        self._wakeup.call()
        self._thread.join()
        self.pace.stop()
        self.saver.stop()

    def break_off(self) -> None:
        """A connection is lost, or what was read is not to be trusted: read anew, on new connections."""
        self.broken.set()
        self._wakeup.call()

    def _run(self) -> None:
        try:
            while not self._ended.is_set():
                self._try_session()
        except BaseException as error:
            self.context.signals.failed(error)

    def _try_session(self) -> None:
        try:
            self._session()
        except (Error, PassingSchemaError) as error:
            if isinstance(error, PassingSchemaError) and not self._began:
                raise
            tell_lost(error, self.context.subscription, "poller")
            self.pace.listener.hear()
            self._ended.wait(self._reconnect_in)
            self._reconnect_in = min(RECONNECT[1], self._reconnect_in * 2)

    def _session(self) -> None:
        """From connecting to the loss of a connection: then all are closed, and all is read anew (⛨ DESIGN 4)."""
        with ExitStack() as connections:
            lends = self.transactor is not None and self.transactor.effects.lends
            close_effects = self.transactor.close if self.transactor is not None and lends else None
            session = self.sessions.open(connections, close_effects)
            try:
                self.begin(session)
                self._began = True
                while not self._ended.is_set() and not self.broken.is_set():
                    self._try_step(session)
            finally:
                self._hold_still()

    def begin(self, session: Session, *, checked: bool = False) -> None:
        """Begin a session on these connections: nothing is known of the log yet.

        SchemaError unless this is our schema, in its own cluster, and all of it can be read; unless an earlier session
        has `checked` the same.
        """
        schema = self.context.schema
        if not checked:
            with proof.unfiltered(session.reading):
                migrate.check(session.reading, schema)
                check(session.reading, schema)
            # An answer that could be less than everything is an error (⛨ DESIGN 4, EVIDENCE I1).
            proof.intact(session.reading, schema, self.context.subscription)
            proof.none_hidden(session.reading, schema, self.context.subscription)
            if self.transactor is not None:
                self.transactor.effects.check(session.reading)
        session.live(schema)
        lean(session.reading)
        self.pace.begin(session.reading)
        self.broken.clear()
        self.reader.forget()
        self._take_up(session)

    def _take_up(self, session: Session) -> None:
        self._hold_still()
        conn = session.reading
        self._engine.intake.wanted = subscriptions.filters(conn, self.context.schema, self.context.subscription)
        self.ownership.take_up(conn)
        self.reader.rearrange()
        for note in self.notes:
            note.restart(self.ownership.me)
        self.saver.connected(session.saving, self.ownership.me)
        if self.transactor is not None:
            self.transactor.connected(session.effects or session.reading, self.ownership.me)

    def _hold_still(self) -> None:
        """Wait for the save in hand, and for a transaction that is about to commit; none does after this."""
        if self.transactor is not None:
            self.transactor.hold_still()
        self.saver.connected(None, None)

    def _try_step(self, session: Session) -> None:
        try:
            brought = self.look(session)
            self._slot[READ_AT] = boottime()
            self._wait(session.reading, brought)
            self._reconnect_in = RECONNECT[0]
        except Error as error:
            if session.reading.closed or proof.ends_session(error):
                raise
            self.context.log("loop_error", "reading failed and is tried again: %s", error, loop="poller")
            self.pace.listener.hear()
            self._ended.wait(RETRY)

    def look(self, session: Session) -> bool:
        """Look once: tick if it is time, run what is parked and due, read what is new; True if anything new came."""
        conn = session.reading
        self._begin_look()
        if self.ownership.outdated:
            self._take_up(session)
        if self._slot[STOPPING]:
            self._leave(conn)
        due = set[int]()
        if self._is_tick_due():
            due.update(self._tick(conn))
            self._engine.turns.pass_on()
            self._report(conn)
        due.update(self._engine.turns.take_keyless())
        self._run_due(conn, due)
        self.parked.run_blocked(conn, self.ownership.me)
        return self.reader.read(conn, self._goes_on)

    def _begin_look(self) -> None:
        """Show life, judge handlers that run too long; what has woken the poller until here is looked at now."""
        if self._engine.forked:  # by an observer, or what gives the DSN
            leave(None)
        self._slot[POLL_TICK] = boottime()
        self.timeouts.look()
        self.letters.look()
        self._wakeup.called = False
        self._wakeup.clear()
        self._engine.limits.give(time.monotonic())

    def _leave(self, conn: Connection[Any]) -> None:
        """Drain whatever is owned, and note that this process was told to end."""
        self.ownership.drain_all()
        self.ownership.leave(conn)
        self.reader.rearrange()

    def _is_tick_due(self) -> bool:
        return time.monotonic() >= self._tick_at or self.ownership.replanned

    def _tick(self, conn: Connection[Any]) -> Collection[int]:
        """Settle what is mine, and when to ask again; the partitions in which a row that blocks nothing is due."""
        now, most = time.monotonic(), self._longest()
        self._ticked_at, self._tick_at = now, now + most  # also if the statement fails
        tick = self.ownership.tick(conn, self.reader.listed())
        if tick.look is not None:
            self.reader.looked(tick.look)
        if not tick.is_calm:
            self.reader.rearrange()
        self._awaits_since = (self._awaits_since or now) if tick.awaits else None
        awaited = None if self._awaits_since is None else now - self._awaits_since
        self._tick_at = min(self._tick_at, now + until_next_tick(tick.soonest, awaited, most))
        return tick.due

    def tick_next(self) -> None:
        """Make the next look a tick too: what was assigned is claimed, and what is due is found."""
        self._tick_at = 0.0

    def _report(self, conn: Connection[Any]) -> None:
        self.load.tell()
        for note in self.notes:
            note.look(conn)

    def _run_due(self, conn: Connection[Any], due: Collection[int]) -> None:
        """Run rows of these partitions that block nothing and are due; if there may be more, tick again soon."""
        if due and self.parked.run_due(conn, self.ownership.me, due):
            self._tick_at = min(self._tick_at, time.monotonic() + SOON)

    def _goes_on(self) -> bool:
        """True while nothing but reading on needs the connection."""
        now = time.monotonic()
        if self._wakeup.called or now >= self._tick_at or self._slot[STOPPING] or self._engine.turns.is_next(now):
            return False
        if self._engine.limits.is_due(now):
            return False
        return not (self.ownership.outdated or self.ownership.replanned)

    def _longest(self) -> float:
        """The most seconds between two looks that nobody has called for."""
        owned = self._engine.claims.count()
        calm = owned < FEW and self.pace.listener.hears and self._engine.is_quiet()
        return longest_tick(owned, self.context.settings.lease, calm=calm)

    def _wait(self, conn: Connection[Any], brought: bool) -> None:
        """Wait until the next look is due, or somebody calls for it."""
        most = self._longest()
        self._tick_at = min(self._tick_at, self._ticked_at + most)  # less than at the last tick, if something has come
        pause = self.pace.pause(conn, brought, self.reader.seen, nap=most)
        if not pause:
            return
        now = time.monotonic()
        if self.reader.waits_for_saves:
            pause = LOOK_AGAIN  # a save wakes it
        elif not self._engine.claims.count():
            pause = min(pause, OWNING_NOTHING)
        wakeup = self._engine.turns.next_at()
        until = min(self._tick_at, now + pause, self._tick_at if wakeup is None else wakeup)
        while (turn := self._engine.limits.next_at(now)) is not None and turn < until:
            if self._wakeup.wait(max(0.0, turn - now)):
                return
            now = time.monotonic()
            self._engine.limits.give(now)
        self._wakeup.wait(max(0.0005, until - now))
