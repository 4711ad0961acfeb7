"""Saves what is finished: the save rule's cursor of each partition with progress, its parks, its releases.

One fenced call saves everything that there is to save, unless an outage parks more at once than one statement could
write within a lease: then call follows call, each of whole partitions. Nothing of a call is written if one of its
partitions is no longer mine (⛨ DESIGN 5), and then the others are sent again.

One comes at the earliest 50 ms after the last, and not before 25 times what the quicker of the last two took (D1):
an open transaction anywhere in the database keeps old row versions alive, and makes each save slower than the one
before. A save of few events, or of many partitions with little progress each, waits up to 200 ms for more, unless
somebody waits for it. One that releases partitions comes as soon as they are quiet, after 10 ms or what the last one
took: nobody handles their events meanwhile.
"""

import threading
import time
from itertools import accumulate, takewhile
from typing import Any
from uuid import UUID

from psycopg import Connection, Error
from psycopg.errors import InsufficientPrivilege

from partbox.db.delivery import cursors, proof
from partbox.platform import boottime
from partbox.worker.context import Context
from partbox.worker.engine.saves import PartitionSave, UnsavedWork, save_arguments
from partbox.worker.reports.outcomes import notify_saved
from partbox.worker.session import log_lost_connection
from partbox.worker.slot import SAVE_TICK, SAVED_AT

MIN_INTERVAL = 0.05
MAX_DELAY = 0.2
DUTY_FACTOR = 25
FEW_FINISHED = 48
RELEASE_PAUSE = 0.01
ENOUGH_FINISHED = 48
MANY_PARTITIONS = 32
IDLE_ADVANCE = 60.0  # seconds after which a cursor that only moved with the horizon is saved
ADVANCE_INTERVAL = 1.0  # seconds between two looks for those
TICK_INTERVAL = 0.25
RETRY_PAUSE = 0.1
MAX_ROWS = 5_000
"""Parked rows that one call writes, if they are not of one partition: no statement may take longer than a lease."""


