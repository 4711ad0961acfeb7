"""The saver thread: it saves cursors and parked rows, and releases partitions.

One fenced call saves everything there is, by the save rule. A save starts no sooner than 50 ms after the last one, and
after 25 times the duration of the quicker of the last two: an open transaction anywhere in the database keeps old
row versions alive, which makes each save slower than the one before. A save that releases partitions starts as soon as
they are quiet, after 10 ms or the duration of the last save, because nobody handles their events meanwhile."""

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
from partbox.worker.engine.saves import PartitionSave, UnsavedWork, build_save_arguments
from partbox.worker.reports.outcomes import notify_saved
from partbox.worker.session import log_lost_connection
from partbox.worker.slot import SAVE_TICK, SAVED_AT

MIN_INTERVAL = 0.05  # seconds
MAX_DELAY = 0.2  # seconds
# The pause between saves, as a multiple of their duration.
DUTY_FACTOR = 25
FEW_FINISHED = 48
RELEASE_PAUSE = 0.01  # seconds
ENOUGH_FINISHED = 48
MANY_PARTITIONS = 32
# Seconds after which a cursor that only moved with the horizon is saved.
IDLE_ADVANCE = 60.0
# Seconds between two searches for such cursors.
ADVANCE_INTERVAL = 1.0
TICK_INTERVAL = 0.25  # seconds
RETRY_PAUSE = 0.1  # seconds
# Parked rows that one call writes, unless they belong to one partition: no statement may outlast a lease.
MAX_ROWS = 5_000


