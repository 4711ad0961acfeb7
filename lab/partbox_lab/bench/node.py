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

ALL = 256
TO_START = 120.0
TO_SETTLE = 60.0
ONE_PROCESSOR = "this machine has one processor: two processes have nowhere to run side by side"


class BacklogDrain(NamedTuple):
    """A backlog that was drained: seconds from the first claim to the last save, seconds of CPU of the worker
    processes, bytes of WAL of the whole server, dead rows that are left (None if nobody asked), and the largest
    resident set of a worker process in the first and in the second half (bytes)."""

    seconds: float
    cpu: float
    wal: float
    dead: float | None
    memory: tuple[int, int]

    def rate(self, events: int) -> float:
        """Events per second; PartboxError if it was over too soon to be measured."""
        if self.seconds <= 0:
            raise PartboxError("the backlog was drained in no time that could be measured: it was too small")
        return events / self.seconds

    def cost(self, events: int) -> float:
        """Microseconds of CPU of the worker processes for each event."""
        return self.cpu / events * 1e6


class BenchNode:
    """Started and ended by `with`. `paused`: it owns nothing until `drain`. Nodes of several subscriptions may stand
    side by side; one of them at a time may drain.

    KeyboardInterrupt leaves any wait after Ctrl-C, PartboxError one for processes that have ended.
    """

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
        with hold_signals():
            self._supervisor.start()
        try:
            self.gather()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End it in order; at once if somebody does not want to wait."""
        self._supervisor.stop()
        while self._supervisor.running:
            if self._database.at_once:
                self._supervisor.kill()
            self._supervisor.join(0.1)

    @property
    def pids(self) -> list[int]:
        """The worker processes, the oldest first."""
        return [child.pid for child in sorted(self._supervisor.children, key=lambda child: child.started_at)]

    def spent(self) -> float:
        """Seconds of CPU of the worker processes and of the server processes of this node."""
        found = statements.backends(self._database.conn, self._database.schema, self._database.name)
        return total([*self.pids, *(each.pid for each in found)])

    def scale(self, processes: int) -> None:
        """Have this number of processes, and wait until they own equal shares."""
        if processes != self._processes:
            self._processes = processes
            with hold_signals():
                self._supervisor.scale(processes)
        self.gather()

    def settle(self, owners: int) -> None:
        """Wait until so many processes, those of other nodes among them, own equal shares of everything."""

        def settled() -> bool:
            self._look()
            shares: dict[Any, int] = {}
            for each in statements.owners(self._database.conn, self._database.schema):
                shares[each.owner] = shares.get(each.owner, 0) + 1
            held = shares.values()
            return sum(held) == ALL and len(held) == owners and max(held) - min(held) <= 1

        self._database.until(settled, "a rebalance", TO_SETTLE)

    def empty(self) -> bool:
        """True if everything is delivered and saved."""
        self._look()
        work = self._supervisor.outstanding()
        return work is not None and work.is_done

    def drain(
        self, position: ReadPosition = BEGINNING, processes: int | None = None, *, count_dead: bool = False
    ) -> BacklogDrain:
        """Drain what the log holds after a position, by so many processes; they own nothing before and after."""
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
        """Wait until the backlog is drained; the memory of the largest process, by time."""
        seen = [(0.0, self._memory())]

        def drained() -> bool:
            seen.append((time.monotonic(), self._memory()))
            return statements.owned(self._database.conn, self._database.schema) > 0 and self.empty()

        self._database.until(drained, "draining the backlog")
        return seen

    def _memory(self) -> int:
        return max(map(_resident, self.pids), default=0)

    def _no_dead(self) -> float:
        """Remove dead rows of the cursors, which would be pruned meanwhile; the number of others."""
        statements.calm(self._database.conn, self._database.schema)
        return self._dead()

    def _dead(self) -> float:
        """Dead rows of the schema, when every session has told of its own."""
        self._database.pause(self._database.sizes.calm)
        return statements.dead(self._database.conn, self._database.schema)

    def gather(self) -> None:
        """Wait until every process is a member, and owns its share unless the subscription is paused."""

        def gathered() -> bool:
            self._look()
            children = self._supervisor.children
            return len(children) == self._processes and all(each.instance is not None for each in children)

        self._database.until(gathered, "starting the worker processes", TO_START)
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
    """The largest memory in the first and in the second half of what was seen within the last `seconds`."""
    middle = seen[-1][0] - seconds / 2
    first, second = ([size for at, size in seen if (at >= middle) == later] for later in (False, True))
    return max(first), max(second)
