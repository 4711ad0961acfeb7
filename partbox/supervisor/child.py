"""A worker process, as its supervisor sees it and as it sees itself."""

import gc
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from partbox.codecs import Codecs
from partbox.errors import SchemaError
from partbox.handlers import Handlers
from partbox.observe import Observers
from partbox.observe import database as databases
from partbox.observe.logs import configure
from partbox.observe.meter import Layout, Meter
from partbox.observe.node import Process
from partbox.observe.recorder import Recorder
from partbox.observe.strays import pass_over
from partbox.observe.telling import tell
from partbox.rules.lease import Signs
from partbox.settings import Settings
from partbox.sinks.dead import letterbox_of
from partbox.supervisor.ward import Ward
from partbox.worker.delivering.dead_letters import both
from partbox.worker.owning.slot import (
    DEADLINE,
    OWNED,
    POLL_TICK,
    READ_AT,
    RUNNING_SINCE,
    SAVE_TICK,
    SAVED_AT,
    STOPPING,
    TIMEOUT,
    Slot,
    boottime,
)
from partbox.worker.worker import Worker

log = logging.getLogger("partbox.supervisor")

FATAL = 3  # exit code: another try would fail the same way
OVERDUE = 4  # exit code: a handler was over its time and would not end
UNFIT = 5  # exit code: the database is not as this version needs it
PARENT_CHECK = 0.1
HELD = 1.0  # seconds of silence of both threads, which tick four times a second, while a handler runs: it holds them up
OURS = {signal.SIGTERM, signal.SIGINT}
# A worker allocates millions of short-lived objects that hold no cycles; looking for cycles among them costs as much
# as everything else it does with an event.
GC_THRESHOLD = (100_000, 20, 100)


_mask = threading.local()  # of signals, of a thread that forks


@dataclass(slots=True)
class Job:
    """What a worker process is to do; it travels to the process by dill, handlers of `__main__` included."""

    settings: Settings
    load: Callable[[], tuple[Handlers, Codecs]]
    dsn: Callable[[], str]
    subscription: str
    concurrency: int
    log_level: int
    dead_to: str | None = None  # a URL where dead events are sent, beside the hook
    layout: Layout | None = None  # of the meter, if there is one
    database: str = ""  # its name among several


class Child:
    """A spawned worker process."""

    def __init__(self, context: Any, job: Job, memory: tuple[Any, Any], index: int) -> None:
        self.index = index
        self.meter = Meter.shared(job.layout, context) if job.layout is not None else None
        cells = self.meter and self.meter.cells
        slot = Slot(*memory, index)
        slot.clear()
        self._process = context.Process(
            target=main, args=(job, *memory, cells, index, os.getpid()), name=f"partbox-worker-{index}", daemon=False
        )
        # Ctrl-C reaches the whole process group. The supervisor decides what it means; until the child ignores it by
        # itself it is held back, from birth.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        self.started_at = time.monotonic()
        self.killed = False
        self._remember(slot, self._process.pid)

    def _remember(self, slot: Slot, pid: int) -> None:
        self.ward = Ward(slot, pid)
        self.seen: Signs | None = None  # what the supervisor saw when it looked last
        self._busy_at = 0.0  # when it was last seen silent for the good reason that a handler runs
        self._held_at = 0.0  # when both of its threads were last seen silent for that reason
        self._ready_at = 0.0

    @property
    def pid(self) -> int:
        return self.ward.pid

    @property
    def instance(self) -> UUID | None:
        return self.ward.slot.instance

    @property
    def sentinel(self) -> int:
        """Ready to read when the process has ended."""
        return int(self._process.sentinel)

    @property
    def exit_code(self) -> int | None:
        return self._process.exitcode  # type: ignore[no-any-return]

    @property
    def handler_timeout(self) -> float:
        """For how long its handlers may run (seconds), 0.0 where some have no timeout."""
        return self.ward.slot[TIMEOUT]

    @property
    def ready(self) -> bool:
        """It has begun to work, and may get partitions."""
        return self.ward.slot[POLL_TICK] > 0 or self.ward.slot[SAVE_TICK] > 0

    def signs(self) -> Signs:
        """Its signs of life."""
        slot, now = self.ward.slot, boottime()
        running, stopped = slot[RUNNING_SINCE], _stopped(self.pid)
        if running and not stopped:
            self._busy_at = now
        if not self.ready:
            self._ready_at = now
        ticks = slot[POLL_TICK] or self._ready_at, slot[SAVE_TICK] or self._ready_at
        if running and now - max(ticks) > HELD:
            self._held_at = now
        # Silence counts from the end of a handler that held the interpreter: the poller needs a moment to tick again.
        since = self._busy_at if not running else 0.0
        silent, half = now - max(*ticks, since), now - max(min(ticks), since)
        self.seen = Signs(silent, now - running if running else None, stopped, half)
        return self.seen

    def _idle(self, field: int) -> float:
        """Seconds since it has read, or saved, but for the time in which a handler held the interpreter."""
        return boottime() - max(self.ward.slot[field], self._held_at, self._ready_at) if self.ready else 0.0

    def process(self) -> Process:
        """As it was when its supervisor looked last, a quarter of a second ago. Any thread."""
        slot, seen = self.ward.slot, self.seen
        return Process(
            pid=self.pid,
            ready=self.ready,
            silent=seen.silent if seen is not None else 0.0,
            handler=seen.handler if seen is not None else None,
            unread=self._idle(READ_AT) if seen is not None else 0.0,
            unsaved=self._idle(SAVED_AT) if seen is not None else 0.0,
            vouched=self.ward.vouched,
            trusted=slot.instance is not None and slot.trusted(),
            instance=slot.instance,
            partitions=int(slot[OWNED]),
        )

    def drain(self) -> None:
        """Ask it to release everything and to end."""
        self.ward.draining = True
        self.ward.slot[STOPPING] = 1.0

    def kill(self) -> None:
        self.killed = True
        self._process.kill()

    def join(self, timeout: float | None = None) -> None:
        self._process.join(timeout)

    def close(self) -> None:
        """Forget the ended process."""
        self._process.join()
        self._process.close()


