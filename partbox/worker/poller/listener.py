"""Hears rings and calls on a connection of its own, and wakes the poller.

A thread makes the connection, again and again if need be. What comes on it is read by the poller itself, when it waits
(see `wakeup`), at each of its looks, and while none succeeds: what a listener does not read PostgreSQL keeps, and once
its queue of notifications is full nobody can notify any more.

Only what it has heard proves that it can hear: behind a pooler, or with a `listen_dsn` of another database, LISTEN
succeeds and nothing ever comes. So the poller says a word on its own connection, and does not sleep before that is
heard. A connection that is lost wakes the poller, which stays awake until another one hears: nothing depends on a ring
(⛨ DESIGN 4).
"""

import threading
from uuid import uuid4

from psycopg import OperationalError
from psycopg.pq import ConnStatus

from partbox.db.connect import connect
from partbox.db.deadline import WatchedConnection
from partbox.db.delivery import bell
from partbox.protocol.bell import ALL, BACK, CHANGED
from partbox.worker.context import Context
from partbox.worker.fork_safety import leave

AGAIN = (0.1, 30.0)  # seconds from one attempt to connect to the next
PATIENCE = 1.0  # seconds


class Listener:
    """The ears of one process. The poller starts and stops it, and calls all but `_run` and what that calls."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._engine = context.engine
        self._wakeup = context.wakeup
        self._settings = context.settings
        self._word: str | None = None  # that is to be said
        self._proof = ""  # that is to be heard
        self.hears = False  # a ring would be heard, as far as one can know
        self._called = False  # back: the flag was lowered
        self._told = False  # that the connection is lost
        self._ended = threading.Event()
        self._conn: WatchedConnection | None = None  # that the poller reads
        self._over = threading.Event()  # set: it is to be closed
        self._error: Exception | None = None  # that ended it
        self._read: WatchedConnection | None = None  # the poller's: whose socket its alarm knows
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to listen; again: nothing."""
        if self._thread is None and not self._ended.is_set():
            self._thread = threading.Thread(target=self._run, name="partbox-listener", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End, and wait for it; not for long while it connects, for it has nothing to finish."""
        self._ended.set()
        self._over.set()
        if self._thread is not None:
            self._thread.join(PATIENCE)

    def hear(self) -> None:
        """Read what has come. The poller's thread only."""
        conn = self._conn
        if conn is None:
            return
        if conn is not self._read:
            self._read = conn
            self._wakeup.hear_on(conn.pgconn.socket, self.hear)
        try:
            conn.pgconn.consume_input()
            while (notify := conn.pgconn.notifies()) is not None:
                self.heard(notify.extra.decode(errors="replace"))
            if conn.pgconn.status != ConnStatus.OK:
                raise OperationalError("the server closed the connection")
        except OperationalError as error:
            self._wakeup.deafen()
            self._conn, self._error = None, error
            self._over.set()

    def take_word(self) -> str | None:
        """A word that is to be said to all who listen, once; None: nothing is to be said."""
        word, self._word = self._word, None
        return word

    def keep_word(self, word: str) -> None:
        """Say the word again, for it could not be said, unless the connection that listened for it is lost."""
        if self._proof == word:
            self._word = word

    def take_call(self) -> bool:
        """True if another worker has lowered the flag, and called, since this was last asked."""
        called, self._called = self._called, False
        return called

    def heard(self, payload: str) -> None:
        """Take a notification: the word, a call `back`, a change, or a ring for all or for one partition."""
        if payload == self._proof:
            self.hears, self._told = True, False
            wakes = True
        elif payload == BACK:
            wakes = self._called = True
        elif payload == f"{CHANGED} {self._context.subscription}":
            wakes = self._wakeup.changed = True
        else:
            wakes = payload == ALL or (payload.isdecimal() and self._engine.claims.holds(int(payload)))
        if wakes:
            self._wakeup.call()

    def _run(self) -> None:
        pause = AGAIN[0]
        while not self._ended.is_set():
            try:
                with self._connect() as conn:
                    self._listen(conn)
            except Exception as error:  # whatever it is, it costs no more than latency
                pause = AGAIN[0] if self.hears else min(AGAIN[1], pause * 2)
                self._lost(error)
            self._ended.wait(pause)

    def _connect(self) -> WatchedConnection:
        lease, past = self._settings.lease, self._settings.listen_dsn
        pooler = self._settings.pooler and past is None
        dsn = past or self._context.dsn()
        if self._engine.forked:  # by what gives the DSN
            leave(None)
        return connect(dsn, lease=lease, pooler=pooler, name="partbox listener")

    def _listen(self, conn: WatchedConnection) -> None:
        """Let the poller hear what comes, until the end or the loss of the connection."""
        bell.listen(conn, self._settings.schema_name)
        self._over.clear()
        self._error = None
        self._proof = self._word = uuid4().hex
        self._conn = conn
        self._wakeup.call()
        if not self._ended.is_set():
            self._over.wait()
        if self._error is not None:
            raise self._error

    def _lost(self, error: Exception) -> None:
        self._proof = ""
        self.hears, self._word = False, None
        self._wakeup.call()
        if not self._told and not self._ended.is_set():
            self._told = True
            text = "nobody can wake this worker for now, so it looks every %.0f ms for new events: %s"
            self._context.log("bell_lost", text, self._settings.poll_idle * 1000, error)
