"""The thread that reads: fences, pages, ticks, and the bodies of parked records.

It owns both connections of the process. When either is lost both are closed, everything that was read is forgotten,
and reading goes on from the *saved* cursors: after a crash of the server that lost a tail, ids and transaction ids are
given out again, and nothing remembered about them holds. Only what is done or running is remembered, by id and event
id, so that a plain reconnect starts nothing twice. A statement that fails on a live connection resets nothing.
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from psycopg import Connection, Error

from partbox.db import migrate
from partbox.db.blocking import lean
from partbox.db.connect import check, connect
from partbox.settings import Settings
from partbox.worker.dispatcher import Dispatcher
from partbox.worker.due import Due
from partbox.worker.holdings import Holdings
from partbox.worker.intake import Intake
from partbox.worker.ownership import Ownership
from partbox.worker.reader import Reader
from partbox.worker.saver import Saver
from partbox.worker.slot import POLL_TICK, STOPPING, Slot, boottime

log = logging.getLogger("partbox.worker")

TICK = 0.25
LINGER = 0.1  # seconds for which looks stay `poll_busy` apart after something came
BACKOFF = 1.5
RETRY = 0.1
RECONNECT = (0.1, 2.0)


class Poller:
    """Reads the partitions of one process until it is ended."""

    def __init__(
        self,
        holdings: Holdings,
        dispatcher: Dispatcher,
        intake: Intake,
        slot: Slot,
        settings: Settings,
        subscription: str,
        dsn: Callable[[], str],
        *,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        schema = settings.schema_name
        self._holdings = holdings
        self._dispatcher = dispatcher
        self._slot = slot
        self._settings = settings
        self._dsn = dsn
        self._reader = Reader(holdings, dispatcher, intake, settings)
        self._ownership = Ownership(holdings, slot, schema, subscription, self._reader.claimed)
        self._due = Due(holdings, intake, schema, subscription)
        self._wake = threading.Event()
        self._broken = threading.Event()
        self._ended = threading.Event()
        self._tick_at = 0.0
        self._brought_at = 0.0
        self._pause = settings.poll_busy
        self._on_failure = on_failure
        self.saver = Saver(
            holdings,
            slot,
            schema,
            subscription,
            window=settings.window,
            on_lost=self._ownership.lose,
            on_released=self._ownership.released,
            on_saved=self._wake.set,
            on_broken=self._break,
            on_failure=on_failure,
        )
        self._thread = threading.Thread(target=self._run, name="partbox-poller", daemon=True)

    def start(self) -> None:
        self.saver.start()
        self._thread.start()

    def wake(self) -> None:
        """Look at once."""
        self._pause = self._settings.poll_busy
        self._wake.set()

    def end(self) -> None:
        """End now, whatever is still owned."""
        self._ended.set()
        self._wake.set()
        self._thread.join()
        self.saver.stop()

    def _break(self) -> None:
        self._broken.set()
        self._wake.set()

    def _run(self) -> None:
        try:
            while not self._ended.is_set():
                self._try_session()
        except BaseException as error:
            self._on_failure(error)

    def _try_session(self) -> None:
        self._reconnect_in = RECONNECT[0]
        while not self._ended.is_set():
            try:
                self._session()
            except Error as error:
                log.error("the connection is lost and made anew: %s", " ".join(str(error).split()))
                self._ended.wait(self._reconnect_in)
                self._reconnect_in = min(RECONNECT[1], self._reconnect_in * 2)

    def _session(self) -> None:
        """From connecting to the loss of either connection."""
        with self._connect("poller") as conn, self._connect("saver") as saving:
            try:
                check(conn, self._settings.schema_name)
                migrate.check(conn, self._settings.schema_name)
                lean(conn)
                self._broken.clear()
                self._reader.forget()
                self._take_up(conn, saving)
                self._reconnect_in = RECONNECT[0]
                while not self._ended.is_set() and not self._broken.is_set():
                    self._try_step(conn, saving)
            finally:
                self.saver.connected(None, None)

    def _connect(self, role: str) -> Connection[Any]:
        return connect(self._dsn(), lease=self._settings.lease, pooler=self._settings.pooler, name=f"partbox {role}")

    def _take_up(self, conn: Connection[Any], saving: Connection[Any]) -> None:
        self.saver.connected(None, None)
        self._ownership.take_up(conn)
        self.saver.connected(saving, self._ownership.me)

    def _try_step(self, conn: Connection[Any], saving: Connection[Any]) -> None:
        try:
            self._step(conn, saving)
        except Error as error:
            if conn.closed:
                raise
            log.error("reading failed and is tried again: %s", " ".join(str(error).split()))
            self._ended.wait(RETRY)

    def _step(self, conn: Connection[Any], saving: Connection[Any]) -> None:
        self._slot[POLL_TICK] = boottime()
        self._dispatcher.note_running()
        self._wake.clear()
        if self._ownership.outdated:
            self._take_up(conn, saving)
        if self._slot[STOPPING]:
            self._ownership.drain_all()
        if time.monotonic() >= self._tick_at:
            self._tick_at = time.monotonic() + TICK
            self._due.run_due(conn, self._ownership.tick(conn))
        self._due.run_blocked(conn)
        self._wait(self._reader.read(conn))

    def _wait(self, brought: bool) -> None:
        now = time.monotonic()
        if brought:
            self._brought_at, self._pause = now, self._settings.poll_busy
            return
        if now - self._brought_at > LINGER:
            self._pause = min(self._settings.poll_idle, self._pause * BACKOFF)
        wakeup = self._holdings.next_wakeup()
        until = min(self._tick_at, now + self._pause, self._tick_at if wakeup is None else wakeup)
        self._wake.wait(max(0.0005, until - now))