class Saver:
    """The thread that saves progress to the database: which events are done, and which failed. The poller sets its
    connection, and removes it when a connection is lost."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._engine = context.engine
        self._slot = context.slot
        self._observers = context.observers
        self._signals = context.signals
        self._conn: Connection[Any] | None = None
        self._me: UUID | None = None
        # Guards the connection, and the saves that were gathered and not sent on it.
        self._conn_lock = threading.Lock()
        # Set if there may be something to save.
        self._has_progress = threading.Event()
        # Set if there may be a partition to release.
        self._has_release = threading.Event()
        self._engine.wakes.wake_saver, self._engine.wakes.interrupt_saver = (
            self._has_progress.set,
            self._has_release.set,
        )
        self._enough_finished = min(ENOUGH_FINISHED, max(1, context.settings.window // 2))
        self._saved_at = 0.0
        self._advance_at = 0.0
        self._stop_asked = threading.Event()
        # Saves that remain after a failed call, or after a full one.
        self._unsent_saves: list[PartitionSave] = []
        # The seconds that the server spent on saves.
        self.busy_seconds = 0.0
        self.save_count = 0
        self._last_seconds = 0.0
        # True if there was a connection, and everything could be saved.
        self._is_healthy = False
        self._thread = threading.Thread(target=self._run, name="partbox-saver", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop the saving thread after the save in progress, and wait for its end."""
        self._stop_asked.set()
        self._has_progress.set()
        self._has_release.set()
        self._thread.join()

    def set_connection(self, conn: Connection[Any] | None, me: UUID | None) -> None:
        """Set the connection and instance id to save with, once the save in progress is over. None suspends saving."""
        # A save holds the lock while it uses the connection.
        with self._conn_lock:
            self._conn, self._me, self._unsent_saves = conn, me, []
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
        # The slot in shared memory shows the supervisor that this thread is alive, and when it was last able to save.
        self._slot[SAVE_TICK] = now = boottime()
        if self._is_healthy:
            self._slot[SAVED_AT] = now

    def _pause(self, seconds: float) -> None:
        # The pause is shorter if a partition may be released. Signs of life are recorded meanwhile, because a pause may
        # be longer than a lease.
        began = time.monotonic()
        while (left := began + seconds - time.monotonic()) > 0 and not self._stop_asked.is_set():
            if self._has_release.wait(min(left, TICK_INTERVAL)):
                self._stop_asked.wait(began + min(seconds, max(RELEASE_PAUSE, self._last_seconds)) - time.monotonic())
                return
            self._tick()

    def _save_once(self) -> float:
        # Returned are the seconds until the next save may start.
        with self._conn_lock:
            if self._conn is None or self._me is None:
                # Without this, handlers that go on would keep the flag as it was.
                self._is_healthy = self._conn is not None
                self._has_progress.clear()
                return 0.0
            if save_delay := self._find_save_delay():
                return save_delay
            try:
                seconds = self.save(self._conn, self._me)
            except Error as error:
                self._is_healthy = False
                # A missing privilege can be granted again on the same connection, and nothing was written meanwhile.
                gone = proof.ends_session(error) and not isinstance(error, InsufficientPrivilege)
                if self._conn.closed or self._conn.broken or gone:
                    self._conn = None
                    log_lost_connection(error, self._context.subscription, "saver")
                    self._signals.report_broken()
                    return 0.0
                self._context.log("loop_error", "saving failed and is tried again: %s", error, loop="saver")
                # No other progress may come before this is saved.
                self._has_progress.set()
                return RETRY_PAUSE
            self._is_healthy = True
            self.busy_seconds += seconds
            self.save_count += 1
            self._saved_at = time.monotonic()
            return self._compute_pause(seconds)

    def _find_save_delay(self) -> float:
        if self._unsent_saves or time.monotonic() - self._saved_at > MAX_DELAY:
            return 0.0
        return compute_save_delay(self._engine.saves.count_unsaved(), self._enough_finished)

    def _compute_pause(self, seconds: float) -> float:
        # One slow save (a cold cache, a checkpoint) is no sign that the next will be slow.
        usual = min(seconds, self._last_seconds)
        self._last_seconds = seconds
        if self._unsent_saves:
            return 0.0
        return (
            # After a death the pause is short: charged records wait for the save, and all suspects wait for them.
            max(RELEASE_PAUSE, seconds)
            if self._engine.saves.has_waiting_suspects
            else max(MIN_INTERVAL, DUTY_FACTOR * usual)
        )

    def save(self, conn: Connection[Any], me: UUID) -> float:
        """Save all unsaved progress as instance `me`. Return the seconds that the server took."""
        # If an outage parks more rows at once than a statement could write within a lease, several calls follow each
        # other, each for whole partitions. If this process has lost one of the partitions, nothing is written, and the
        # call is sent again without them. Partitions lost to others are reported and left out. The rest of a full or
        # failed call is kept for the next one. While the thread runs, only it may call this.
        waiting = self._gather_saves()
        total = 0.0
        while waiting:
            self._unsent_saves = waiting
            # A call takes the first save, and as many more as fit into `MAX_ROWS` rows.
            rows = accumulate(save.row_count for save in waiting)
            saves = waiting[: max(1, sum(1 for _ in takewhile(lambda so_far: so_far <= MAX_ROWS, rows)))]
            owned, seconds = cursors.save(
                conn, self._context.schema, self._context.subscription, me, *build_save_arguments(saves)
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
        self._unsent_saves = waiting
        if waiting:
            self._has_progress.set()
        return total

    def _gather_saves(self) -> list[PartitionSave]:
        if self._unsent_saves:
            return self._engine.saves.filter_owned(self._unsent_saves)
        # Clear before gathering: later progress sets the event again.
        self._has_progress.clear()
        self._has_release.clear()
        return self._engine.saves.gather_saves(time.monotonic())

    def _advance_idle(self, now: float) -> None:
        # The read positions of partitions without new events are saved once a minute.
        # Old saved cursors hold back pruning and purge.
        if now < self._advance_at:
            return
        # The clock decides, however busy other partitions are.
        self._advance_at = now + ADVANCE_INTERVAL
        self._engine.saves.advance_idle(now - IDLE_ADVANCE)


def compute_save_delay(unsaved: UnsavedWork, enough: int) -> float:
    """Return the seconds to wait for more progress before a save, or 0 to save now."""
    # A save of few events, or of many partitions with little progress each, waits up to 200 ms for more, unless the
    # poller or an urgent change waits for it.
    # A save costs a statement and about 170 bytes of WAL per partition, which `enough` finished records are worth.
    if unsaved.is_urgent:
        return 0.0
    if unsaved.finished_count < FEW_FINISHED and not unsaved.is_awaited:
        return MIN_INTERVAL
    if unsaved.partition_count < MANY_PARTITIONS or unsaved.finished_count >= enough * unsaved.partition_count:
        return 0.0
    return MIN_INTERVAL / 4 if unsaved.may_grow else 0.0
