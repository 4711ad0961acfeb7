"""A worker inside an application: the threads of a worker process, and a thread for its membership.

No supervisor stands behind an embedded worker. A handler that blocks the interpreter delays the worker's own
heartbeats, no handler is killed for running too long, and a crash takes the application down.

`async with` runs async handlers in the loop that enters it. Nothing else depends on that loop: the lease, reading and
saving have threads, so an application that computes delays handlers and loses nothing."""

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context

from psycopg import Error

from partbox.codecs import Codecs
from partbox.errors import PartboxError, RegistrationError
from partbox.handlers import Handlers
from partbox.hosts import refuse_green_threads, warn_of_uwsgi
from partbox.observe import Observers
from partbox.observe.logs.log_event import log_event
from partbox.observe.metrics.meter import Meter, Meters
from partbox.observe.metrics.registry import add_recorders
from partbox.platform import boottime
from partbox.protocol.lease import IDLE_LEASES
from partbox.settings import Settings
from partbox.supervisor.membership import Membership, RegisteredProcess
from partbox.supervisor.purging import Purging
from partbox.worker.runners.event_loop import EventLoop
from partbox.worker.runners.loop_hosts import find_loop_factory
from partbox.worker.slot import Slot
from partbox.worker.worker import Worker

log = logging.getLogger("partbox.supervisor")

_LOOP_ENDED = (
    "the application has ended the event loop that runs the handlers, or cancelled all its tasks, without leaving "
    "`async with outbox.worker()`"
)
_NOT_RUNNING = {
    "new": "has not started: use `with outbox.worker() as worker:`, or call start()",
    "stopped": "was stopped: create a new one with outbox.worker()",
}


