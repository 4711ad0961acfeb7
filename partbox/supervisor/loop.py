"""The loop of a node: it watches the processes, renews their leases, and buries and replaces ended processes."""

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
from partbox.text.wording import format_count

log = logging.getLogger("partbox.supervisor")

STARTING_PAUSE = 0.02  # seconds between two steps while a process starts
WATCH_INTERVAL = 0.25  # seconds between two steps otherwise, at most
DRAIN_GRACE = 2.0  # seconds beyond the drain timeout until processes are killed
KILL_GRACE = 2.0  # seconds in which the loop must end once all processes are killed


class LoopHeartbeat:
    """The time of the last step of the supervisor's loop (monotonic seconds), by which a hung loop is noticed.

    The loop writes it, and any thread may read it."""

    def __init__(self) -> None:
        self.stepped_at = 0.0
        self.is_waiting = False

    def note_step(self) -> float:
        """Record and return the time at which the supervisor's loop begins a step (monotonic seconds)."""
        self.stepped_at = time.monotonic()
        return self.stepped_at

    @contextmanager
    def waiting_for_database(self) -> Iterator[None]:
        """Mark the loop as waiting for the database, not hanging, during the `with` block."""
        # The wait may take any time, and a restart would not change it.
        self.is_waiting = True
        try:
            yield
        finally:
            self.stepped_at = time.monotonic()
            self.is_waiting = False

    def count_silent_seconds(self, now: float) -> float:
        """Return the seconds since the loop last ran a step, or 0.0 while it waits for the database."""
        return 0.0 if self.is_waiting else now - self.stepped_at


class Shutdown:
    """The progress of a node's shutdown, from the request to stop until all worker processes are killed.

    It takes no lock, because a signal handler may ask for it, having interrupted the holder of any lock."""

    def __init__(self) -> None:
        self._kill_at: float | None = None
        self._killed_at: float | None = None

    @property
    def is_asked(self) -> bool:
        return self._kill_at is not None

    def ask_to_drain(self, drain_timeout: float) -> None:
        """Begin a graceful shutdown, and set the time at which worker processes that still run are killed."""
        # They are killed after the drain timeout and `DRAIN_GRACE` seconds. A second call changes nothing.
        if self._kill_at is None:
            self._kill_at = time.monotonic() + drain_timeout + DRAIN_GRACE

    def ask_to_kill(self) -> None:
        """Request that worker processes are killed at once, without more time to end by themselves."""
        self._kill_at = 0.0

    def note_killed(self) -> None:
        """Record the time at which all worker processes have been killed."""
        # The loop must end soon after it.
        self._killed_at = self._killed_at or time.monotonic()

    def is_kill_due(self, now: float) -> bool:
        """Return True if worker processes should be killed because their time to end by themselves is over."""
        return self._kill_at is not None and now >= self._kill_at

    @property
    def is_overdue(self) -> bool:
        """True if the supervisor's loop has not ended within `KILL_GRACE` seconds after all processes were killed."""
        return self._killed_at is not None and time.monotonic() - self._killed_at > KILL_GRACE


class WakePipe:
    """A pipe that wakes the supervisor's loop from its wait for worker processes.

    It takes no lock, so signal handlers can use it."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        self._pid = os.getpid()

    def wake(self) -> None:
        """Wake the supervisor's loop from its wait. Any thread may call this."""
        # A call after `close` is allowed. In a forked process nothing is done.
        if self._pid != os.getpid():
            return
        with suppress(OSError):
            os.write(self._writer, b"x")

    def wait(self, sentinels: Sequence[int], timeout: float) -> bool:
        """Wait until a worker process ends (one of `sentinels`) or `wake` is called. Return True if `wake` was
        called."""
        # The wait takes at most `timeout` seconds.
        if self._reader not in connection.wait([*sentinels, self._reader], timeout):
            return False
        os.read(self._reader, 4096)
        return True

    def close(self) -> None:
        """Close both ends of the pipe. A later `wake` then does nothing."""
        # Reset the descriptor before it is closed: `wake` in a signal handler must not write to a reused number.
        reader, writer, self._writer = self._reader, self._writer, -1
        os.close(reader)
        os.close(writer)


