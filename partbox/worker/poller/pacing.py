"""Computes the time from one look of the poller to the next, and keeps the bell's flag."""

import time
from typing import Any

from psycopg import Connection, Error
from psycopg.errors import ProgramLimitExceeded

from partbox.db.deadline import WatchedConnection
from partbox.db.delivery import bell
from partbox.protocol.bell import NAP, Act, Doze, Seen, why_off
from partbox.worker.context import Context
from partbox.worker.poller.listener import Listener

LINGER = 0.1  # seconds for which looks stay `poll_busy` apart after something came
BACKOFF = 1.5
CROWDED = 1.0  # seconds for which nobody raises the flag or is told, once the notification queue was filling up
OTHERS = 0.010  # seconds between looks while the log moves, and nothing of it is mine


class Pacer:
    """Used by the poller's thread only, but for `hurry` and `stop`."""

    def __init__(self, context: Context) -> None:
        self.listener = Listener(context)
        self._context = context
        self._settings = settings = context.settings
        self._doze = Doze()
        self._sequence: int | None = None
        self._came_at = 0.0
        self._pause = settings.poll_busy
        self._crowded_until = 0.0
        self._crowded = False  # since it was logged

    def hurry(self) -> None:
        """Look often again. Any thread."""
        self._pause = self._settings.poll_busy

    def stop(self) -> None:
        self.listener.stop()

    def begin(self, conn: Connection[Any]) -> None:
        """A session begins on this connection: nobody knows of the flag there."""
        settings = self._settings
        self._doze, self._sequence = Doze(), None
        found = bell.found(conn, settings.schema_name) if settings.bell != "off" else None
        pooled = settings.pooler and settings.listen_dsn is None
        prepared = 0 if found is None else found.prepared
        if why_off(settings.bell, pooled=pooled, sequence=found is not None, prepared=prepared) is None:
            assert found is not None
            self._rings_by(conn, found.sequence)

    def pause(self, conn: Connection[Any], came: bool, seen: Seen | None, nap: float = NAP) -> float:
        """Seconds until the next look at most, after one by which new records `came`, or did not.

        `seen`: it has brought all there was; None: there may be more. `nap`: the longest pause (seconds).
        """
        now = time.monotonic()
        if came:
            self._came_at, self._pause = now, self._settings.poll_busy
        if self._sequence is not None:
            self._attend(conn, self._sequence, now, seen, nap)
            if (asleep := self._doze.pause(time.monotonic())) is not None:
                return asleep
        if came and seen is None:
            return 0.0
        if now - self._came_at <= LINGER:
            return self._pause
        if self._hears(now) and seen is not None:
            return max(self._settings.poll_busy, min(OTHERS, self._settings.poll_idle))
        self._pause = min(self._settings.poll_idle, self._pause * BACKOFF)
        return self._pause

    def _attend(self, conn: Connection[Any], sequence: int, now: float, seen: Seen | None, nap: float) -> None:
        """Do to the flag what the rules say."""
        schema, listener, doze = self._settings.schema_name, self.listener, self._doze
        try:
            listener.start()
            listener.hear()
            word = listener.take_word() if now >= self._crowded_until else None
            if word is not None and not bell.say(conn, schema, word):
                listener.keep_word(word)
                self._refrain(now)
            if listener.take_call():
                doze.lowered()
            act = doze.observe(now, seen, listens=self._hears(now), nap=nap)
            if act is Act.RAISE:
                self._raise_flag(conn, sequence, nap)
            elif act is Act.LOWER:
                bell.lower_flag(conn, schema, sequence)
                doze.lowered()
        except ProgramLimitExceeded:  # it was full at the COMMIT, and had room when the statement asked
            self._refrain(now)
        except Error as error:
            if conn.closed:
                raise
            self._rings_by(conn, None)  # until the next session
            self._doze.lowered()
            text = "the bell is off, so new events are looked for every %.0f ms: %s"
            self._context.log("bell_lost", text, self._settings.poll_idle * 1000, error)

    def _hears(self, now: float) -> bool:
        """True if somebody may ring, and would be heard."""
        return self.listener.hears and now >= self._crowded_until

    def _raise_flag(self, conn: Connection[Any], sequence: int, nap: float) -> None:
        sent = time.monotonic()
        was_up = bell.raise_flag(conn, self._settings.schema_name, sequence, nap)
        if was_up is None:
            self._refrain(sent)
        else:
            self._crowded = False
            self._doze.raised(sent, was_up=was_up)

    def _refrain(self, now: float) -> None:
        """Stay awake for a while: nobody may ring while the server's notification queue fills up (⛨ DESIGN 4, I3)."""
        self._crowded_until = now + CROWDED
        self._doze.lowered()
        if not self._crowded:
            self._crowded = True
            text = (
                "the server's notification queue is filling up, so nobody rings, and new events are looked for every "
                "%.0f ms: `partbox doctor` names the session that holds it"
            )
            self._context.log("bell_lost", text, self._settings.poll_idle * 1000)

    def _rings_by(self, conn: Connection[Any], sequence: int | None) -> None:
        self._sequence = sequence
        if isinstance(conn, WatchedConnection):
            conn.bell = sequence
