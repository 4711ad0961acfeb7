"""The program of a worker process: it works until the process is stopped, its parent is gone, or the worker fails."""

import gc
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError
from dataclasses import dataclass
from typing import Any

from partbox import standard_streams
from partbox.codecs import Codecs
from partbox.errors import PartboxError, SchemaError, SettingsError
from partbox.handlers import Handlers
from partbox.hosts import refuse_green_threads
from partbox.observe import Observers
from partbox.observe.logs import database as databases
from partbox.observe.logs.log_event import log_event
from partbox.observe.logs.setup import configure_logging, take_strays_text
from partbox.observe.metrics.meter import Layout, Meter
from partbox.observe.metrics.registry import add_recorders
from partbox.platform import STOP_SIGNALS, boottime, die_before_parent
from partbox.settings import Settings
from partbox.supervisor.exit_codes import FATAL, OVERDUE, UNFIT
from partbox.supervisor.job_pickling import PickledJob
from partbox.worker.slot import DEADLINE, LIFESPAN_SINCE, STOPPING, Slot
from partbox.worker.worker import Worker

log = logging.getLogger("partbox.supervisor")

PARENT_CHECK_INTERVAL = 0.2  # seconds
# Signals that reach the whole process group. The process ignores them, as its supervisor decides about their meaning.
GROUP_SIGNALS = {*STOP_SIGNALS} - {signal.SIGTERM}
# A worker allocates millions of short-lived objects without cycles. Searching them for cycles costs as much as
# everything else that a worker does with an event.
GC_THRESHOLD = (100_000, 20, 100)
# Seconds after which the event loop of async handlers gets the interpreter back from a thread that reads or saves. With
# Python's 5 ms, handlers that wait 1 ms, 100 at once, reached 25,000 events a second; with this value, 43,000.
SWITCH_INTERVAL = 0.0005


# The signal mask of a thread before it forked.
_signal_mask = threading.local()


@dataclass(slots=True)
class Job:
    """The parameters that a supervisor passes to a worker process, such as settings, handlers and the subscription."""

    # Dill pickles a job, including handlers defined in `__main__`.

    settings: Settings
    load_handlers: Callable[[], tuple[Handlers, Codecs]]
    dsn: Callable[[], str]
    subscription: str
    concurrency: int
    log_level: int
    dead_to: str | None = None  # a URL to which dead events are sent, beside the hook
    layout: Layout | None = None  # of the meter, if there is one
    database: str = ""  # its name among several


def main(pickled: PickledJob, times: Any, ids: Any, cells: Any, index: int, parent: int) -> None:
    """Run a worker process that delivers events until it is stopped; does not return."""
    # The process uses slot `index` of the shared memory. `parent`: the supervisor's pid.
    die_before_parent()
    standard_streams.repair_streams()
    slot = Slot(times, ids, index)
    for number in GROUP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: slot.__setitem__(STOPPING, 1.0))
    # The supervisor has blocked signals during the spawn, and the mask is inherited.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
    os.register_at_fork(before=_hold_signals, after_in_parent=_release_signals, after_in_child=_forget_signals)
    # From here on code of the application is imported.
    job = pickled.unpickle_job()
    databases.set_log_database(job.database)
    configure_logging(job.settings.log_format, job.log_level)
    # The supervisor's process has logged this text already.
    take_strays_text()
    code = _run_worker(job, slot, cells, parent)
    # The interpreter would wait for threads that the handler has started.
    if code == OVERDUE:
        logging.shutdown()
        os._exit(code)
    sys.exit(code)


def _hold_signals() -> None:
    # Stop signals are blocked in this thread before a handler forks, until the forked child handles them in its own
    # way.
    _signal_mask.before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)


def _release_signals() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _signal_mask.before)


def _forget_signals() -> None:
    # The default actions of stop signals are restored in a process that a handler has forked.
    # A signal to that process must not stop the worker.
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    _release_signals()


