"""A worker inside an application: the threads of a worker process, and one for its membership.

No supervisor stands behind it: a handler that blocks the interpreter delays its own heartbeats, none is killed for
running too long, and a crash takes the application down. While it neither reads nor saves, though its membership
reaches the database, its lease is left to end, and it joins again when it reads.

`async with` runs async handlers in the loop that enters it. Nothing else depends on that loop: the lease, reading and
saving have threads, so an application that computes delays handlers and loses nothing. Start and stop have a thread
too, for handlers must end in the loop meanwhile; it is waited for whatever happens to the task that enters or leaves.
"""

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
from partbox.observe.metrics.registry import with_recorders
from partbox.platform import boottime
from partbox.protocol.lease import IDLE_LEASES
from partbox.settings import Settings
from partbox.supervisor.membership import Membership, RegisteredProcess
from partbox.supervisor.purging import Purging
from partbox.worker.runners.event_loop import EventLoop
from partbox.worker.runners.loop_hosts import loop_factory
from partbox.worker.slot import Slot
from partbox.worker.worker import Worker

log = logging.getLogger("partbox.supervisor")

_LOOP_ENDED = (
    "the application has ended the event loop that runs the handlers, or cancelled all its tasks, without leaving "
    "`async with outbox.worker()`"
)
_NOT_RUNNING = {
    "new": "has not started: use `with outbox.worker() as worker:`, or call start()",
    "stopped": "was stopped: make a new one by outbox.worker()",
}


class EmbeddedWorker:
    """`with outbox.worker(): …`, `async with`, or `start()` and `stop()`. It starts once."""

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
        self._missing_handlers = handlers.missing_handler(
            subscription, settings
        )  # of what it has now: later handlers it does not know
        self._meters = meters
        self._meter = Meter(meters.layout) if meters is not None else None
        observers = Observers(with_recorders(handlers.observers, self._meter, settings.metrics_prefix, subscription))
        self._own_loop = own_loop
        self._loop = EventLoop(loop_factory(settings.event_loop))
        self._slot = Slot.local()
        self._pid = os.getpid()
        self._process = RegisteredProcess(self._slot, self._pid)
        self._membership = Membership(settings, subscription, dsn, observers)
        self._purging = Purging(settings, dsn, nodes=self._membership.nodes)
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
        """Join the cluster and deliver; a second call does nothing. PartboxError after a stop, or if it cannot.

        RegistrationError if its subscription had no handler when the worker was made. What the start of the lifespan
        raises passes through, and nothing runs then.
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
            self._membership.tick([self._process])
        except BaseException:
            self._membership.close()
            self._worker.leave_lifespan(time.monotonic() + self._settings.drain_timeout)
            raise
        if self._meters is not None and self._meter is not None:
            self._meters.join(self._meter)
        self._worker.start()
        self._thread.start()
        self._purging.start()
        self._state = "started"

    def stop(self) -> None:
        """Finish running handlers, leave the lifespan, release everything, leave the cluster. Stopping twice, or before
        a start, is fine. What the end of the lifespan raises passes through when all has ended.

        In a process that was forked meanwhile it does nothing: the worker runs in the one that started it.
        PartboxError in the event loop that runs its handlers.
        """
        if not self._is_running_here:
            self._state = "stopped"
            return
        self._refuse_to_block("stop()", "leave `async with`, or use `await asyncio.to_thread(worker.stop)`")
        self._state = "stopped"
        self._process.draining = True
        self._beat_asked.set()
        self._worker.stop()
        self._purging.stop()
        self._stopping.set()
        self._beat_asked.set()
        self._thread.join()
        try:
            if self._slot.instance is not None:
                self._membership.bury([self._process])
        except Error as error:
            text = "could not leave the cluster, the lease will end by itself: %s"
            log_event(log, "not_buried", text, error, instances=1)
        self._membership.close()
        if self._meters is not None and self._meter is not None:
            self._meters.retire(self._meter)
        if self._worker.lifespan.error is not None:
            raise self._worker.lifespan.error

    def wake(self) -> None:
        """Look for new records at once; nothing before the start and after the stop."""
        if self._is_running_here:
            self._worker.wake()

    def wait_until_empty(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds until no event is left but dead, discarded and scheduled ones; True then.

        A scheduled event is waited for if it is due within 2 s. False as soon as nothing that is left can run in time:
        its next attempt is later, it is behind a dead event, or the subscription is paused. It goes on waiting while
        the database cannot be reached. False at once where `enabled` is false. PartboxError unless the worker runs, and
        in the event loop that runs its handlers.
        """
        if self._pid != os.getpid():
            raise PartboxError(
                "this worker runs in the process that forked this one: make a new one by outbox.worker()"
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
            work, time_left = self._membership.outstanding(), until - time.monotonic()
            if work is not None and not work.can_progress(time_left):
                return work.is_done
            if time_left <= 0:
                return False
            self._stopping.wait(0.05)

    def _run_heartbeat(self) -> None:
        while not self._stopping.is_set():
            self._update_vouched(self._membership.heartbeat_streak.lasted_for(boottime()))
            self._beat_asked.wait(self._membership.try_tick([self._process]))
            self._beat_asked.clear()

    def _update_vouched(self, steady_seconds: float) -> None:
        """Renew the lease while the worker reads or saves, or a handler runs in it; one that has failed does not."""
        if self._loop.ended and self._state == "started" and self._worker.failure is None:
            self._worker.fail(PartboxError(_LOOP_ENDED))
        now = boottime()
        idle = min(steady_seconds, max(now - self._slot.worked_at, self._slot.hung_seconds(now)))
        failed = self._worker.failure is not None  # as it has said itself
        works = self._process.leaving or (idle < IDLE_LEASES * self._settings.lease and not failed)
        vouched = works or bool(self._worker.dispatcher.note_running())
        if self._process.vouched and not vouched and not failed:
            text = "the worker has neither read nor saved for %.1f s, or started nothing: its lease is left to end"
            log_event(log, "not_vouched", text, idle, subscription=self._membership.subscription, seconds=idle)
        self._process.vouched = vouched

    def __enter__(self) -> "EmbeddedWorker":
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    async def __aenter__(self) -> "EmbeddedWorker":
        if self._state == "new" and not self._own_loop:
            self._loop.adopt(_running_loop(), self._worker.engine.scheduler.stop)
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


def _running_loop() -> asyncio.AbstractEventLoop:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise PartboxError(
            "no event loop of asyncio runs here, which async handlers need: enter `with outbox.worker():` in a thread"
        ) from None


async def run_in_thread(work: Callable[[], None], cancelled: Callable[[], None] | None = None) -> None:
    """Run it in a thread of its own: those of the loop's executor may all be taken, or gone at the end of the program.

    Whoever cancels this has `cancelled` called, and waits all the same until the work has ended: what the work uses is
    there until then.
    """
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
        with suppress(RuntimeError):  # the loop was closed: nobody waits any more
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
        done.exception()
        raise cancelling
    done.result()