class Saver:
    """The thread that saves. The poller gives it a connection, and takes it away when either one is lost."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._engine = context.engine
        self._slot = context.slot
        self._observers = context.observers
        self._signals = context.signals
        self._conn: Connection[Any] | None = None
        self._me: UUID | None = None
        self._conn_lock = threading.Lock()
        self._has_progress = threading.Event()  # there may be something to save
        self._has_release = threading.Event()  # there may be something to release
        self._engine.wakes.save, self._engine.wakes.release = self._has_progress.set, self._has_release.set
        self._enough = min(ENOUGH_FINISHED, max(1, context.settings.window // 2))
        self._saved_at = 0.0
        self._advance_at = 0.0
        self._stop_asked = threading.Event()
        self._unsent: list[PartitionSave] = []  # what a failed call left, or one that was full
        self.busy_seconds = 0.0  # seconds that the server spent saving
        self.saves = 0
        self._last_seconds = 0.0
        self._is_healthy = False  # there was a connection, and what there was to save could be saved
        self._thread = threading.Thread(target=self._run, name="partbox-saver", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End after the save in hand."""
        self._stop_asked.set()
        self._has_progress.set()
        self._has_release.set()
        self._thread.join()

    def set_connection(self, conn: Connection[Any] | None, me: UUID | None) -> None:
        """Save through `conn`, as `me`; None: hold still. Returns when the save in hand is over."""
        with self._conn_lock:
            self._conn, self._me, self._unsent = conn, me, []
        self._has_progress.set()

    def _run(self) -> None:
        try:
            while not self._stop_asked.is_set():
                self._tick()
                self._advance_idle(time.monotonic())
                if self._has_progress.wait(TICK_INTERVAL):
                    self._pause(self._save_once())
                else:
                    self._is_healthy = self._conn is not None
        except BaseException as error:
            self._signals.report_failure(error)

    def _tick(self) -> None:
        self._slot[SAVE_TICK] = now = boottime()
        if self._is_healthy:
            self._slot[SAVED_AT] = now

    def _pause(self, seconds: float) -> None:
        """Rest, and tick, for a rest may be longer than a lease; end it early if there may be something to release."""
        began = time.monotonic()
        while (left := began + seconds - time.monotonic()) > 0 and not self._stop_asked.is_set():
            if self._has_release.wait(min(left, TICK_INTERVAL)):
                self._stop_asked.wait(began + min(seconds, max(RELEASE_PAUSE, self._last_seconds)) - time.monotonic())
                return
            self._tick()

    def _save_once(self) -> float:
        """One save, if there is anything; seconds until the next may come."""
        with self._conn_lock:  # the connection, and what was gathered and not sent on it
            if self._conn is None or self._me is None:
                self._is_healthy = self._conn is not None  # handlers that go on would keep it as it was
                self._has_progress.clear()
                return 0.0
            if save_delay := self._delay():
                return save_delay
            try:
                seconds = self.save(self._conn, self._me)
            except Error as error:
                self._is_healthy = False
                # A privilege that is missing is given back on the same connection: nothing was written meanwhile.
                gone = proof.ends_session(error) and not isinstance(error, InsufficientPrivilege)
                if self._conn.closed or self._conn.broken or gone:
                    self._conn = None
                    log_lost_connection(error, self._context.subscription, "saver")
                    self._signals.report_broken()
                    return 0.0
                self._context.log("loop_error", "saving failed and is tried again: %s", error, loop="saver")
                self._has_progress.set()  # there may be no other progress before this is saved
                return RETRY_PAUSE
            self._is_healthy = True
            self.busy_seconds += seconds
            self.saves += 1
            self._saved_at = time.monotonic()
            return self._pause_after(seconds)

    def _delay(self) -> float:
        """Seconds to wait for more progress; 0: save now."""
        if self._unsent or time.monotonic() - self._saved_at > MAX_DELAY:
            return 0.0
        return save_delay(self._engine.saves.unsaved(), self._enough)

    def _pause_after(self, seconds: float) -> float:
        """Seconds of rest after a save. One slow save alone (a cold cache, a checkpoint) says nothing of the next.

        After a death it does not rest so long: charged records wait for it, and with them all that is suspect.
        """
        usual = min(seconds, self._last_seconds)
        self._last_seconds = seconds
        if self._unsent:
            return 0.0
        return (
            max(RELEASE_PAUSE, seconds)
            if self._engine.saves.has_waiting_suspects
            else max(MIN_INTERVAL, DUTY_FACTOR * usual)
        )

    def save(self, conn: Connection[Any], me: UUID) -> float:
        """Save what there is to save, as `me`; the seconds that the server took. By the thread only, if it runs."""
        waiting = self._gather()
        total = 0.0
        while waiting:
            self._unsent = waiting
            # One call takes the first, and as many more as it may write the rows of.
            rows = accumulate(save.rows for save in waiting)
            saves = waiting[: max(1, sum(1 for _ in takewhile(lambda so_far: so_far <= MAX_ROWS, rows)))]
            owned, seconds = cursors.save(
                conn, self._context.schema, self._context.subscription, me, *save_arguments(saves)
            )
            total += seconds
            lost = [save.tenure for save in saves if save.tenure.number not in owned]
            if not lost:
                waiting = waiting[len(saves) :]
                for number in self._engine.saves.note_committed(saves, time.monotonic()):
                    self._observers.released(number)
                notify_saved(self._observers, saves, seconds)
                break
            self._signals.report_refused(lost)
            waiting = [save for save in waiting if save.tenure not in lost]
        self._unsent = waiting
        if waiting:
            self._has_progress.set()
        return total

    def _gather(self) -> list[PartitionSave]:
        """Take what an earlier call left, else all that is dirty now."""
        if self._unsent:
            return self._engine.saves.filter_owned(self._unsent)
        self._has_progress.clear()  # before it is gathered: what comes after that sets it again
        self._has_release.clear()
        return self._engine.saves.gather(time.monotonic())

    def _advance_idle(self, now: float) -> None:
        """Cursors that only moved with the horizon are saved once a minute: they hold back pruning and purge.

        By the clock, however busy other partitions are.
        """
        if now < self._advance_at:
            return
        self._advance_at = now + ADVANCE_INTERVAL
        self._engine.saves.advance_idle(now - IDLE_ADVANCE)


def save_delay(unsaved: UnsavedWork, enough: int) -> float:
    """Seconds to wait for more progress; 0: it is worth a save, or somebody waits for one.

    A save costs a statement, and every partition of it some 170 bytes of WAL: `enough` is the number of finished
    records for which one is worth that.
    """
    if unsaved.is_urgent:
        return 0.0
    if unsaved.finished < FEW_FINISHED and not unsaved.is_awaited:
        return MIN_INTERVAL
    if unsaved.partitions < MANY_PARTITIONS or unsaved.finished >= enough * unsaved.partitions:
        return 0.0
    return MIN_INTERVAL / 4 if unsaved.may_grow else 0.0