class EmbeddedWorker:
    """A worker that delivers events in threads of the application's own process.

    Use it by `with`, `async with`, or `start()` and `stop()`. It starts once."""

    def __init__(  # noqa: PLR0913  each comes from elsewhere
        self,
        settings: Settings,
        handlers: Handlers,
        codecs: Codecs,
        dsn: Callable[[], str],
        *,
        subscription: str,
        concurrency: int,
        own_loop: bool = True,
        meters: Meters | None = None,
    ) -> None:
        self._settings = settings
        # Handlers that are registered later do not count, as the worker does not know them.
        self._missing_handlers = handlers.describe_missing_handler(subscription, settings)
        self._meters = meters
        self._meter = Meter(meters.layout) if meters is not None else None
        observers = Observers(add_recorders(handlers.observers, self._meter, settings.metrics_prefix, subscription))
        self._uses_own_loop = own_loop
        self._loop = EventLoop(find_loop_factory(settings.event_loop))
        self._slot = Slot.create_local()
        self._pid = os.getpid()
        self._registered_process = RegisteredProcess(self._slot, self._pid)
        self._membership = Membership(settings, subscription, dsn, observers)
        self._purging = Purging(settings, dsn, nodes=self._membership.count_nodes)
        self._worker = Worker(
            settings,
            handlers,
            codecs,
            self._slot,
            subscription=subscription,
            concurrency=concurrency,
            dsn=dsn,
            is_replaceable=False,
            observers=observers,
            loop=self._loop,
        )
        self._stopping = threading.Event()
        self._beat_asked = threading.Event()
        self._state = "new"
        self._thread = threading.Thread(target=self._run_heartbeat, name="partbox-membership", daemon=True)

    @property
    def _is_running_here(self) -> bool:
        return self._state == "started" and self._pid == os.getpid()

    def start(self) -> None:
        """Register this worker in the database and begin to deliver events.

        A second call does nothing. Raises `PartboxError` after a stop or if it cannot start, `RegistrationError` if its
        subscription had no handler when it was made. An error of the lifespan's start is passed on; nothing runs then.
        """
        if self._state in ("started", "disabled"):
            return
        if self._state == "stopped":
            raise PartboxError(f"this worker {_NOT_RUNNING[self._state]}")
        self._state = "stopped"
        if not self._settings.enabled:
            log_event(log, "disabled", "enabled is false: nothing is delivered by this process")
            self._state = "disabled"
            return
        if self._missing_handlers is not None:
            raise RegistrationError(self._missing_handlers)
        refuse_green_threads()
        warn_of_uwsgi(self._membership.subscription)
        self._worker.lifespan.enter()
        try:
            self._membership.open()
            self._membership.tick([self._registered_process])
        except BaseException:
            self._membership.close()
            self._worker.leave_lifespan(time.monotonic() + self._settings.drain_timeout)
            raise
        if self._meters is not None and self._meter is not None:
            self._meters.add_meter(self._meter)
        self._worker.start()
        self._thread.start()
        self._purging.start()
        self._state = "started"

    def stop(self) -> None:
        """Stop delivering events, after running handlers have finished, and remove this worker from the database.

        All partitions are released, and the lifespan and the cluster are left. Stopping twice, or before a start, is
        fine. Does nothing in a process that was forked meanwhile, because the worker runs in the process that started
        it. Raises `PartboxError` in the event loop that runs the handlers. Passes on an error of the lifespan's end
        when everything has ended."""
        if not self._is_running_here:
            self._state = "stopped"
            return
        self._refuse_to_block("stop()", "leave `async with`, or use `await asyncio.to_thread(worker.stop)`")
        self._state = "stopped"
        self._registered_process.is_draining = True
        # The next heartbeat tells other nodes that this process is leaving, so that they plan without it.
        self._beat_asked.set()
        self._worker.stop()
        self._purging.stop()
        self._stopping.set()
        self._beat_asked.set()
        self._thread.join()
        try:
            if self._slot.instance is not None:
                self._membership.bury([self._registered_process])
        except Error as error:
            text = "could not leave the cluster, the lease will end by itself: %s"
            log_event(log, "not_buried", text, error, instances=1)
        self._membership.close()
        if self._meters is not None and self._meter is not None:
            self._meters.retire_meter(self._meter)
        if self._worker.lifespan.error is not None:
            raise self._worker.lifespan.error

    def wake(self) -> None:
        """Have the worker look for new events at once, without waiting for its next poll.

        A call before the start or after the stop does nothing."""
        if self._is_running_here:
            self._worker.wake()

    def wait_until_empty(self, timeout: float) -> bool:
        """Wait for up to `timeout` seconds until all events are delivered. Return True if so.

        Dead, discarded and scheduled events are not counted, but a scheduled event is waited for if it is due within 2
        s. Returns False as soon as none of the remaining events can run in time: its next attempt is later, it is
        behind a dead event, or the subscription is paused. Returns False at once if `enabled` is false. Waits on while
        the database cannot be reached. Raises `PartboxError` unless the worker runs, and in the event loop that runs
        its handlers. Raises the worker's error if the worker has failed."""
        if self._pid != os.getpid():
            raise PartboxError(
                "this worker runs in the process that forked this one: create a new one with outbox.worker()"
            )
        if self._state == "disabled":
            return False
        if self._state != "started":
            raise PartboxError(f"this worker {_NOT_RUNNING[self._state]}")
        self._refuse_to_block("wait_until_empty()", "use `await asyncio.to_thread(worker.wait_until_empty, timeout)`")
        until = time.monotonic() + timeout
        while True:
            if self._worker.failure is not None:
                raise self._worker.failure
            work, time_left = self._membership.find_outstanding_work(), until - time.monotonic()
            if work is not None and not work.can_progress(time_left):
                return work.is_done
            if time_left <= 0:
                return False
            self._stopping.wait(0.05)

    def _run_heartbeat(self) -> None:
        while not self._stopping.is_set():
            self._update_vouched(self._membership.heartbeat_streak.measure_length(boottime()))
            self._beat_asked.wait(self._membership.try_tick([self._registered_process]))
            self._beat_asked.clear()

    def _update_vouched(self, steady_seconds: float) -> None:
        # The lease of this worker is renewed only while the worker reads or saves events, or a handler runs. If it
        # neither reads nor saves although its membership reaches the database, its lease is left to end, and the worker
        # joins again when it reads.
        if self._loop.has_ended and self._state == "started" and self._worker.failure is None:
            self._worker.mark_failed(PartboxError(_LOOP_ENDED))
        now = boottime()
        # The worker is idle only for the time in which the database was reached without a break.
        idle = min(steady_seconds, max(now - self._slot.worked_at, self._slot.count_hung_seconds(now)))
        # A worker that has failed has logged that itself.
        failed = self._worker.failure is not None
        works = self._registered_process.is_leaving or (idle < IDLE_LEASES * self._settings.lease and not failed)
        vouched = works or bool(self._worker.dispatcher.note_running())
        if self._registered_process.is_vouched and not vouched and not failed:
            text = (
                "the worker has neither read nor saved events for %.1f s, or started no handler: "
                "its lease is not renewed"
            )
            log_event(log, "not_vouched", text, idle, subscription=self._membership.subscription, seconds=idle)
        self._registered_process.is_vouched = vouched

    def __enter__(self) -> "EmbeddedWorker":
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    async def __aenter__(self) -> "EmbeddedWorker":
        if self._state == "new" and not self._uses_own_loop:
            self._loop.adopt_loop(_require_running_loop(), self._worker.engine.scheduler.stop)
        try:
            await run_in_thread(self.start, self._worker.lifespan.give_up)
        except asyncio.CancelledError:
            self._worker.abandon_running()
            await run_in_thread(self.stop)
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        await run_in_thread(self.stop, self._worker.abandon_running)

    def _refuse_to_block(self, what: str, remedy: str) -> None:
        if self._loop.application_loop is not None and asyncio._get_running_loop() is self._loop.application_loop:
            raise PartboxError(f"{what} would block the event loop that runs this worker's handlers: {remedy}")


def _require_running_loop() -> asyncio.AbstractEventLoop:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise PartboxError(
            "no asyncio event loop runs here, and async handlers need one: enter `with outbox.worker():` in a thread"
        ) from None


async def run_in_thread(work: Callable[[], None], cancelled: Callable[[], None] | None = None) -> None:
    """Run `work` in a new thread and await its end, even if the waiting task is cancelled."""
    # If the waiting task is cancelled, `cancelled` is called, and the task waits all the same, because `work` uses its
    # objects.
    # The executor's threads may all be busy or gone. Start and stop of a worker run in a thread, because handlers must
    # end in the loop meanwhile.
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def finish(error: BaseException | None) -> None:
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)

    def run() -> None:
        error = None
        try:
            work()
        except BaseException as raised:
            error = raised
        # The loop was closed, so no task waits any more.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(finish, error)

    threading.Thread(target=copy_context().run, args=(run,), name="partbox-embedded", daemon=True).start()
    cancelling: asyncio.CancelledError | None = None
    while not done.done():
        try:
            await asyncio.wait([done])
        except asyncio.CancelledError as error:
            cancelling = error
            if cancelled is not None:
                cancelled()
    if cancelling is not None:
        # Retrieve the error, so that asyncio does not log it as never retrieved.
        done.exception()
        raise cancelling
    done.result()
