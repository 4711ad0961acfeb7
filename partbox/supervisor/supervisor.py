"""One node: starts, stops and describes it.

Its parts: the processes (`workers`), their rows and leases (`membership`), its database (`database_retry`), its end
(`shutdown`), and the loop of its only thread, which acts on all of them (`loop`). `stop` and `kill` are for signal
handlers too, so they take no lock.
"""

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
from partbox.observe.logs.database import about
from partbox.observe.logs.log_event import log_event
from partbox.observe.metrics.meter import Meters
from partbox.observe.metrics.registry import with_recorders
from partbox.protocol.outstanding import OutstandingWork
from partbox.supervisor.child import Job
from partbox.supervisor.database_retry import DatabaseRetry
from partbox.supervisor.job_pickling import VERSION
from partbox.supervisor.loop import NodeLoop, Shutdown, WakePipe
from partbox.supervisor.membership import Membership
from partbox.supervisor.purging import Purging
from partbox.supervisor.worker_handle import WorkerHandle
from partbox.supervisor.worker_pool import WorkerPool
from partbox.text.wording import counted
from partbox.worker.runners.loop_hosts import loop_factory

log = logging.getLogger("partbox.supervisor")


class Supervisor:
    """Runs worker processes in one subscription of one database.

    `handlers` are those of this process; those of the worker processes are what `job.load` gives there. `prepare` is
    called before the database is looked at. `job.database` is its name where it is one of several: then a start does
    not fail when it cannot be worked for, which is tried again (see DatabaseRetry).
    """

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
        own = None if meters is None else meters.own
        observers = with_recorders(handlers.observers, own, job.settings.metrics_prefix, job.subscription)
        lifespan = "" if handlers.process_lifespan is None else handlers.process_lifespan.label
        self._membership = Membership(
            job.settings, job.subscription, job.dsn, Observers(observers), job.database, lifespan
        )
        self._purging = Purging(job.settings, job.dsn, job.database, self._membership.nodes)
        self._prepare = prepare
        self._database = DatabaseRetry(self._join_database, job.subscription)
        self._shutdown = Shutdown()
        self._wake = WakePipe()
        self._loop = NodeLoop(job, self._workers, self._membership, self._database, self._shutdown, self._wake)
        self._thread = threading.Thread(target=self._run, name="partbox-supervisor", daemon=True)
        self._pid = os.getpid()

    @property
    def failure(self) -> BaseException | None:
        """The reason why it has ended, or ends, by itself."""
        return self._loop.failure

    @property
    def children(self) -> list[WorkerHandle]:
        return self._workers.list_handles()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    @property
    def is_gone(self) -> bool:
        """Ended; or all is killed, or nothing runs, and its loop only waits for a database that does not answer."""
        idle = self._shutdown.is_asked and self._database.is_trying  # it tries only while there are no processes
        return self._shutdown.is_overdue or idle or not self.running

    @property
    def is_joined(self) -> bool:
        """Its database can be worked for; false only of one of several, or before the start."""
        return self._database.is_joined

    @property
    def join_error(self) -> Exception | None:
        """The reason why its database could not be worked for, if it never could yet."""
        return self._database.error if self._database.has_never_joined else None

    @property
    def blocker(self) -> str | None:
        """The reason why its database cannot be worked for, for everybody to read; None if it can, or before that is
        known."""
        return self._database.blocker()

    def vitals(self) -> SupervisorVitals:
        """Its state, as far as it knows by itself. Any thread, never waits."""
        now, heartbeat_age = time.monotonic(), self._membership.last_heartbeat_at
        return SupervisorVitals(
            started=bool(self._loop.heartbeat.stepped_at),
            running=self.running,
            stopping=self._shutdown.is_asked,
            failure=_public_text(self.failure) if self.failure else None,
            lease=self.settings.lease,
            loop_age=self._loop.heartbeat.silent_seconds(now),
            heartbeat_age=None if heartbeat_age is None else now - heartbeat_age,
            wanted=self._workers.wanted,
            processes=tuple(child.process() for child in self.children),
            deaths=self._workers.backoff.count_recent(now),
            crash_loop=self._workers.backoff.is_looping(now),
            hindrance=self.blocker,
        )

    def start(self) -> None:
        """Check handlers and database, and spawn; RegistrationError, SchemaError or psycopg.Error if it cannot work.

        With one of several databases that is left to the thread, and nothing is raised.
        """
        refuse_green_threads()
        if (
            self._handlers.missing_handler(self.subscription, self.settings) is not None
        ):  # there are none here: as the workers do
            handlers, _ = self._job.load()
            handlers.require(self.subscription, self.settings)
        loop_factory(self.settings.event_loop)  # its processes would end for want of it, again and again
        if not self.database:
            self._database.join_or_raise()
        self._thread.start()

    def scale(self, processes: int) -> None:
        """Have this number of processes from now on; the youngest leave first, and gracefully."""
        self._workers.scale(processes)
        self._wake.wake()

    def stop(self) -> None:
        """Let every process finish what runs, release, and end: at most the drain timeout and a little more."""
        self._shutdown.ask_to_drain(self.settings.drain_timeout)
        self._wake.wake()

    def kill(self) -> None:
        """End every process at once; what ran is delivered again. Does not wait for the loop, nor for its lock: a
        signal's handler may have interrupted its holder. Does nothing in a process that was forked."""
        if self._pid != os.getpid():
            return
        self._shutdown.ask_to_kill()
        self._workers.kill()
        self._shutdown.note_killed()
        self._wake.wake()

    def join(self, timeout: float | None = None) -> None:
        self._thread.join(timeout)

    def outstanding(self) -> OutstandingWork | None:
        """Return the unfinished work of its subscription; None while the database cannot be reached."""
        return self._membership.outstanding()

    def left_over(self) -> list[UnfinishedEvents] | None:
        """Return the kinds of unfinished events; None while the database cannot be reached."""
        return self._membership.left_over()

    def _join_database(self) -> None:
        """Begin to work for the database; raises if it cannot be."""
        if self._prepare is not None:
            self._prepare()
        self._membership.open()
        if self.settings.enabled:
            self._purging.start()
        node, processes, concurrency = self.settings.node, self._workers.wanted, self._job.concurrency
        text = "node %s starts in subscription %r: %s, up to %s at once in each"
        values = node, self.subscription, counted(processes, "process"), counted(concurrency, "handler")
        facts: dict[str, Any] = {"node": node, "processes": processes, "concurrency": concurrency, "version": VERSION}
        self._log("node_started", text, *values, **facts)

    def _run(self) -> None:
        with about(self.database):
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
        self._wake.close()
        if self.meters is not None:
            self.meters.ended()


def _public_text(failure: BaseException) -> str:
    """The part of a failure that anybody may read; the log has the rest."""
    return str(failure) if isinstance(failure, PartboxError) else type(failure).__name__
