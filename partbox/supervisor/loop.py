"""The loop of a node: watches its processes, renews their leases, buries and replaces those that end."""

import logging
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial

from multiprocess import connection
from psycopg import Error

from partbox.errors import PartboxError
from partbox.observe.logs.log_event import log_event
from partbox.platform import boottime
from partbox.supervisor.child import Job
from partbox.supervisor.database_retry import DatabaseRetry
from partbox.supervisor.exit_codes import Exit, judge_exit
from partbox.supervisor.membership import Membership, RegisteredProcess
from partbox.supervisor.worker_handle import WorkerHandle
from partbox.supervisor.worker_pool import WorkerPool
from partbox.text.wording import counted

log = logging.getLogger("partbox.supervisor")

STARTING_PAUSE = 0.02  # seconds between two turns of the loop while a process starts
WATCH_INTERVAL = 0.25  # and otherwise, at most
DRAIN_GRACE = 2.0  # seconds beyond the drain timeout that processes have to end
KILL_GRACE = 2.0  # seconds that the loop has to end when all processes are killed


class LoopHeartbeat:
    """The moment at which a loop last turned (monotonic seconds). The loop writes, any thread reads."""

    def __init__(self) -> None:
        self.stepped_at = 0.0
        self.is_waiting = False  # the database, which may not answer

    def note_step(self) -> float:
        """Note that the loop turns now; that moment."""
        self.stepped_at = time.monotonic()
        return self.stepped_at

    @contextmanager
    def waiting_for_database(self) -> Iterator[None]:
        """In here the loop stands still for as long as the database likes: no restart would help."""
        self.is_waiting = True
        try:
            yield
        finally:
            self.stepped_at = time.monotonic()
            self.is_waiting = False

    def silent_seconds(self, now: float) -> float:
        """Seconds since the loop has turned; 0.0 while it waits for the database."""
        return 0.0 if self.is_waiting else now - self.stepped_at


class Shutdown:
    """Asked for once. Without a lock: a signal's handler may ask, and may have interrupted the holder of any lock."""

    def __init__(self) -> None:
        self._kill_at: float | None = None
        self._killed_at: float | None = None

    @property
    def is_asked(self) -> bool:
        return self._kill_at is not None

    def ask_to_drain(self, drain_timeout: float) -> None:
        """Let processes end by themselves for the drain timeout and a little more; a second call changes nothing."""
        if self._kill_at is None:
            self._kill_at = time.monotonic() + drain_timeout + DRAIN_GRACE

    def ask_to_kill(self) -> None:
        """Let nothing end by itself any more."""
        self._kill_at = 0.0

    def note_killed(self) -> None:
        """All processes are killed by now."""
        self._killed_at = self._killed_at or time.monotonic()

    def is_kill_due(self, now: float) -> bool:
        """True if the processes that still run are to be killed."""
        return self._kill_at is not None and now >= self._kill_at

    @property
    def is_overdue(self) -> bool:
        """True if all is killed, and the loop has not ended since."""
        return self._killed_at is not None and time.monotonic() - self._killed_at > KILL_GRACE


