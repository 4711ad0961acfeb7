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
from partbox.protocol.bell import RING_ALL, RING_BACK, RING_CHANGED
from partbox.worker.context import Context
from partbox.worker.fork_safety import exit_forked

RECONNECT_PAUSES = (0.1, 30.0)  # seconds from one attempt to connect to the next
JOIN_TIMEOUT = 1.0  # seconds


class Listener:
    """The ears of one process. The poller starts and stops it, and calls all but `_run` and what that calls."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._engine = context.engine
        self._wakeup = context.wakeup
        self._settings = context.settings
        self._probe_to_send: str | None = None  # that is to be said
        self._probe_awaited = ""  # that is to be heard
        self.is_hearing = False  # a ring would be heard, as far as one can know
        self._was_called_back = False  # back: the flag was lowered
        self._is_loss_logged = False  # that the connection is lost
        self._ended = threading.Event()
        self._conn: WatchedConnection | None = None  # that the poller reads
        self._close_asked = threading.Event()  # set: it is to be closed
        self._error: Exception | None = None  # that ended it
        self._watched_conn: WatchedConnection | None = None  # the poller's: whose socket its alarm knows
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to listen; again: nothing."""
        if self._thread is None and not self._ended.is_set():
            self._thread = threading.Thread(target=self._run, name="partbox-listener", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End, and wait for it; not for long while it connects, for it has nothing to finish."""
        self._ended.set()
        self._close_asked.set()
        if self._thread is not None:
            self._thread.join(JOIN_TIMEOUT)

    def read_notifications(self) -> None:
        """Read what has come. The poller's thread only."""
        conn = self._conn
        if conn is None:
            return
        if conn is not self._watched_conn:
            self._watched_conn = conn
            self._wakeup.watch_socket(conn.pgconn.socket, self.read_notifications)
        try:
            conn.pgconn.consume_input()
            while (notify := conn.pgconn.notifies()) is not None:
                self.handle_notification(notify.extra.decode(errors="replace"))
            if conn.pgconn.status != ConnStatus.OK:
                raise OperationalError("the server closed the connection")
        except OperationalError as error:
            self._wakeup.unwatch_socket()
            self._conn, self._error = None, error
            self._close_asked.set()

    def take_probe(self) -> str | None:
        """A word that is to be said to all who listen, once; None: nothing is to be said."""
        probe, self._probe_to_send = self._probe_to_send, None
        return probe

    def resend_probe(self, probe: str) -> None:
        """Say the word again, for it could not be said, unless the connection that listened for it is lost."""
        if self._probe_awaited == probe:
            self._probe_to_send = probe

    def take_callback(self) -> bool:
        """True if another worker has lowered the flag, and called, since this was last asked."""
        called, self._was_called_back = self._was_called_back, False
        return called

    def handle_notification(self, payload: str) -> None:
        """Take a notification: the word, a call `back`, a change, or a ring for all or for one partition."""
        if payload == self._probe_awaited:
            self.is_hearing, self._is_loss_logged = True, False
            wakes = True
        elif payload == RING_BACK:
            wakes = self._was_called_back = True
        elif payload == f"{RING_CHANGED} {self._context.subscription}":
            wakes = self._wakeup.has_changes = True
        else:
            wakes = payload == RING_ALL or (payload.isdecimal() and self._engine.claims.is_known(int(payload)))
        if wakes:
            self._wakeup.call()

    def _run(self) -> None:
        pause = RECONNECT_PAUSES[0]
        while not self._ended.is_set():
            try:
                with self._connect() as conn:
                    self._serve(conn)
            except Exception as error:  # whatever it is, it costs no more than latency
                pause = RECONNECT_PAUSES[0] if self.is_hearing else min(RECONNECT_PAUSES[1], pause * 2)
                self._note_lost(error)
            self._ended.wait(pause)

    def _connect(self) -> WatchedConnection:
        lease, direct_dsn = self._settings.lease, self._settings.listen_dsn
        pooler = self._settings.pooler and direct_dsn is None
        dsn = direct_dsn or self._context.dsn()
        if self._engine.is_forked:  # by what gives the DSN
            exit_forked(None)
        return connect(dsn, lease=lease, pooler=pooler, name="partbox listener")

    def _serve(self, conn: WatchedConnection) -> None:
        """Let the poller hear what comes, until the end or the loss of the connection."""
        bell.listen(conn, self._settings.schema_name)
        self._close_asked.clear()
        self._error = None
        self._probe_awaited = self._probe_to_send = uuid4().hex
        self._conn = conn
        self._wakeup.call()
        if not self._ended.is_set():
            self._close_asked.wait()
        if self._error is not None:
            raise self._error

    def _note_lost(self, error: Exception) -> None:
        self._probe_awaited = ""
        self.is_hearing, self._probe_to_send = False, None
        self._wakeup.call()
        if not self._is_loss_logged and not self._ended.is_set():
            self._is_loss_logged = True
            text = "nobody can wake this worker for now, so it looks every %.0f ms for new events: %s"
            self._context.log("bell_lost", text, self._settings.poll_idle * 1000, error)
