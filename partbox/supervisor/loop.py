"""The loop of a node: watches its processes, renews their leases, buries and replaces those that end."""

import logging
import time
from typing import Any

from psycopg import Error

from partbox.errors import PartboxError
from partbox.observe.logs.log_event import log_event
from partbox.platform import boottime
from partbox.protocol.lease import Steadiness
from partbox.supervisor.child import Job
from partbox.supervisor.exits import Exit, judge
from partbox.supervisor.joining import Joining
from partbox.supervisor.membership import Membership
from partbox.supervisor.pulse import Pulse
from partbox.supervisor.shutdown import Shutdown
from partbox.supervisor.wake_pipe import WakePipe
from partbox.supervisor.ward import Ward
from partbox.supervisor.worker_handle import WorkerHandle
from partbox.supervisor.workers import Workers
from partbox.text.wording import counted

log = logging.getLogger("partbox.supervisor")

STARTING = 0.02  # seconds between two turns of the loop while a process starts
WATCH = 0.25  # and otherwise, at most
RETRY = 0.2  # seconds until a heartbeat that failed is tried again


class NodeLoop:
    """`run` is for the node's thread; any thread may read `failure` and `pulse`."""

    def __init__(
        self,
        job: Job,
        workers: Workers,
        membership: Membership,
        joining: Joining,
        shutdown: Shutdown,
        wake: WakePipe,
    ) -> None:
        self._job = job
        self._workers = workers
        self._membership = membership
        self._joining = joining
        self._shutdown = shutdown
        self._wake = wake
        self._tick_at = 0.0
        self._steadiness = Steadiness(job.settings.lease)
        self.pulse = Pulse()
        self.failure: BaseException | None = None

    def run(self) -> None:
        """Turn until a shutdown is asked for and no process is left; an error that ends it is logged and kept."""
        try:
            while not self._shutdown.asked or self._workers:
                self._step()
        except BaseException as error:
            self.failure = error
            log_event(log, "worker_failed", "the supervisor ends: %s", error, trace=error)

    def _step(self) -> None:
        now = self.pulse.turn()
        self._reap()
        if self._shutdown.asked:
            self._drain()
            if self._shutdown.kills(now):
                self._workers.kill()
        else:
            if not self._joining.joined:
                self._join(now)
            if self._joining.joined and self._workers.adjust(now):
                self._tick_at = 0.0
        self._workers.watch(self._steadiness.lasted(boottime()))
        if not self._joining.joined and not self._workers:
            self._tick_at = self._joining.next_at
        elif now >= self._tick_at:
            self._tick(now)
        self._wait(max(0.0, self._tick_at - time.monotonic()))

    def _drain(self) -> None:
        if self._workers.drain():
            self._tick_at = 0.0

    def _wait(self, timeout: float) -> None:
        starting = self._workers.starting
        woken = self._wake.wait(self._workers.sentinels, min(timeout, STARTING if starting else WATCH))
        if woken or self._workers.arriving:
            self._tick_at = 0.0

    def _join(self, now: float) -> None:
        """Try whether the database can be worked for by now, once nothing runs that was begun when it could."""
        self._drain()
        if not self._workers and now >= self._joining.next_at:
            with self.pulse.waiting():
                self._joining.attempt()
            self._tick_at = 0.0

    def _tick(self, now: float) -> None:
        wards = self._workers.living_wards()
        try:
            with self.pulse.waiting():
                self._tick_at = now + self._membership.tick(wards)
        except Error as error:
            self._steadiness.note(boottime(), reached=self._membership.failed(error))
            self._tick_at = now + RETRY
        else:
            self._steadiness.note(boottime(), reached=True)

    def _reap(self) -> None:
        """Bury the processes that ended, at once, and plan their replacement."""
        ended = self._workers.ended()
        victims = [handle.ward for handle in ended if handle.instance is not None]
        for handle in ended:
            handle.ward.draining |= self._shutdown.asked  # `kill` asks none to drain
            self._judge(handle)
            self._workers.remove(handle)
        if victims:
            self._bury(victims)

    def _judge(self, handle: WorkerHandle) -> None:
        drained, stopping = handle.ward.draining, self._shutdown.asked
        several = bool(self._job.database)
        code = 0 if handle.unborn else handle.exit_code
        match judge(code, drained=drained, stopping=stopping, killed=handle.killed, several=several):
            case Exit.DATABASE_UNFIT:
                self._joining.leave()
            case Exit.CANNOT_WORK:
                self.failure = PartboxError(f"worker process {handle.pid} cannot work; its log says why")
                self._shutdown.ask(self._job.settings.drain_timeout)
                self._wake.wake()
            case Exit.KILLED:
                text = "process %d did not end in time and was killed: what ran may be delivered again"
                self._tell("killed", text, handle.pid, worker_pid=handle.pid)
            case Exit.CRASHED:
                self._workers.note_crash(handle)

    def _bury(self, victims: list[Ward]) -> None:
        try:
            with self.pulse.waiting():
                self._membership.bury(victims, self._workers.living_wards())
        except Error as error:
            text = "could not free the partitions of %s, which are free when the lease is over: %s"
            dead = counted(len(victims), "dead process")
            self._tell("not_buried", text, dead, error, instances=len(victims))

    def _tell(self, name: str, text: str, *arguments: object, **fields: Any) -> None:
        log_event(log, name, text, *arguments, subscription=self._job.subscription, **fields)