class WakePipe:
    """`wake` takes no lock, so that a signal's handler may call it. In a forked process it does nothing: the pipe is
    the parent's."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        self._pid = os.getpid()

    def wake(self) -> None:
        """Any thread, also after `close`."""
        if self._pid != os.getpid():
            return
        with suppress(OSError):
            os.write(self._writer, b"x")

    def wait(self, sentinels: Sequence[int], timeout: float) -> bool:
        """Wait until one of the processes has ended, or `wake` was called, which is True."""
        if self._reader not in connection.wait([*sentinels, self._reader], timeout):
            return False
        os.read(self._reader, 4096)
        return True

    def close(self) -> None:
        reader, writer, self._writer = self._reader, self._writer, -1
        os.close(reader)
        os.close(writer)


@dataclass(eq=False)
class NodeLoop:
    """`run` is for the node's thread; any thread may read `failure` and `heartbeat`."""

    _job: Job
    _workers: WorkerPool
    _membership: Membership
    _database: DatabaseRetry
    _shutdown: Shutdown
    _wake: WakePipe
    _tick_at: float = 0.0
    failure: BaseException | None = None

    def __post_init__(self) -> None:
        self._log = partial(log_event, log, subscription=self._job.subscription)
        self.heartbeat = LoopHeartbeat()

    def run(self) -> None:
        """Turn until a shutdown is asked for and no process is left; an error that ends it is logged and kept."""
        try:
            while not self._shutdown.is_asked or self._workers:
                self._step()
        except BaseException as error:
            self.failure = error
            log_event(log, "worker_failed", "the supervisor ends: %s", error, trace=error)

    def _step(self) -> None:
        now = self.heartbeat.note_step()
        self._reap()
        if self._shutdown.is_asked:
            self._drain()
            if self._shutdown.is_kill_due(now):
                self._workers.kill()
        else:
            if not self._database.is_joined:
                self._join_database(now)
            if self._database.is_joined and self._workers.adjust_count(now):
                self._tick_at = 0.0
        self._workers.check_signs(self._membership.heartbeat_streak.lasted_for(boottime()))
        if not self._database.is_joined and not self._workers:
            self._tick_at = self._database.next_try_at
        elif now >= self._tick_at:
            self._tick(now)
        pause = min(
            max(0.0, self._tick_at - time.monotonic()), STARTING_PAUSE if self._workers.is_starting else WATCH_INTERVAL
        )
        if self._wake.wait(self._workers.sentinels, pause) or self._workers.has_arriving:
            self._tick_at = 0.0

    def _drain(self) -> None:
        if self._workers.drain():
            self._tick_at = 0.0

    def _join_database(self, now: float) -> None:
        """Try whether the database can be worked for by now, once nothing runs that was begun when it could."""
        self._drain()
        if not self._workers and now >= self._database.next_try_at:
            with self.heartbeat.waiting_for_database():
                self._database.try_join()
            self._tick_at = 0.0

    def _tick(self, now: float) -> None:
        with self.heartbeat.waiting_for_database():
            self._tick_at = now + self._membership.try_tick(self._workers.list_living())

    def _reap(self) -> None:
        """Bury the processes that ended, at once, and plan their replacement."""
        ended = self._workers.list_ended()
        victims = [handle.registered for handle in ended if handle.instance or handle.registered.lifespan_row]
        for handle in ended:
            handle.registered.draining |= self._shutdown.is_asked  # `kill` asks none to drain
            self._handle_exit(handle)
            self._workers.remove(handle)
        if victims:
            self._bury(victims)

    def _handle_exit(self, handle: WorkerHandle) -> None:
        drained, stopping = handle.registered.draining, self._shutdown.is_asked
        several = bool(self._job.database)
        code = 0 if handle.is_unborn else handle.exit_code
        match judge_exit(code, drained=drained, stopping=stopping, killed=handle.killed, several=several):
            case Exit.DATABASE_UNFIT:
                self._database.mark_lost()
            case Exit.CANNOT_WORK:
                self.failure = PartboxError(f"worker process {handle.pid} cannot work; its log says why")
                self._shutdown.ask_to_drain(self._job.settings.drain_timeout)
                self._wake.wake()
            case Exit.KILLED:
                text = "process %d did not end in time and was killed: what ran may be delivered again"
                self._log("killed", text, handle.pid, worker_pid=handle.pid)
            case Exit.CRASHED:
                self._workers.note_crash(handle)

    def _bury(self, victims: list[RegisteredProcess]) -> None:
        try:
            with self.heartbeat.waiting_for_database():
                self._membership.bury(victims, self._workers.list_living())
        except Error as error:
            text = "could not free the partitions of %s, which are free when the lease is over: %s"
            dead = counted(len(victims), "dead process")
            self._log("not_buried", text, dead, error, instances=len(victims))
