"""One node: spawns its worker processes, watches them, keeps their membership, replaces those that die."""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from typing import Any

from multiprocess import connection, get_context
from psycopg import Error

from partbox.codecs import Codecs
from partbox.errors import PartboxError
from partbox.handlers import Handlers
from partbox.observe import Observers
from partbox.observe.database import about
from partbox.observe.logs import level_of
from partbox.observe.meter import Meters
from partbox.observe.node import Vitals
from partbox.observe.recorder import Recorder
from partbox.observe.telling import tell
from partbox.rules.lease import Patience, gives_up, vouches
from partbox.rules.wording import counted, ending
from partbox.settings import Settings
from partbox.supervisor.child import FATAL, UNFIT, Child, Job
from partbox.supervisor.deaths import CRASHES, Deaths
from partbox.supervisor.joining import Joining
from partbox.supervisor.membership import NO_HEARTBEAT, Membership
from partbox.supervisor.purging import Purging
from partbox.worker.owning.slot import shared

log = logging.getLogger("partbox.supervisor")

MOST = 256  # processes of one node: more than partitions could not all own one
HANDLER_PATIENCE = 300.0
STARTING = 0.02
WATCH = 0.25
ENDING = 2.0  # seconds that the loop has to end when all processes are killed


class Supervisor:
    """Runs `processes` worker processes in one subscription of one database.

    `handlers` are those of this process; those of the worker processes are what `load` gives there. `prepare` is called
    before the database is looked at. `database` is its name where it is one of several: then a start does not fail when
    it cannot be worked for, which is tried again (see Joining).
    """

    def __init__(
        self,
        settings: Settings,
        load: Callable[[], tuple[Handlers, Codecs]],
        dsn: Callable[[], str],
        *,
        handlers: Handlers,
        processes: int,
        concurrency: int,
        subscription: str = "default",
        dead_to: str | None = None,
        meters: Meters | None = None,
        database: str = "",
        prepare: Callable[[], object] | None = None,
    ) -> None:
        if not 1 <= processes <= MOST:
            raise PartboxError(f"processes must be from 1 to {MOST}, not {processes}")
        self.settings = settings
        self.dsn = dsn
        self.subscription = subscription
        self.database = database
        self.meters = meters
        layout = meters.layout if meters is not None else None
        self._handlers = handlers
        self._job = Job(settings, load, dsn, subscription, concurrency, level_of(settings), dead_to, layout, database)
        told = [*handlers.observers, *([Recorder(meters.own)] if meters is not None else [])]
        self._membership = Membership(settings, subscription, dsn, Observers(told), database)
        self._purging = Purging(settings, dsn, database)
        self._prepare = prepare
        self._joining = Joining(self._enter, subscription)
        self._context = get_context("spawn")
        self._memory = shared(self._context, MOST)
        self._wanted = processes
        self._children: dict[int, Child] = {}
        self._deaths = Deaths()
        self._spawn_at = 0.0
        self._tick_at = 0.0
        self._stepped_at = 0.0
        self._asking = False  # the database, which may not answer
        self._stop_at: float | None = None
        self._killed_at: float | None = None
        self._lock = threading.Lock()
        self._wake_reader, self._wake_writer = os.pipe()
        self._thread = threading.Thread(target=self._run, name="partbox-supervisor", daemon=True)
        self._pid = os.getpid()
        self.failure: BaseException | None = None

    @property
    def children(self) -> list[Child]:
        """The processes that run now."""
        with self._lock:
            return list(self._children.values())

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    @property
    def gone(self) -> bool:
        """Ended; or all is killed, or nothing runs, and its loop only waits for a database that does not answer."""
        late = self._killed_at is not None and time.monotonic() - self._killed_at > ENDING
        idle = self._stop_at is not None and self._joining.trying  # it tries only while there are no processes
        return late or idle or not self.running

    @property
    def joined(self) -> bool:
        """Its database can be worked for; false only of one of several, or before the start."""
        return self._joining.joined

    @property
    def never_joined(self) -> Exception | None:
        """Why its database could not be worked for, if it never could yet."""
        return self._joining.error if self._joining.never else None

    @property
    def hindrance(self) -> str | None:
        """Why its database cannot be worked for, in words for everybody; None if it can, or that is not known yet."""
        return self._joining.hindrance()

    def vitals(self) -> Vitals:
        """How it is, as far as it knows by itself. Any thread, never waits."""
        now, beaten = time.monotonic(), self._membership.beaten_at
        return Vitals(
            started=bool(self._stepped_at),
            running=self.running,
            stopping=self._stop_at is not None,
            failure=_shown(self.failure) if self.failure else None,
            lease=self.settings.lease,
            stepped=0.0 if self._asking else now - self._stepped_at,
            beaten=None if beaten is None else now - beaten,
            wanted=self._wanted,
            processes=tuple(child.process() for child in self.children),
            deaths=self._deaths.lately(now),
            crash_loop=self._deaths.looping(now),
            hindrance=self.hindrance,
        )

    def start(self) -> None:
        """Check handlers and database, and spawn; RegistrationError, SchemaError or psycopg.Error if it cannot work.

        One of several databases is looked at by its own thread, and raises nothing.
        """
        self._check_handlers()
        if not self.database:
            self._joining.join()
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
            self._stop_at = time.monotonic() + self.settings.drain_timeout + 2.0
        self._wake()

    def kill(self) -> None:
        """End every process at once; what ran is delivered again. Does not wait for the loop, nor for its lock: a
        signal's handler may have interrupted who holds that. Not by a process that was forked: they are not its own."""
        if self._pid != os.getpid():
            return
        self._stop_at = 0.0
        for child in self._children.copy().values():
            with suppress(ValueError):  # it has ended, and is put away
                child.kill()
        self._killed_at = self._killed_at or time.monotonic()
        self._wake()

    def join(self, timeout: float | None = None) -> None:
        self._thread.join(timeout)

    def empty(self) -> bool:
        """Is everything delivered that is due? psycopg.Error when the database cannot be reached."""
        return self._membership.empty()

    def _enter(self) -> None:
        """Begin to work for the database; raises if it cannot be."""
        if self._prepare is not None:
            self._prepare()
        self._membership.open()
        if self.settings.enabled:
            self._purging.start()
        self._say_start()

    def _wake(self) -> None:
        if self._pid != os.getpid():  # the pipe is the parent's
            return
        with suppress(OSError):
            os.write(self._wake_writer, b"x")

    def _check_handlers(self) -> None:
        """Handlers may be known to worker processes alone: only where there are none here, look as they will."""
        if self._handlers.lack(self.subscription, self.settings) is not None:
            handlers, _ = self._job.load()
            handlers.require(self.subscription, self.settings)

    def _say_start(self) -> None:
        node, processes, concurrency = self.settings.node, self._wanted, self._job.concurrency
        self._tell(
            "node_started",
            "node %s starts in subscription %r: %s, up to %s at once in each",
            node,
            self.subscription,
            counted(processes, "process"),
            counted(concurrency, "handler"),
            node=node,
            processes=processes,
            concurrency=concurrency,
            version=version("partbox"),
        )

    def _tell(self, name: str, text: str, *arguments: object, **fields: Any) -> None:
        tell(log, name, text, *arguments, subscription=self.subscription, **fields)

    # The thread.

    def _run(self) -> None:
        with about(self.database):
            try:
                while self._stop_at is None or self._children:
                    self._step()
            except BaseException as error:
                self.failure = error
                tell(log, "worker_failed", "the supervisor ends: %s", error, trace=error)
            finally:
                self._end()

    def _step(self) -> None:
        now = self._stepped_at = time.monotonic()
        self._reap()
        if self._stop_at is not None:
            self._drain(list(self._children.values()))
            if now >= self._stop_at:
                self._kill_all()
        else:
            if not self.joined:
                self._join(now)
            if self.joined:
                self._adjust(now)
        self._watch()
        if not self.joined and not self._children:
            self._tick_at = self._joining.next_at
        elif now >= self._tick_at:
            self._tick(now)
        self._wait(max(0.0, self._tick_at - time.monotonic()))

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        """The loop stands still in here for as long as the database likes: no restart would help."""
        self._asking = True
        try:
            yield
        finally:
            self._stepped_at = time.monotonic()
            self._asking = False

    def _wait(self, timeout: float) -> None:
        starting = any(child.instance is None for child in self._children.values())
        sentinels = [child.sentinel for child in self._children.values()]
        timeout = min(timeout, STARTING if starting else WATCH)
        if self._wake_reader in connection.wait([*sentinels, self._wake_reader], timeout):
            os.read(self._wake_reader, 4096)
            self._tick_at = 0.0
        if any(child.instance is None and child.ready for child in self._children.values()):
            self._tick_at = 0.0

    def _join(self, now: float) -> None:
        """Try whether the database can be worked for by now, once nothing runs that was begun when it could."""
        self._drain(list(self._children.values()))
        if not self._children and now >= self._joining.next_at:
            with self._waiting():
                self._joining.attempt()
            self._tick_at = 0.0

    def _adjust(self, now: float) -> None:
        """Spawn what is missing; let go what is too many."""
        staying = [child for child in self._children.values() if not child.ward.draining]
        if len(staying) < self._wanted and now >= self._spawn_at:
            self._spawn(now, self._wanted - len(staying))
        staying.sort(key=lambda child: child.started_at)
        self._drain(staying[self._wanted :])

    def _spawn(self, now: float, count: int) -> None:
        """As many as the machine gives; the others later."""
        free = [index for index in range(MOST) if index not in self._children]
        try:
            for index in free[:count]:
                self._add(Child(self._context, self._job, self._memory, index))
        except OSError as error:
            pause = self._deaths.pause()
            self._spawn_at = now + pause
            text = "cannot start a process, which is tried again in %.1f s; meanwhile there are %d: %s"
            self._tell("not_spawned", text, pause, len(self._children), error, seconds=pause)

    def _add(self, child: Child) -> None:
        with self._lock:
            self._children[child.index] = child
        if self.meters is not None and child.meter is not None:
            self.meters.join(child.meter)

    def _drain(self, children: list[Child]) -> None:
        for child in children:
            if not child.ward.draining:
                child.drain()
                self._tick_at = 0.0

    def _watch(self) -> None:
        """Vouch for those that show life; kill those that show none for too long."""
        settings = self.settings
        for child in self._children.values():
            signs = child.signs()
            patience = Patience(settings.lease, child.handler_timeout or HANDLER_PATIENCE, settings.drain_timeout)
            child.ward.vouched = vouches(signs, patience)
            if gives_up(signs, patience) and not child.killed:
                text = "process %d shows no life for %.1f s and is killed and replaced"
                self._tell("silent", text, child.pid, signs.silent, worker_pid=child.pid, seconds=signs.silent)
                child.kill()

    def _tick(self, now: float) -> None:
        ready = [child.ward for child in self._children.values() if child.ready and child.exit_code is None]
        try:
            with self._waiting():
                self._tick_at = now + self._membership.tick(ready)
        except Error as error:
            self._tell("no_heartbeat", NO_HEARTBEAT, error)
            self._tick_at = now + 0.2

    def _reap(self) -> None:
        """Bury the processes that ended, at once, and plan their replacement."""
        ended = [child for child in self._children.values() if child.exit_code is not None]
        victims = [child.ward for child in ended if child.instance is not None]
        for child in ended:
            child.ward.draining |= self._stop_at is not None  # `kill` asks none to drain
            self._judge(child)
            with self._lock:
                del self._children[child.index]
            self._part_with(child)
        if victims:
            try:
                with self._waiting():
                    self._membership.bury(victims)
            except Error as error:
                text = "could not free what %s left behind, which is free when the lease is over: %s"
                dead = counted(len(victims), "dead process")
                self._tell("not_buried", text, dead, error, instances=len(victims))

    def _judge(self, child: Child) -> None:
        code, now = child.exit_code, time.monotonic()
        if child.ward.draining and code == 0:
            return
        if code == UNFIT and self.database:
            self._joining.leave()
            return
        if code in (FATAL, UNFIT):
            self.failure = PartboxError(f"worker process {child.pid} cannot work; its log says why")
            self.stop()
            return
        if self._stop_at is not None:
            if child.killed:
                text = "process %d did not end in time and was killed: what ran may be delivered again"
                self._tell("killed", text, child.pid, worker_pid=child.pid)
            return
        text = "process %d %s; its partitions go to others and it is replaced"
        self._tell("crash", text, child.pid, ending(code), worker_pid=child.pid, exit_code=code)
        if self.meters is not None:
            self.meters.own.add("process_restarts_total")
        self._spawn_at = now + self._deaths.note(now, now - child.started_at)
        if (deaths := self._deaths.lately(now)) >= CRASHES[0]:
            text = "%s died within %g s: look at the first of their errors"
            died = counted(deaths, "process")
            self._tell("crash_loop", text, died, CRASHES[1], deaths=deaths, seconds=CRASHES[1])

    def _part_with(self, child: Child) -> None:
        """It has ended, or is killed: what it has counted stays."""
        child.close()
        if self.meters is not None and child.meter is not None:
            self.meters.retire(child.meter)

    def _kill_all(self) -> None:
        for child in self._children.values():
            child.kill()

    def _end(self) -> None:
        for child in self._children.values():
            child.kill()
            self._part_with(child)
        self._purging.stop()
        self._membership.close()
        node = self.settings.node
        self._tell("node_stopped", "node %s has stopped in subscription %r", node, self.subscription, node=node)
        reader, writer, self._wake_writer = self._wake_reader, self._wake_writer, -1
        os.close(reader)
        os.close(writer)
        if self.meters is not None:
            self.meters.ended()


def _shown(failure: BaseException) -> str:
    """What anybody may read of it; the log has the rest."""
    return str(failure) if isinstance(failure, PartboxError) else type(failure).__name__