def main(job: Job, times: Any, ids: Any, cells: Any, index: int, parent: int) -> None:
    """The process: works until it is told to stop, its parent is gone, or it fails."""
    slot = Slot(times, ids, index)
    databases.work_for(job.database)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    signal.signal(signal.SIGTERM, lambda *_: slot.__setitem__(STOPPING, 1.0))
    os.register_at_fork(before=_hold_signals, after_in_parent=_release_signals, after_in_child=_forget_signals)
    configure(job.settings.log_format, job.log_level)
    pass_over()  # the supervisor's process has said it
    code = _work(job, slot, cells, parent)
    if code == OVERDUE:
        logging.shutdown()
        os._exit(code)  # the interpreter would wait for threads that the handler has started
    sys.exit(code)


def _hold_signals() -> None:
    """Before a handler forks: what is sent to the child at once waits until it knows what to do with it."""
    _mask.before = signal.pthread_sigmask(signal.SIG_BLOCK, OURS)


def _release_signals() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _mask.before)


def _forget_signals() -> None:
    """In a process that a handler forks: what ends it is not to stop the worker, whose memory it shares."""
    for number in OURS:
        signal.signal(number, signal.SIG_DFL)
    _release_signals()


def _work(job: Job, slot: Slot, cells: Any, parent: int) -> int:
    handlers, codecs = job.load()
    if (lack := handlers.lack(job.subscription, job.settings)) is not None:
        tell(log, "worker_failed", "the worker ends: %s", lack, subscription=job.subscription)
        return FATAL
    if job.dead_to is not None:
        handlers.dead_letter = both(handlers.dead_letter, letterbox_of(job.dead_to))
    worker = Worker(
        job.settings,
        handlers,
        codecs,
        slot,
        subscription=job.subscription,
        concurrency=job.concurrency,
        dsn=job.dsn,
        isolates=True,
        observers=Observers([*handlers.observers, *_recorders(job, cells)]),
    )
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLD)
    worker.start()
    while not slot[STOPPING] and not worker.timeouts.stuck and worker.failure is None and os.getppid() == parent:
        time.sleep(PARENT_CHECK)
    if isinstance(worker.failure, SchemaError):
        slot[STOPPING] = 1.0  # a deploy may bring that about: what runs has no part in it
        return UNFIT
    if worker.failure is not None:
        return 1
    if worker.timeouts.stuck:
        worker.leave_stuck()
        return OVERDUE
    if os.getppid() == parent:
        worker.stop()
    else:
        tell(log, "orphaned", "the supervisor is gone: releasing what can be released while the lease holds")
        worker.stop(max(0.0, min(job.settings.drain_timeout, slot[DEADLINE] - boottime())))
    return 0


def _recorders(job: Job, cells: Any) -> list[Recorder]:
    return [Recorder(Meter(job.layout, cells))] if job.layout is not None else []


def _stopped(pid: int) -> bool:
    """Does the kernel say that it is stopped (SIGSTOP, a debugger)?"""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:
            return stat.read().rpartition(")")[2].split()[0] in "Tt"
    except (OSError, IndexError):
        return False
