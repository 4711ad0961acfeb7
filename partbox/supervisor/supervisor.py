"""The supervisor of one node: its start, its stop and its state. Signal handlers may call `stop` and `kill`, so these
methods take no lock."""

import logging
import os
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from partbox.db.delivery.outstanding import UnfinishedEvents
from partbox.errors import PartboxError
from partbox.handlers import Handlers
from partbox.hosts import refuse_green_threads
from partbox.observe import Observers
from partbox.observe.health.vitals import SupervisorVitals
from partbox.observe.logs.database import log_for_database
from partbox.observe.logs.log_event import log_event
from partbox.observe.metrics.meter import Meters
from partbox.observe.metrics.registry import add_recorders
from partbox.protocol.outstanding import OutstandingWork
from partbox.supervisor.child import Job
from partbox.supervisor.database_retry import DatabaseRetry
from partbox.supervisor.loop import NodeLoop, Shutdown, WakePipe
from partbox.supervisor.membership import VERSION, Membership
from partbox.supervisor.purging import Purging
from partbox.supervisor.worker_handle import WorkerHandle
from partbox.supervisor.worker_pool import WorkerPool
from partbox.text.wording import format_count
from partbox.worker.runners.loop_hosts import find_loop_factory

log = logging.getLogger("partbox.supervisor")