@dataclass(eq=False)
class NodeLoop:
    """The main loop of a supervisor, which watches worker processes, renews their leases and replaces dead ones."""

    # Its thread calls `run`, and any thread may read `failure` and `heartbeat`.

    _job: Job
    _workers: WorkerPool
    _membership: Membership
    _database_retry: DatabaseRetry
    _shutdown: Shutdown
    _wake_pipe: WakePipe
    _tick_at: float = 0.0
    failure: BaseException | None = None

    def __post_init__(self) -> None:
        self._log = partial(log_event, log, subscription=self._job.subscription)
        self.heartbeat = LoopHeartbeat()

    def run(self) -> None:
        """Watch and replace the worker processes until a shutdown is requested and no process is left."""
        # An error that ends the loop is logged and kept.
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
            if not self._database_retry.is_joined:
                self._join_database(now)
            if self._database_retry.is_joined and self._workers.adjust_count(now):
                self._tick_at = 0.0
        self._workers.check_signs(self._membership.heartbeat_streak.measure_length(boottime()))
        if not self._database_retry.is_joined and not self._workers:
            self._tick_at = self._database_retry.next_try_at
        elif now >= self._tick_at:
            self._tick(now)
        pause = min(
            max(0.0, self._tick_at - time.monotonic()), STARTING_PAUSE if self._workers.is_starting else WATCH_INTERVAL
        )
        if self._wake_pipe.wait(self._workers.sentinels, pause) or self._workers.has_arriving_process:
            self._tick_at = 0.0

    def _drain(self) -> None:
        if self._workers.drain():
            self._tick_at = 0.0

    def _join_database(self, now: float) -> None:
        # All worker processes that worked for the unusable database before must have ended first.
        self._drain()
        if not self._workers and now >= self._database_retry.next_try_at:
            with self.heartbeat.waiting_for_database():
                self._database_retry.try_join()
            self._tick_at = 0.0

    def _tick(self, now: float) -> None:
        with self.heartbeat.waiting_for_database():
            self._tick_at = now + self._membership.try_tick(self._workers.list_living())

    def _reap(self) -> None:
        ended = self._workers.list_ended()
        victims = [
            handle.registered_process for handle in ended if handle.instance or handle.registered_process.lifespan_row
        ]
        for handle in ended:
            # `Supervisor.kill` asks no process to drain.
            handle.registered_process.is_draining |= self._shutdown.is_asked
            self._handle_exit(handle)
            self._workers.remove(handle)
        if victims:
            self._bury(victims)

    def _handle_exit(self, handle: WorkerHandle) -> None:
        drained, stopping = handle.registered_process.is_draining, self._shutdown.is_asked
        several = bool(self._job.database)
        code = 0 if handle.is_unborn else handle.exit_code
        match judge_exit(code, drained=drained, stopping=stopping, killed=handle.was_killed, several=several):
            case Exit.DATABASE_UNFIT:
                self._database_retry.mark_lost()
            case Exit.CANNOT_WORK:
                self.failure = PartboxError(f"worker process {handle.pid} cannot work; its log says why")
                self._shutdown.ask_to_drain(self._job.settings.drain_timeout)
                self._wake_pipe.wake()
            case Exit.KILLED:
                text = "process %d did not end in time and was killed: its running events may be delivered again"
                self._log("killed", text, handle.pid, worker_pid=handle.pid)
            case Exit.CRASHED:
                self._workers.note_crash(handle)

    def _bury(self, victims: list[RegisteredProcess]) -> None:
        # The partitions of dead processes are freed, so that others take them at once.
        # If this fails, they are free when the leases are over.
        try:
            with self.heartbeat.waiting_for_database():
                self._membership.bury(victims, self._workers.list_living())
        except Error as error:
            text = "could not free the partitions of %s, which are free when the lease is over: %s"
            dead = format_count(len(victims), "dead process")
            self._log("not_buried", text, dead, error, instances=len(victims))
