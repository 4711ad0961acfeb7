"""Hears the rings, on a connection and in a thread of its own, and wakes the poller.

Only what it has heard proves that it can hear: behind a pooler, or with a `listen_dsn` of another database, LISTEN
succeeds and nothing ever comes. So the poller says a word on its own connection, and does not sleep before that is
heard. A connection that is lost wakes the poller, which stays awake until another one hears.
"""

import logging
import os
import select
import threading
from collections.abc import Callable
from uuid import uuid4

from psycopg import OperationalError
from psycopg.pq import ConnStatus

from partbox.db.connect import connect
from partbox.db.deadline import WatchedConnection
from partbox.db.delivery import bell
from partbox.observe.logs.log_event import log_event
from partbox.rules.bell import ALL, BACK
from partbox.settings import Settings
from partbox.worker.forks import leave
from partbox.worker.state.holdings import Holdings

log = logging.getLogger("partbox.worker")

AGAIN = (0.1, 30.0)  # seconds from one attempt to connect to the next
PATIENCE = 1.0  # seconds


class Listener:
    """Of one process; `start` and `stop` are the poller's."""

    def __init__(self, holdings: Holdings, settings: Settings, dsn: Callable[[], str], subscription: str) -> None:
        self._holdings = holdings
        self._settings = settings
        self._dsn = dsn
        self._subscription = subscription
        self._word: str | None = None  # that is to be said
        self._proof = ""  # that is to be heard
        self._hears = False
        self._called = False
        self._told = False  # that the connection is lost
        self._ended = threading.Event()
        self._end, self._stop = -1, -1  # of a pipe
        self._thread: threading.Thread | None = None

    @property
    def hears(self) -> bool:
        """True if a ring would be heard, as far as one can know."""
        return self._hears

    def start(self) -> None:
        """Begin to listen; again: nothing."""
        if self._thread is None and not self._ended.is_set():
            self._end, self._stop = os.pipe()
            self._thread = threading.Thread(target=self._run, name="partbox-listener", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End, and wait for it; not for long while it connects, for it has nothing to finish."""
        if self._thread is not None and not self._ended.is_set():
            os.write(self._stop, b"x")  # first: once it is to end, the thread closes the pipe
        self._ended.set()
        if self._thread is not None:
            self._thread.join(PATIENCE)

    def take_word(self) -> str | None:
        """A word that is to be said to all who listen, once; None: nothing is to be said."""
        word, self._word = self._word, None
        return word

    def take_call(self) -> bool:
        """True if somebody has lowered the flag since the last call."""
        called, self._called = self._called, False
        return called

    def heard(self, payload: str) -> None:
        """A notification has come."""
        if payload == self._proof:
            self._hears, self._told = True, False
            wakes = True
        elif payload == BACK:
            wakes = self._called = True
        else:
            with self._holdings.lock:
                wakes = payload == ALL or (payload.isdecimal() and int(payload) in self._holdings.partitions)
        if wakes:
            self._holdings.call()

    def _run(self) -> None:
        pause = AGAIN[0]
        while not self._ended.is_set():
            try:
                with self._connect() as conn:
                    self._listen(conn)
            except Exception as error:  # whatever it is, it costs no more than latency
                pause = AGAIN[0] if self._hears else min(AGAIN[1], pause * 2)
                self._lost(error)
            self._ended.wait(pause)
        os.close(self._end)
        os.close(self._stop)

    def _connect(self) -> WatchedConnection:
        lease, past = self._settings.lease, self._settings.listen_dsn
        pooler = self._settings.pooler and past is None
        dsn = past or self._dsn()
        if self._holdings.forked:  # by what gives the DSN
            leave(None)
        return connect(dsn, lease=lease, pooler=pooler, name="partbox listener")

    def _listen(self, conn: WatchedConnection) -> None:
        """Hear what comes, until the end or the loss of the connection."""
        bell.listen(conn, self._settings.schema_name)
        self._proof = self._word = uuid4().hex
        self._holdings.call()
        waiting = select.poll()
        for socket in (conn.pgconn.socket, self._end):
            waiting.register(socket, select.POLLIN)
        while not self._ended.is_set():
            waiting.poll()
            conn.pgconn.consume_input()
            while (notify := conn.pgconn.notifies()) is not None:
                self.heard(notify.extra.decode(errors="replace"))
            if conn.pgconn.status != ConnStatus.OK:
                raise OperationalError("the server closed the connection")

    def _lost(self, error: Exception) -> None:
        self._proof = ""
        self._hears, self._word = False, None
        self._holdings.call()
        if not self._told and not self._ended.is_set():
            self._told = True
            text = "nobody can wake this worker for now, so it looks every %.0f ms for new events: %s"
            idle = self._settings.poll_idle * 1000
            log_event(log, "bell_lost", text, idle, error, subscription=self._subscription)
