"""A node of worker processes on the bench's schema."""

import time
from typing import Any, NamedTuple

import psutil

from partbox.errors import PartboxError
from partbox.outbox import Outbox
from partbox.supervisor.signals import hold_signals
from partbox_lab.bench import statements
from partbox_lab.bench.bench_database import BEGINNING, BenchDatabase
from partbox_lab.bench.cpu import total
from partbox_lab.bench.statements import ReadPosition

ALL = 256  # partitions
TO_START = 120.0  # seconds
TO_SETTLE = 60.0  # seconds
ONE_PROCESSOR = "this machine has one processor: two processes have nowhere to run side by side"


class BacklogDrain(NamedTuple):
    """The measured drain of a backlog."""

    seconds: float  # from the first claim to the last save, by the server's clock
    cpu: float  # seconds, of the worker processes
    wal: float  # bytes, of the whole server
    dead: float | None  # rows left, None if not counted
    memory: tuple[int, int]  # bytes: the largest process, in the first and in the second half

    def rate(self, events: int) -> float:
        """Return the events per second. Raise PartboxError if the backlog was too small to measure."""
        if self.seconds <= 0:
            raise PartboxError("the backlog was drained in no time that could be measured: it was too small")
        return events / self.seconds

    def cost(self, events: int) -> float:
        """Return the CPU time per event, in microseconds."""
        return self.cpu / events * 1e6


class BenchNode:
    """A supervisor with worker processes. The context manager starts and stops it. A `paused` node owns nothing until
    `drain`. Nodes of several subscriptions may run side by side, but only one may drain at a time. Ctrl-C ends every
    wait with KeyboardInterrupt, and the end of the processes with PartboxError."""

    def __init__(
        self,
        database: BenchDatabase,
        outbox: Outbox,
        processes: int,
        *,
        paused: bool = False,
        subscription: str = "default",
        **given: Any,
    ) -> None:
        self._database = database
        self._outbox = outbox
        self._paused = paused
        self._processes = processes
        self._subscription = subscription
        self._supervisor = outbox.supervisor(processes=processes, subscription=subscription, **given)

    def __enter__(self) -> "BenchNode":
        if self._paused:
            self._outbox.subscriptions.pause(self._subscription)
        self.begin()
        try:
            self.gather()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def begin(self) -> None:
        """Begin to start the processes, without waiting for them."""
        with hold_signals():
            self._supervisor.start()

    def stop(self) -> None:
        """Stop the processes and wait for them. Kill them if the user does not want to wait."""
        self._supervisor.stop()
        while self._supervisor.running:
            if self._database.at_once:
                self._supervisor.kill()
            self._supervisor.join(0.1)

    @property
    def pids(self) -> list[int]:
        """The process ids of the workers, oldest first."""
        return [child.pid for child in sorted(self._supervisor.children, key=lambda child: child.started_at)]

    def spent(self) -> float:
        """Return the CPU seconds of the worker processes and of their server processes so far."""
        found = statements.backends(self._database.conn, self._database.schema, self._database.name)
        return total([*self.pids, *(each.pid for each in found)])

    def scale(self, processes: int) -> None:
        """Change the number of processes, and wait until they own equal shares unless the node is paused."""
        if processes != self._processes:
            self._processes = processes
            with hold_signals():
                self._supervisor.scale(processes)
        self.gather()

    def settle(self, owners: int, seconds: float = TO_SETTLE) -> None:
        """Wait up to `seconds` until `owners` processes, other nodes included, own equal shares of all partitions."""

        def settled() -> bool:
            self._look()
            shares: dict[Any, int] = {}
            for each in statements.owners(self._database.conn, self._database.schema):
                shares[each.owner] = shares.get(each.owner, 0) + 1
            held = shares.values()
            return sum(held) == ALL and len(held) == owners and max(held) - min(held) <= 1

        self._database.until(settled, "a rebalance", seconds)

    def empty(self) -> bool:
        """Return True if all events are delivered and saved. Raise PartboxError if the node has ended."""
        self._look()
        work = self._supervisor.find_outstanding_work()
        return work is not None and work.is_done

    def drain(
        self, position: ReadPosition = BEGINNING, processes: int | None = None, *, count_dead: bool = False
    ) -> BacklogDrain:
        """Drain the log after `position` by the given number of processes, which own nothing before and afterwards.

        The whole backlog is committed before, so it is drained once the saved cursors have passed it."""
        database, subscriptions = self._database, self._outbox.subscriptions
        self.scale(processes or self._processes)
        database.rewind(position)
        dead = self._no_dead() if count_dead else 0.0
        wal, used = statements.wal(database.conn, database.schema), total(self.pids)
        subscriptions.resume(self._subscription)
        seen = self._watch()
        used = total(self.pids) - used
        seconds = statements.drained(database.conn, database.schema)
        written = statements.wal(database.conn, database.schema) - wal
        subscriptions.pause(self._subscription)
        database.until(
            lambda: statements.owned(database.conn, database.schema) == 0, "releasing the partitions", TO_SETTLE
        )
        left = max(0.0, self._dead() - dead) if count_dead else None
        return BacklogDrain(seconds, used, written, left, halves(seen, seconds))

    def _watch(self) -> list[tuple[float, int]]:
        """Wait until the backlog is drained, and return the memory of the largest process over time."""
        seen = [(0.0, self._memory())]

        def drained() -> bool:
            seen.append((time.monotonic(), self._memory()))
            self._look()
            # `empty` would also search for late records, which costs more than a drain beside open transactions.
            return statements.passed(self._database.conn, self._database.schema, self._subscription)

        self._database.until(drained, "draining the backlog")
        return seen

    def _memory(self) -> int:
        return max(map(_resident, self.pids), default=0)

    def _no_dead(self) -> float:
        """Vacuum the cursors, whose dead rows would be pruned during the drain, and return the number of the other dead
        rows."""
        statements.calm(self._database.conn, self._database.schema)
        return self._dead()

    def _dead(self) -> float:
        """Return the dead rows of the schema, after a pause in which every session flushes its statistics."""
        self._database.pause(self._database.sizes.calm)
        return statements.dead(self._database.conn, self._database.schema)

    def gather(self) -> None:
        """Wait until all worker processes have registered, and unless paused until they own their shares."""

        def gathered() -> bool:
            self._look()
            children = self._supervisor.children
            return len(children) == self._processes and all(each.instance is not None for each in children)

        self._database.until(gathered, "starting the worker processes", TO_START)
        # A paused subscription has no owners.
        if not self._paused:
            self.settle(self._processes)

    def _look(self) -> None:
        if self._supervisor.failure is not None or not self._supervisor.running:
            raise PartboxError(f"the worker processes ended: {self._database.failure() or 'they gave no reason'}")


def _resident(pid: int) -> int:
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.NoSuchProcess:
        return 0


def halves(seen: list[tuple[float, int]], seconds: float) -> tuple[int, int]:
    """Return the largest memory in the first and in the second half of the last `seconds` of a series."""
    middle = seen[-1][0] - seconds / 2
    first, second = ([size for at, size in seen if (at >= middle) == later] for later in (False, True))
    return max(first), max(second)
