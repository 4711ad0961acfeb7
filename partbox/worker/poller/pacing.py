"""Pacing: the pause before the next poll, and the flag of the bell."""

import time
from typing import Any

from psycopg import Connection, Error
from psycopg.errors import ProgramLimitExceeded

from partbox.db.deadline import WatchedConnection
from partbox.db.delivery import bell
from partbox.protocol.bell import NAP, BellPoll, FlagChange, SleepControl, find_reason_off
from partbox.worker.context import Context
from partbox.worker.poller.listener import Listener

BUSY_SECONDS = 0.1  # seconds after new records during which polls stay `poll_busy` apart
BACKOFF = 1.5  # factor of the pause after each poll that finds nothing
# Seconds for which the flag stays down and no probe is sent, after the server's notification queue was filling up.
QUEUE_FULL_PAUSE = 1.0
# Seconds between polls while the log moves and none of the new records are for this process.
OTHERS_PAUSE = 0.010


class Pacer:
    """The control of how long a worker waits between two polls, and of whether publishers notify the worker.

    Sleeping workers ask publishers for notifications by a flag. Any thread may call `reset_pause` and `stop`; all else
    is for the poller's thread."""

    def __init__(self, context: Context) -> None:
        self.listener = Listener(context)
        self._context = context
        self._settings = settings = context.settings
        self._sleep_control = SleepControl()
        self._sequence: int | None = None
        self._last_new_at = 0.0
        self._pause = settings.poll_busy
        self._queue_full_until = 0.0
        self._is_full_logged = False

    def reset_pause(self) -> None:
        """Shorten the pause between polls to `poll_busy` again. Any thread may call this."""
        # The pause grows while no events come.
        self._pause = self._settings.poll_busy

    def stop(self) -> None:
        self.listener.stop()

    def begin_session(self, conn: Connection[Any]) -> None:
        """Find out on a new connection whether notifications can wake this worker."""
        # After this, it is unknown whether the flag that requests notifications is up.
        settings = self._settings
        self._sleep_control, self._sequence = SleepControl(), None
        bell_sequence = bell.find_bell_sequence(conn, settings.schema_name) if settings.bell != "off" else None
        pooled = settings.pooler and settings.listen_dsn is None
        prepared = 0 if bell_sequence is None else bell_sequence.prepared
        if find_reason_off(settings.bell, pooled=pooled, sequence=bell_sequence is not None, prepared=prepared) is None:
            assert bell_sequence is not None
            self._set_sequence(conn, bell_sequence.sequence)

    def choose_next_pause(
        self, conn: Connection[Any], has_new: bool, log_state: BellPoll | None, nap: float = NAP
    ) -> float:
        """Return the longest pause before the next poll (seconds)."""
        # `has_new`: the last poll brought records. `log_state` is None if there may be more to read. `nap` is the
        # longest pause while publishers are asked for notifications (seconds).
        now = time.monotonic()
        if has_new:
            self._last_new_at, self._pause = now, self._settings.poll_busy
        if self._sequence is not None:
            self._update_flag(conn, self._sequence, now, log_state, nap)
            if (doze_pause := self._sleep_control.compute_pause(time.monotonic())) is not None:
                return doze_pause
        if has_new and log_state is None:
            return 0.0
        if now - self._last_new_at <= BUSY_SECONDS:
            return self._pause
        if self._can_hear(now) and log_state is not None:
            return max(self._settings.poll_busy, min(OTHERS_PAUSE, self._settings.poll_idle))
        self._pause = min(self._settings.poll_idle, self._pause * BACKOFF)
        return self._pause

    def _update_flag(
        self, conn: Connection[Any], sequence: int, now: float, log_state: BellPoll | None, nap: float
    ) -> None:
        schema, listener, doze = self._settings.schema_name, self.listener, self._sleep_control
        try:
            listener.start()
            listener.read_notifications()
            probe = listener.take_probe() if now >= self._queue_full_until else None
            if probe is not None and not bell.notify_listeners(conn, schema, probe):
                listener.resend_probe(probe)
                self._stay_awake(now)
            if listener.take_callback():
                doze.note_lowered()
            act = doze.observe(now, log_state, listens=self._can_hear(now), nap=nap)
            if act is FlagChange.RAISE:
                self._raise_flag(conn, sequence)
            elif act is FlagChange.LOWER:
                bell.lower_flag(conn, schema, sequence)
                doze.note_lowered()
        # The notification queue had room when the statement asked, and was full at the COMMIT.
        except ProgramLimitExceeded:
            self._stay_awake(now)
        except Error as error:
            if conn.closed:
                raise
            # The bell stays off until the next session.
            self._set_sequence(conn, None)
            self._sleep_control.note_lowered()
            text = "wake-up notifications are off, so this worker polls every %.0f ms: %s"
            self._context.log("bell_lost", text, self._settings.poll_idle * 1000, error)

    def _can_hear(self, now: float) -> bool:
        return self.listener.is_hearing and now >= self._queue_full_until

    def _raise_flag(self, conn: Connection[Any], sequence: int) -> None:
        sent_at = time.monotonic()
        was_up = bell.raise_flag(conn, self._settings.schema_name, sequence)
        if was_up is None:
            self._stay_awake(sent_at)
        else:
            self._is_full_logged = False
            self._sleep_control.note_raised(sent_at, was_up=was_up)

    def _stay_awake(self, now: float) -> None:
        # Polls go on without sleep for a while, and publishers are asked for no notifications.
        # None should be sent while the server's notification queue is filling up.
        self._queue_full_until = now + QUEUE_FULL_PAUSE
        self._sleep_control.note_lowered()
        if not self._is_full_logged:
            self._is_full_logged = True
            text = (
                "the server's notification queue is filling up, so no wake-up notifications are sent, and this worker "
                "polls every %.0f ms: `partbox doctor` names the session that blocks the queue"
            )
            self._context.log("bell_lost", text, self._settings.poll_idle * 1000)

    def _set_sequence(self, conn: Connection[Any], sequence: int | None) -> None:
        # The sequence in the database stores the flag for notifications; None turns them off.
        # The sequence is also set for idle checks on `conn`.
        self._sequence = sequence
        if isinstance(conn, WatchedConnection):
            conn.bell = sequence