def _run_worker(job: Job, slot: Slot, cells: Any, parent: int) -> int:
    handlers, codecs = job.load_handlers()
    # Code of the application may have closed the streams. A connection must not get the number of a standard stream.
    standard_streams.reopen_streams()
    try:
        # The application's module may have patched this process alone.
        refuse_green_threads()
    except PartboxError as error:
        log_event(log, "worker_failed", "the worker ends: %s", error, subscription=job.subscription)
        return FATAL
    if (missing_handler := handlers.describe_missing_handler(job.subscription, job.settings)) is not None:
        log_event(log, "worker_failed", "the worker ends: %s", missing_handler, subscription=job.subscription)
        return FATAL
    meter = None if job.layout is None else Meter(job.layout, cells)
    worker = Worker(
        job.settings,
        handlers,
        codecs,
        slot,
        subscription=job.subscription,
        concurrency=job.concurrency,
        dsn=job.dsn,
        is_replaceable=True,
        observers=Observers(add_recorders(handlers.observers, meter, job.settings.metrics_prefix, job.subscription)),
        dead_to=job.dead_to,
    )
    try:
        _enter_lifespan(worker, slot)
    # The application raised the error, and another try may succeed.
    except BaseException as error:
        if slot[STOPPING] and isinstance(error, CancelledError):
            return 0
        worker.lifespan.log_error(error, "so nothing is delivered by this process, which ends")
        return 1
    _tune_interpreter(is_async=worker.dispatcher.is_async)
    try:
        return _deliver(worker, job, slot, parent)
    finally:
        # If a failure ended the worker, the lifespan has not been left yet.
        worker.lifespan.leave(job.settings.drain_timeout)
        if worker.lifespan.error is not None:
            worker.lifespan.log_error(worker.lifespan.error, "when it was left")


def _enter_lifespan(worker: Worker, slot: Slot) -> None:
    # This runs the startup code of the application's lifespan.
    # `CancelledError` is raised if a stop came meanwhile, which cancels an async lifespan.
    if not worker.lifespan.exists:
        return
    slot[LIFESPAN_SINCE] = boottime()
    entered = threading.Event()

    def watch_for_stop() -> None:
        while not entered.wait(PARENT_CHECK_INTERVAL):
            if slot[STOPPING]:
                worker.lifespan.give_up()
                return

    threading.Thread(target=watch_for_stop, name="partbox-start", daemon=True).start()
    try:
        worker.lifespan.enter()
    finally:
        entered.set()


def _deliver(worker: Worker, job: Job, slot: Slot, parent: int) -> int:
    # The worker ends when it is stopped, fails or hangs, or its supervisor is gone. The result is the exit code of the
    # process.
    worker.start()
    while not (slot[STOPPING] or worker.is_stuck) and worker.failure is None and os.getppid() == parent:
        time.sleep(PARENT_CHECK_INTERVAL)
        # The poller does not do this while it cannot connect.
        worker.dispatcher.note_running()
    if isinstance(worker.failure, SchemaError):
        # A deploy may have made the schema unfit. A stopping process is marked as leaving, so its running events are
        # not accused.
        slot[STOPPING] = 1.0
        return UNFIT
    if worker.failure is not None:
        return FATAL if isinstance(worker.failure, SettingsError) else 1
    if worker.is_stuck:
        worker.abandon_hung()
        return OVERDUE
    if os.getppid() == parent:
        worker.stop()
    else:
        log_event(log, "orphaned", "the supervisor is gone: releasing partitions while the lease holds")
        # No supervisor renews the lease any more, so the worker must stop before the lease ends.
        worker.stop(max(0.0, min(job.settings.drain_timeout, slot[DEADLINE] - boottime())))
    return 0


def _tune_interpreter(*, is_async: bool) -> None:
    # `is_async`: no threads run handlers.
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLD)
    if is_async:
        sys.setswitchinterval(SWITCH_INTERVAL)
