"""A worker process as its supervisor sees it."""

import os
import tempfile
import time
from typing import Any
from uuid import UUID

from partbox.embedded import processes
from partbox.observe.health.vitals import ProcessVitals
from partbox.observe.metrics.meter import Meter
from partbox.platform import boottime
from partbox.protocol.lease import ChildSigns
from partbox.supervisor.child import Job, main
from partbox.supervisor.job_pickling import PicklableJob, SpawnedWorker
from partbox.supervisor.membership import RegisteredProcess
from partbox.supervisor.signals import hold_signals
from partbox.worker.slot import (
    LIFESPAN_SINCE,
    OWNED,
    POLL_TICK,
    READ_AT,
    RUNNING_SINCE,
    SAVE_TICK,
    SAVED_AT,
    STOPPING,
    TIMEOUT,
    Slot,
)

# Both threads tick four times a second. If both are silent for this many seconds while a handler runs, the handler
# holds the interpreter.
HOLD_SECONDS = 1.0


class WorkerHandle:
    """A supervisor's handle of one worker process, by which the process is spawned, watched and stopped.

    The process is spawned when the handle is created. The handle has the process, its shared memory, and its signs of
    life."""

    def __init__(self, context: Any, job: Job, memory: tuple[Any, Any], index: int) -> None:
        self.index = index
        self.meter = Meter.create_shared(job.layout, context) if job.layout is not None else None
        cells = self.meter and self.meter.cells
        slot = Slot(*memory, index)
        slot.clear()
        self._process = SpawnedWorker(
            target=main,
            args=(PicklableJob(job), *memory, cells, index, os.getpid()),
            name=f"partbox-worker-{index}",
            daemon=False,
        )
        _leave_deleted_folder()
        # Signals are held back until the child ignores them itself. The supervisor decides about their meaning.
        with hold_signals():
            self._process.start()
        self.started_at = time.monotonic()
        self.was_killed = self.is_unborn = False
        self._reset_signs(slot, self._process.pid)

    def _reset_signs(self, slot: Slot, pid: int) -> None:
        # A process is not vouched for before it has read.
        self.registered_process = RegisteredProcess(slot, pid, is_vouched=False)
        # The signs of life at the supervisor's last check.
        self.last_signs: ChildSigns | None = None
        # The last time at which the process was seen silent for the good reason that a handler runs.
        self._busy_at = 0.0
        # The last time at which both threads were seen silent for that reason.
        self._held_at = 0.0
        self._ready_at = 0.0

    @property
    def pid(self) -> int:
        return self.registered_process.pid

    @property
    def instance(self) -> UUID | None:
        """The id under which the worker process is registered in the database, or None before registration."""
        return self.registered_process.slot.instance

    @property
    def sentinel(self) -> int:
        """A file descriptor that becomes readable once the worker process has ended."""
        return int(self._process.sentinel)

    @property
    def exit_code(self) -> int | None:
        """The exit code of the worker process, or None while the process lives."""
        return self._process.exitcode  # type: ignore[no-any-return]

    @property
    def handler_timeout(self) -> float:
        """The longest timeout of the handlers in the worker process (seconds), or 0.0 if some have none."""
        return self.registered_process.slot[TIMEOUT]

    @property
    def is_ready(self) -> bool:
        """True if the worker process has begun to poll for events or to save, so that it can get partitions."""
        return self.registered_process.slot[POLL_TICK] > 0 or self.registered_process.slot[SAVE_TICK] > 0

    @property
    def is_starting(self) -> bool:
        """True if the worker process lives but is neither registered nor in the application's startup code."""
        return self.instance is None and not self.registered_process.slot[LIFESPAN_SINCE] and self.exit_code is None

    def update_signs(self) -> ChildSigns:
        """Compute and remember how long the worker process has been silent, busy or idle."""
        # A leaving process is never idle, because it ends by itself.
        slot, now = self.registered_process.slot, boottime()
        running, is_stopped = slot[RUNNING_SINCE], processes.is_stopped(self.pid)
        if running and not is_stopped:
            self._busy_at = now
        # A process may get ready before the first look at it, while others are spawned.
        if not (self.is_ready and self._ready_at):
            self._ready_at = now
        ticks = slot[POLL_TICK] or self._ready_at, slot[SAVE_TICK] or self._ready_at
        if running and now - max(ticks) > HOLD_SECONDS:
            self._held_at = now
        # Silence counts from the end of a handler that held the interpreter, as the poller needs a moment to tick
        # again.
        since = self._busy_at if not running else 0.0
        silent, half_silent = now - max(*ticks, since), now - max(min(ticks), since)
        has_read = slot[READ_AT] > 0
        stuck = slot.count_hung_seconds(now)
        idle = (
            max(self._count_idle_seconds(slot.worked_at), stuck)
            if has_read and not self.registered_process.is_leaving
            else 0.0
        )
        self.last_signs = ChildSigns(
            silent, now - running if running else None, is_stopped, half_silent, idle, has_read, stuck
        )
        return self.last_signs

    def _count_idle_seconds(self, worked_at: float) -> float:
        # The process last worked at `worked_at`. The time of a handler that held the interpreter does not count,
        # because such a handler blocks the process.
        return boottime() - max(worked_at, self._held_at, self._ready_at) if self.is_ready else 0.0

    def read_vitals(self) -> ProcessVitals:
        """Return the health of the worker process at the last check. Any thread may call this."""
        # The supervisor made this check a quarter of a second ago.
        slot, last_signs = self.registered_process.slot, self.last_signs
        return ProcessVitals(
            pid=self.pid,
            is_ready=self.is_ready,
            silent_seconds=last_signs.silent_for if last_signs is not None else 0.0,
            handler_seconds=last_signs.handler_seconds if last_signs is not None else None,
            unread_seconds=self._count_idle_seconds(slot[READ_AT]) if last_signs is not None else 0.0,
            unsaved_seconds=self._count_idle_seconds(slot[SAVED_AT]) if last_signs is not None else 0.0,
            is_vouched=self.registered_process.is_vouched,
            is_trusted=slot.instance is not None and slot.is_trusted(),
            instance=slot.instance,
            partitions=int(slot[OWNED]),
            lifespan_seconds=slot.count_lifespan_seconds(boottime()),
        )

    def drain(self) -> None:
        """Ask the worker process to finish its handlers, release its partitions and end."""
        # A process that still loads its handlers is killed.
        self.registered_process.is_draining = True
        self.registered_process.slot[STOPPING] = 1.0
        # Such a process owns nothing, and gets no identity.
        if not (self.is_ready or self.registered_process.slot[LIFESPAN_SINCE]):
            self.is_unborn = True
            self._process.kill()

    def kill(self) -> None:
        """Kill the worker process at once, and remember that the supervisor did so."""
        self.was_killed = True
        self._process.kill()

    def join(self, timeout: float | None = None) -> None:
        """Wait for up to `timeout` seconds until the worker process has ended; None waits without limit."""
        self._process.join(timeout)

    def close(self) -> None:
        """Wait for the worker process to end, and free the operating system's resources of its handle."""
        self._process.join()
        self._process.close()


def _leave_deleted_folder() -> None:
    # A spawned process begins in the current folder and would fail if it is deleted, so a new empty one is used then.
    try:
        os.getcwd()
    except FileNotFoundError:
        # An empty folder, never "/", because the application's relative paths would then refer to the whole machine.
        os.chdir(tempfile.mkdtemp(prefix="partbox-"))