class Supervisor:
    """The manager of the worker processes for one subscription of one database.

    `handlers` are this process's; the workers get theirs from `job.load_handlers`. `prepare` is called before the
    database is checked. `job.database` is its name among several: a start then does not fail without it."""

    def __init__(
        self,
        job: Job,
        *,
        handlers: Handlers,
        processes: int,
        meters: Meters | None = None,
        prepare: Callable[[], object] | None = None,
    ) -> None:
        self._workers = WorkerPool(job, processes, meters)
        self._job = job
        self.settings = job.settings
        self.dsn = job.dsn
        self.subscription = job.subscription
        self._log = partial(log_event, log, subscription=job.subscription)
        self.database = job.database
        self.meters = meters
        self._handlers = handlers
        own = None if meters is None else meters.own_meter
        observers = add_recorders(handlers.observers, own, job.settings.metrics_prefix, job.subscription)
        lifespan = "" if handlers.process_lifespan is None else handlers.process_lifespan.label
        self._membership = Membership(
            job.settings, job.subscription, job.dsn, Observers(observers), job.database, lifespan
        )
        self._purging = Purging(job.settings, job.dsn, job.database, self._membership.count_nodes)
        self._prepare = prepare
        self._database_retry = DatabaseRetry(self._join_database, job.subscription)
        self._shutdown = Shutdown()
        self._wake_pipe = WakePipe()
        self._loop = NodeLoop(
            job, self._workers, self._membership, self._database_retry, self._shutdown, self._wake_pipe
        )
        self._thread = threading.Thread(target=self._run, name="partbox-supervisor", daemon=True)
        self._pid = os.getpid()

    @property
    def failure(self) -> BaseException | None:
        """The error that has ended the supervisor, or None."""
        # The supervisor may still be ending. An end that was asked for has no error.
        return self._loop.failure

    @property
    def children(self) -> list[WorkerHandle]:
        """The handles of the worker processes that this supervisor runs now."""
        return self._workers.list_handles()

    @property
    def running(self) -> bool:
        """True if the supervisor's thread, which watches the worker processes, is running."""
        return self._thread.is_alive()

    @property
    def is_gone(self) -> bool:
        """True if nobody needs to wait any longer for this supervisor to end."""
        # Its thread has ended, all processes are killed and the loop is overdue, or after a stop request it only waits
        # for a database that does not answer.
        # The loop tries to join only while there are no processes.
        idle = self._shutdown.is_asked and self._database_retry.is_trying
        return self._shutdown.is_overdue or idle or not self.running

    @property
    def is_joined(self) -> bool:
        """True if the supervisor is connected to its database and can deliver events from it."""
        # The value is False before the start, or for an unusable database of several.
        return self._database_retry.is_joined

    @property
    def join_error(self) -> Exception | None:
        """The error of the last try to connect to the database, or None before an error and after a success."""
        return self._database_retry.error if self._database_retry.has_never_joined else None

    @property
    def blocker(self) -> str | None:
        """The reason why events of this database cannot be delivered, or None."""
        # The words are fit for the public. It is None if events can be delivered, or if the first try is not over.
        return self._database_retry.find_blocker()

    def read_vitals(self) -> SupervisorVitals:
        """Return the health of the supervisor and its workers, from memory. Any thread may call this; never waits."""
        now, heartbeat_age = time.monotonic(), self._membership.last_heartbeat_at
        return SupervisorVitals(
            has_started=bool(self._loop.heartbeat.stepped_at),
            is_running=self.running,
            is_stopping=self._shutdown.is_asked,
            failure=_to_public_text(self.failure) if self.failure else None,
            lease=self.settings.lease,
            loop_age=self._loop.heartbeat.count_silent_seconds(now),
            heartbeat_age=None if heartbeat_age is None else now - heartbeat_age,
            wanted_processes=self._workers.wanted_count,
            processes=tuple(child.read_vitals() for child in self.children),
            recent_deaths=self._workers.backoff.count_recent(now),
            is_crash_looping=self._workers.backoff.is_looping(now),
            hindrance=self.blocker,
        )

    def start(self) -> None:
        """Check the handlers and the database, and begin to start worker processes."""
        # With several databases, the thread checks the database later. `RegistrationError`, `SchemaError` or
        # `psycopg.Error` is raised if the supervisor cannot work.
        refuse_green_threads()
        if self._handlers.describe_missing_handler(self.subscription, self.settings) is not None:
            # This process has no such handlers, so load them as the worker processes do.
            handlers, _ = self._job.load_handlers()
            handlers.require_handler(self.subscription, self.settings)
        # Fail here if the loop's library is missing. The processes would end for want of it, again and again.
        find_loop_factory(self.settings.event_loop)
        if not self.database:
            self._database_retry.join_or_raise()
        self._thread.start()

    def scale(self, processes: int) -> None:
        """Change the number of worker processes while the supervisor runs."""
        # If there are too many, the youngest finish their handlers and leave first.
        self._workers.scale(processes)
        self._wake_pipe.wake()

    def stop(self) -> None:
        """Begin a graceful stop: every worker process finishes its handlers, releases its partitions and ends."""
        # They have the drain timeout and a little more.
        self._shutdown.ask_to_drain(self.settings.drain_timeout)
        self._wake_pipe.wake()

    def kill(self) -> None:
        """Kill every worker process at once. Running events are delivered again."""
        # Nothing is done in a forked process. It takes no lock, and does not wait for the loop, because a signal
        # handler may have interrupted the holder of the lock.
        if self._pid != os.getpid():
            return
        self._shutdown.ask_to_kill()
        self._workers.kill()
        self._shutdown.note_killed()
        self._wake_pipe.wake()

    def join(self, timeout: float | None = None) -> None:
        """Wait for up to `timeout` seconds until the supervisor's thread has ended; None waits without limit."""
        self._thread.join(timeout)

    def find_outstanding_work(self) -> OutstandingWork | None:
        """Query the unfinished work of the subscription. Return None while the database cannot be reached."""
        return self._membership.find_outstanding_work()

    def list_unfinished_events(self) -> list[UnfinishedEvents] | None:
        """Query the number of unfinished events, by kind. Return None while the database cannot be reached."""
        # Only the events of this subscription are counted.
        return self._membership.list_unfinished_events()

    def _join_database(self) -> None:
        # The database is prepared first, and purging begins afterwards. An error is raised if the database cannot be
        # used.
        if self._prepare is not None:
            self._prepare()
        self._membership.open()
        if self.settings.enabled:
            self._purging.start()
        node, processes, concurrency = self.settings.node, self._workers.wanted_count, self._job.concurrency
        text = "node %s starts in subscription %r: %s, up to %s at once in each"
        values = node, self.subscription, format_count(processes, "process"), format_count(concurrency, "handler")
        facts: dict[str, Any] = {"node": node, "processes": processes, "concurrency": concurrency, "version": VERSION}
        self._log("node_started", text, *values, **facts)

    def _run(self) -> None:
        with log_for_database(self.database):
            try:
                self._loop.run()
            finally:
                self._close()

    def _close(self) -> None:
        self._workers.close()
        self._purging.stop()
        self._membership.close()
        node = self.settings.node
        self._log("node_stopped", "node %s has stopped in subscription %r", node, self.subscription, node=node)
        self._wake_pipe.close()
        if self.meters is not None:
            self.meters.on_end()


def _to_public_text(failure: BaseException) -> str:
    # Messages of partbox's own errors may be shown to the public. Other errors are shown by the name of their type
    # only; the log has the rest.
    return str(failure) if isinstance(failure, PartboxError) else type(failure).__name__
