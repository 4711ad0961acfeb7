"""The worker processes of one node: spawned, watched, drained, and replaced when they die."""

import logging
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from multiprocess import get_context

from partbox import standard_streams
from partbox.cgroup import usable_processors
from partbox.errors import PartboxError
from partbox.observe.logs.log_event import log_event
from partbox.observe.metrics.meter import Meters
from partbox.protocol.lease import ChildSigns, Patience, should_kill, should_renew_lease
from partbox.supervisor.child import Job
from partbox.supervisor.membership import RegisteredProcess
from partbox.supervisor.restart_backoff import CRASH_LOOP, RECENT_SECONDS, RestartBackoff
from partbox.supervisor.worker_handle import WorkerHandle
from partbox.text.wording import describe_exit, format_count
from partbox.worker.slot import LIFESPAN_SINCE, allocate_shared

log = logging.getLogger("partbox.supervisor")

MAX_PROCESSES = 256  # processes of one node; more than partitions could not all own one
HANDLER_PATIENCE = 300.0  # seconds
STARTUP = 30.0  # seconds in which a process is expected to connect


class WorkerPool:
    """A pool that spawns, watches, stops and replaces the worker processes of one node.

    Any thread may call `list_handles`, and signal handlers may call `kill`."""

    def __init__(self, job: Job, wanted: int, meters: Meters | None) -> None:
        self.scale(wanted)
        standard_streams.reopen_streams()
        self._job = job
        self._log = partial(log_event, log, subscription=job.subscription)
        self._meters = meters
        self._context = get_context("spawn")
        self._memory = allocate_shared(self._context, MAX_PROCESSES)
        self._handles: dict[int, WorkerHandle] = {}
        self._lock = threading.Lock()
        self._spawn_at = 0.0
        # More starts at once would take turns on the processors, and all of them would be late.
        self._starts_at_once = usable_processors()
        self.backoff = RestartBackoff()

    def scale(self, wanted: int) -> None:
        """Set the wanted number of worker processes. Raises `PartboxError` unless it is from 1 to 256."""
        # The next `adjust_count` starts or ends some.
        if not 1 <= wanted <= MAX_PROCESSES:
            raise PartboxError(f"processes must be from 1 to {MAX_PROCESSES}, not {wanted}")
        self.wanted_count = wanted

    def list_handles(self) -> list[WorkerHandle]:
        """Return the handles of all worker processes of this node. Any thread may call this."""
        with self._lock:
            return list(self._handles.values())

    def __len__(self) -> int:
        return len(self._handles)

    @property
    def sentinels(self) -> list[int]:
        """The file descriptors that become readable when worker processes end, one for each process."""
        return [handle.sentinel for handle in self._handles.values()]

    @property
    def is_starting(self) -> bool:
        """True if a recently started worker process has no instance id yet, and may be registered at any moment."""
        since = time.monotonic() - STARTUP
        return any(each.instance is None and each.started_at > since for each in self._handles.values())

    @property
    def has_arriving_process(self) -> bool:
        """True if a worker process is ready and waits to be registered in the database."""
        return any(
            handle.instance is None and handle.registered_process.is_vouched for handle in self._handles.values()
        )

    def list_living(self) -> list[RegisteredProcess]:
        """Return the worker processes that either work or run the application's startup code (lifespan)."""
        # Processes that have ended are left out.
        begun = (
            each for each in self._handles.values() if each.is_ready or each.registered_process.slot[LIFESPAN_SINCE]
        )
        return [handle.registered_process for handle in begun if handle.exit_code is None]

    def list_ended(self) -> list[WorkerHandle]:
        """Return the worker processes that have ended and were not removed from the pool yet."""
        return [handle for handle in self._handles.values() if handle.exit_code is not None]

    def adjust_count(self, now: float) -> bool:
        """Start or end worker processes until there are as many as wanted. Return True if any were asked to end."""
        # Missing processes are spawned, a few at a time, or the youngest are drained.
        staying = [handle for handle in self._handles.values() if not handle.registered_process.is_draining]
        if len(staying) < self.wanted_count and now >= self._spawn_at:
            starting = sum(handle.is_starting and handle.started_at > now - STARTUP for handle in staying)
            self._spawn(now, min(self.wanted_count - len(staying), self._starts_at_once - starting))
        staying.sort(key=lambda handle: handle.started_at)
        return self._drain(staying[self.wanted_count :])

    def drain(self) -> bool:
        """Ask all worker processes to finish and end. Return True if any were not asked before."""
        return self._drain(list(self._handles.values()))

    def _drain(self, handles: Sequence[WorkerHandle]) -> bool:
        undrained = [handle for handle in handles if not handle.registered_process.is_draining]
        for handle in undrained:
            handle.drain()
        return bool(undrained)

    def _spawn(self, now: float, count: int) -> None:
        # If the machine allows fewer than `count` processes, the others follow later.
        free = [index for index in range(MAX_PROCESSES) if index not in self._handles]
        try:
            for index in free[: max(0, count)]:
                handle = WorkerHandle(self._context, self._job, self._memory, index)
                with self._lock:
                    self._handles[index] = handle
                if self._meters is not None and handle.meter is not None:
                    self._meters.add_meter(handle.meter)
        except OSError as error:
            pause = self.backoff.next_pause()
            self._spawn_at = now + pause
            text = "cannot start a process, retrying in %.1f s; meanwhile %d processes run: %s"
            self._log("not_spawned", text, pause, len(self._handles), error, seconds=pause)

    def check_signs(self, steady: float = 0.0) -> None:
        """Confirm healthy worker processes, so that their leases are renewed, and kill silent or idle processes."""
        # They are killed if they are silent or idle for too long.
        # A confirmed process is vouched for, so that its lease is renewed. A silent process gives no signs of life.
        # Idle time counts only while this node has reached the database without a break, for `steady` seconds.
        settings = self._job.settings
        for handle in self._handles.values():
            signs = handle.update_signs()
            signs = replace(signs, idle_for=min(signs.idle_for, steady))
            patience = Patience(settings.lease, handle.handler_timeout or HANDLER_PATIENCE, settings.drain_timeout)
            handle.registered_process.is_vouched = should_renew_lease(signs, patience)
            if should_kill(signs, patience) and not handle.was_killed:
                self._log_killed(handle, signs)
                handle.kill()

    def _log_killed(self, handle: WorkerHandle, signs: ChildSigns) -> None:
        if signs.silent_for < signs.stuck_for:
            name, seconds = "idle", signs.stuck_for
            text = (
                "process %d has started no handler for %.1f s, though events wait and none runs: other code of the "
                "application does not return, and the process is killed and replaced"
            )
        elif signs.silent_for < signs.idle_for:
            name, seconds = "idle", signs.idle_for
            text = (
                "process %d has neither read nor saved for %.1f s, though its node reaches the database: it is killed "
                "and replaced"
            )
        else:
            name, seconds = "silent", signs.silent_for
            text = "process %d shows no life for %.1f s and is killed and replaced"
        self._log(name, text, handle.pid, seconds, worker_pid=handle.pid, seconds=seconds)

    def note_crash(self, handle: WorkerHandle) -> None:
        """Log and count the unexpected death of a worker process, and plan its replacement."""
        code, now = handle.exit_code, time.monotonic()
        text = "process %d %s; its partitions go to others and it is replaced"
        self._log("crash", text, handle.pid, describe_exit(code), worker_pid=handle.pid, exit_code=code)
        if self._meters is not None:
            self._meters.own_meter.add("process_restarts_total")
        self._spawn_at = now + self.backoff.note_death(now, now - handle.started_at)
        if (deaths := self.backoff.count_recent(now)) >= CRASH_LOOP:
            text = "%s died within %g s: look at the first of their errors"
            died = format_count(deaths, "process")
            self._log("crash_loop", text, died, RECENT_SECONDS, deaths=deaths, seconds=RECENT_SECONDS)

    def remove(self, handle: WorkerHandle) -> None:
        """Remove a worker process that has ended from the pool, and keep its metrics counters."""
        with self._lock:
            del self._handles[handle.index]
        self._close_handle(handle)

    def kill(self) -> None:
        """Kill all worker processes at once. Takes no lock."""
        # A signal handler may have interrupted the holder of a lock.
        for handle in self._handles.copy().values():
            # The process has ended, and is removed.
            with suppress(ValueError):
                handle.kill()

    def close(self) -> None:
        """Kill all worker processes of the pool, and wait until they have ended."""
        for handle in self._handles.values():
            handle.kill()
            self._close_handle(handle)

    def _close_handle(self, handle: WorkerHandle) -> None:
        handle.close()
        if self._meters is not None and handle.meter is not None:
            self._meters.retire_meter(handle.meter)
