"""One node: spawns its worker processes, watches them, keeps their membership, replaces those that die."""

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from multiprocess import connection, get_context
from psycopg import Error

from partbox.codecs import Codecs
from partbox.errors import PartboxError
from partbox.handlers import Handlers
from partbox.rules.lease import Patience, gives_up, vouches
from partbox.settings import Settings
from partbox.supervisor.child import FATAL, Child, Job
from partbox.supervisor.membership import Membership
from partbox.supervisor.purging import Purging
from partbox.worker.slot import shared

log = logging.getLogger("partbox.supervisor")

MOST = 256  # processes of one node: more than partitions could not all own one
HANDLER_PATIENCE = 300.0
BACKOFF = (0.1, 10.0)
CRASHES = (5, 60.0)  # so many deaths within so many seconds are a crash loop
STARTING = 0.02
WATCH = 0.25


class Supervisor:
    """Runs `processes` worker processes in one subscription of one database."""

    def __init__(
        self,
        settings: Settings,
        load: Callable[[], tuple[Handlers, Codecs]],
        dsn: Callable[[], str],
        *,
        processes: int,
        concurrency: int,
        subscription: str = "default",
        dead_to: str | None = None,
    ) -> None:
        if not 1 <= processes <= MOST:
            raise PartboxError(f"processes must be from 1 to {MOST}, not {processes}")
        self._settings = settings
        level = logging.getLogger().getEffectiveLevel()
        self._job = Job(settings, load, dsn, subscription, concurrency, level, dead_to)
        self._membership = Membership(settings, subscription, dsn)
        self._purging = Purging(settings, dsn)
        self._context = get_context("spawn")
        self._memory = shared(self._context, MOST)
        self._wanted = processes
        self._children: dict[int, Child] = {}
        self._deaths: deque[float] = deque()
        self._spawn_at = 0.0
        self._backoff = BACKOFF[0]
        self._tick_at = 0.0
        self._stop_at: float | None = None
        self._lock = threading.Lock()
        self._wake_reader, self._wake_writer = os.pipe()
        self._thread = threading.Thread(target=self._run, name="partbox-supervisor", daemon=True)
        self.failure: BaseException | None = None

    @property
    def children(self) -> list[Child]:
        """The processes that run now."""
        with self._lock:
            return list(self._children.values())

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def start(self) -> None:
        """Check the database and spawn; raises SchemaError or psycopg.Error when it cannot work."""
        self._membership.open()
        if self._settings.enabled:
            self._purging.start()
        self._thread.start()

    def scale(self, processes: int) -> None:
        """Have so many processes from now on; the youngest leave first, and gracefully."""
        if not 1 <= processes <= MOST:
            raise PartboxError(f"processes must be from 1 to {MOST}, not {processes}")
        self._wanted = processes
        self._wake()

    def stop(self) -> None:
        """Let every process finish what runs, release, and end: at most the drain timeout and a little more."""
        if self._stop_at is None:
            self._stop_at = time.monotonic() + self._settings.drain_timeout + 2.0
        self._wake()

    def kill(self) -> None:
        """End every process at once; what ran is delivered again."""
        self._stop_at = 0.0
        self._wake()

    def join(self, timeout: float | None = None) -> None:
        self._thread.join(timeout)

    def empty(self) -> bool:
        """Is everything delivered that is due?"""
        return self._membership.empty()

    def _wake(self) -> None:
        with suppress(OSError):
            os.write(self._wake_writer, b"x")

    # The thread.

    def _run(self) -> None:
        try:
            while self._stop_at is None or self._children:
                self._step()
        except BaseException as error:
            self.failure = error
            log.critical("the supervisor ends: %s", error, exc_info=True)
        finally:
            self._end()

    def _step(self) -> None:
        now = time.monotonic()
        self._reap()
        if self._stop_at is not None:
            self._drain(list(self._children.values()))
            if now >= self._stop_at:
                self._kill_all()
        else:
            self._adjust(now)
        self._watch()
        if now >= self._tick_at:
            self._tick(now)
        self._wait(max(0.0, self._tick_at - time.monotonic()))

    def _wait(self, timeout: float) -> None:
        starting = any(child.instance is None for child in self._children.values())
        sentinels = [child.sentinel for child in self._children.values()]
        timeout = min(timeout, STARTING if starting else WATCH)
        if self._wake_reader in connection.wait([*sentinels, self._wake_reader], timeout):
            os.read(self._wake_reader, 4096)
            self._tick_at = 0.0
        if any(child.instance is None and child.ready for child in self._children.values()):
            self._tick_at = 0.0

    def _adjust(self, now: float) -> None:
        """Spawn what is missing; let go what is too many."""
        staying = [child for child in self._children.values() if not child.ward.draining]
        if len(staying) < self._wanted and now >= self._spawn_at:
            free = [index for index in range(MOST) if index not in self._children]
            for index in free[: self._wanted - len(staying)]:
                with self._lock:
                    self._children[index] = Child(self._context, self._job, self._memory, index)
        staying.sort(key=lambda child: child.started_at)
        self._drain(staying[self._wanted :])

    def _drain(self, children: list[Child]) -> None:
        for child in children:
            if not child.ward.draining:
                child.drain()
                self._tick_at = 0.0

    def _watch(self) -> None:
        """Vouch for those that show life; kill those that show none for too long."""
        settings = self._settings
        for child in self._children.values():
            signs = child.signs()
            patience = Patience(settings.lease, child.handler_timeout or HANDLER_PATIENCE, settings.drain_timeout)
            child.ward.vouched = vouches(signs, patience)
            if gives_up(signs, patience) and not child.killed:
                log.error("process %d shows no life for %.1f s and is replaced", child.pid, signs.silent)
                child.kill()

    def _tick(self, now: float) -> None:
        ready = [child.ward for child in self._children.values() if child.ready and child.exit_code is None]
        try:
            self._tick_at = now + self._membership.tick(ready)
        except Error as error:
            log.error("no heartbeat: %s", str(error).strip())
            self._tick_at = now + 0.2

    def _reap(self) -> None:
        """Bury the processes that ended, at once, and plan their replacement."""
        ended = [child for child in self._children.values() if child.exit_code is not None]
        victims = [child.instance for child in ended if child.instance is not None]
        for child in ended:
            self._judge(child)
            with self._lock:
                del self._children[child.index]
            child.close()
        if victims:
            try:
                self._membership.bury(victims)
            except Error as error:
                log.error("could not bury %d dead processes, their leases will end: %s", len(victims), error)

    def _judge(self, child: Child) -> None:
        code, now = child.exit_code, time.monotonic()
        if child.ward.draining and code == 0:
            return
        if code == FATAL:
            self.failure = PartboxError(f"worker process {child.pid} cannot work; its log says why")
            self.stop()
            return
        if self._stop_at is not None:
            return
        log.error("process %d ended with %s; its partitions go to others and it is replaced", child.pid, code)
        self._deaths.append(now)
        while self._deaths[0] < now - CRASHES[1]:
            self._deaths.popleft()
        if len(self._deaths) >= CRASHES[0]:
            log.error("%d processes died within %g s: look at the first of their errors", len(self._deaths), CRASHES[1])
        if now - child.started_at > BACKOFF[1]:
            self._backoff = BACKOFF[0]
        self._spawn_at = now + self._backoff
        self._backoff = min(BACKOFF[1], self._backoff * 2)

    def _kill_all(self) -> None:
        for child in self._children.values():
            log.warning("process %d did not end in time and is killed: what ran may be delivered again", child.pid)
            child.kill()

    def _end(self) -> None:
        for child in self._children.values():
            child.kill()
            child.close()
        self._purging.stop()
        self._membership.close()
        reader, writer, self._wake_writer = self._wake_reader, self._wake_writer, -1
        os.close(reader)
        os.close(writer)
