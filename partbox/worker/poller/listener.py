"""The listener: a connection that LISTENs for rings of the bell, and wakes the poller.

A successful LISTEN does not prove that notifications arrive: behind a pooler, or with a `listen_dsn` of another
database, none ever comes. So the poller sends a probe on its own connection, and does not sleep until the listener has
heard the probe. After the loss of a connection the poller stays awake until a new connection hears a probe. Nothing
depends on a ring."""

import threading
from uuid import uuid4

from psycopg import OperationalError
from psycopg.pq import ConnStatus

from partbox.db.connect import connect
from partbox.db.deadline import WatchedConnection
from partbox.db.delivery import bell
from partbox.protocol.bell import RING_ALL, RING_BACK, RING_CHANGED
from partbox.protocol.retry import Exponential, Jittered
from partbox.worker.context import Context
from partbox.worker.fork_safety import exit_forked

# Pauses between two attempts to connect. Processes that lose their connections together do not try again together.
RETRY_POLICY = Jittered(Exponential(0.1, 30.0), (0.5, 1.0))
JOIN_TIMEOUT = 1.0  # seconds


class Listener:
    """A thread that keeps a connection open for notifications of new events, and connects again after each loss.

    Only the poller's thread uses this class, except for `_run` and its callees. `is_hearing`: a probe (a test
    notification) has arrived, and the connection was not lost since."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._engine = context.engine
        self._wakeup = context.wakeup
        self._settings = context.settings
        self._probe_to_send: str | None = None
        self._probe_awaited = ""
        self.is_hearing = False
        self._was_called_back = False
        self._is_loss_logged = False
        self._stop_asked = threading.Event()
        self._conn: WatchedConnection | None = None
        self._close_asked = threading.Event()
        self._error: Exception | None = None
        # The connection whose socket the wakeup watches. Only the poller's thread uses it.
        self._watched_conn: WatchedConnection | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        # A second call, or a call after `stop`, does nothing.
        if self._thread is None and not self._stop_asked.is_set():
            self._thread = threading.Thread(target=self._run, name="partbox-listener", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        # The wait for the thread is brief (`JOIN_TIMEOUT`), because a thread that still connects has nothing to finish.
        self._stop_asked.set()
        self._close_asked.set()
        if self._thread is not None:
            self._thread.join(JOIN_TIMEOUT)

    def read_notifications(self) -> None:
        """Read and handle all notifications that have arrived. Only the poller's thread may call this."""
        # The poller does so while it waits (`wakeup`), at each step, and while its own statements fail. PostgreSQL
        # keeps unread notifications, and once its queue is full no session can notify any more.
        # If the listening connection turns out to be lost, the listener's thread reconnects.
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
            # Unwatch the socket before the thread closes it: the number of a closed socket is soon reused.
            self._wakeup.unwatch_socket()
            self._conn, self._error = None, error
            self._close_asked.set()

    def take_probe(self) -> str | None:
        """Return a test notification to send to this process, or None if none is needed."""
        # The poller sends it to prove that notifications arrive. Each probe is returned once.
        probe, self._probe_to_send = self._probe_to_send, None
        return probe

    def resend_probe(self, probe: str) -> None:
        """Schedule the test notification `probe` again after sending it has failed."""
        # `take_probe` returns it then. Nothing happens if the listening connection that awaits the probe is lost.
        if self._probe_awaited == probe:
            self._probe_to_send = probe

    def take_callback(self) -> bool:
        """Return True if another worker has asked all workers, since the last call, to poll regularly again."""
        # That worker has lowered the flag that lets workers sleep, and called all sleeping workers back.
        called, self._was_called_back = self._was_called_back, False
        return called

    def handle_notification(self, payload: str) -> None:
        """Read the payload of one notification, and wake the poller if the notification concerns this process."""
        # The notification is the awaited probe, or a ring for all, for one partition, for all sleepers (`RING_BACK`),
        # or for a changed plan or changed parked rows.
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
            self._wakeup.interrupt_poller()

    def _run(self) -> None:
        failures = 0
        while not self._stop_asked.is_set():
            try:
                with self._connect() as conn:
                    self._serve(conn)
            # Any error is caught, for the loss of the listener costs latency and nothing else.
            except Exception as error:
                failures = 1 if self.is_hearing else failures + 1
                self._note_lost(error)
            self._stop_asked.wait(RETRY_POLICY.next_delay(failures))

    def _connect(self) -> WatchedConnection:
        lease, direct_dsn = self._settings.lease, self._settings.listen_dsn
        pooler = self._settings.pooler and direct_dsn is None
        dsn = direct_dsn or self._context.dsn()
        # The function that supplied the DSN may have forked.
        if self._engine.is_forked:
            exit_forked(None)
        return connect(dsn, lease=lease, pooler=pooler, name="partbox listener")

    def _serve(self, conn: WatchedConnection) -> None:
        # The connection is used until it fails or the listener stops.
        # The poller reads the connection, and reports its errors.
        bell.listen(conn, self._settings.schema_name, self._engine.intake.wanted_types)
        self._close_asked.clear()
        self._error = None
        self._probe_awaited = self._probe_to_send = uuid4().hex
        # Publish the connection only now: from here on the poller's thread uses it.
        self._conn = conn
        self._wakeup.interrupt_poller()
        if not self._stop_asked.is_set():
            self._close_asked.wait()
        if self._error is not None:
            raise self._error

    def _note_lost(self, error: Exception) -> None:
        self._probe_awaited = ""
        self.is_hearing, self._probe_to_send = False, None
        self._wakeup.interrupt_poller()
        if not self._is_loss_logged and not self._stop_asked.is_set():
            self._is_loss_logged = True
            text = "notifications cannot wake this worker for now, so it polls every %.0f ms for new events: %s"
            self._context.log("bell_lost", text, self._settings.poll_idle * 1000, error)
