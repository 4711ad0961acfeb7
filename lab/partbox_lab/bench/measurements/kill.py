"""Time until others take over the partitions of a killed process, and of a killed node."""

import os
import signal
import time
from collections.abc import Callable, Set
from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil

from partbox.outbox import Outbox
from partbox_lab.bench.bench_database import BenchDatabase
from partbox_lab.bench.budget import Budget, Direction, Measured
from partbox_lab.bench.child_process import ChildProcess, StopPipe
from partbox_lab.bench.group import LineGroup, Results
from partbox_lab.bench.handlers import Notebook, NoteTaker
from partbox_lab.bench.node import ALL, BenchNode
from partbox_lab.bench.paced_publisher import one_for_each_partition

PROCESS: Final = Budget(
    "kill-process", "process killed: until all its partitions deliver elsewhere", Direction.AT_MOST, 1, "s"
)
NODE: Final = Budget("kill-node", "node killed: the same, beyond the lease", Direction.AT_MOST, 2, "s")
TO_RECOVER: Final = 60.0  # seconds
LOOK: Final = 0.1  # seconds


class OtherNode:
    """A node in a process of its own, with one worker process, so that the whole node can be killed."""

    def __init__(self, database: BenchDatabase, handler: NoteTaker, lease: float) -> None:
        self._process = ChildProcess("partbox-bench-node", _run, database.dsn, database.schema, handler, lease)

    def __enter__(self) -> "OtherNode":
        self._process.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._process.__exit__(*error)

    def kill(self) -> None:
        """Kill the supervisor and its worker at once."""
        supervisor = psutil.Process(self._process.pid)
        for each in (supervisor, *supervisor.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                each.kill()


def _run(dsn: str, schema: str, handler: NoteTaker, lease: float, stop: StopPipe) -> None:
    outbox = Outbox(dsn, schema=schema, enabled=True, lease=lease, heartbeat=_heartbeat(lease), node="partbox-bench-2")
    outbox.register(handler, "*")
    node = outbox.supervisor(processes=1)
    node.start()
    while node.running and not stop.poll(LOOK):
        pass
    node.stop()
    node.join()


def _heartbeat(lease: float) -> float:
    return min(1.0, lease / 4)


class _Recovery:
    """Kills, each followed by the seconds until every partition has delivered."""

    def __init__(self, database: BenchDatabase, outbox: Outbox, notebook: Notebook) -> None:
        self._database = database
        self._outbox = outbox
        self._notebook = notebook
        self._first = 0

    def after(self, kill: Callable[[], None]) -> float:
        """Kill, publish an event for each partition, and return the seconds from the kill until all events are
        handled."""
        events, self._first = one_for_each_partition(self._first), self._first + ALL
        wanted = {event.payload["number"] for event in events}
        killed = time.monotonic_ns()
        kill()
        with self._database.conn.transaction():
            self._outbox.publish_many(self._database.conn, events)
        arrived: dict[int, int] = {}

        def recovered() -> bool:
            arrived.update((note.number, note.at) for note in self._notebook.new() if note.number in wanted)
            return len(arrived) == ALL

        self._database.until(recovered, "taking over the partitions", TO_RECOVER)
        return (max(arrived.values()) - killed) / 1e9


def _process(database: BenchDatabase, outbox: Outbox, recovery: _Recovery) -> Results:
    with BenchNode(database, outbox, 2) as node:
        seconds = recovery.after(lambda: os.kill(node.pids[0], signal.SIGKILL))
    yield Measured(
        PROCESS.name, seconds, "one of two; an event of each of the 256 partitions, published after the kill"
    )


def _node(database: BenchDatabase, outbox: Outbox, recovery: _Recovery, handler: NoteTaker) -> Results:
    lease = database.sizes.lease
    with BenchNode(database, outbox, 1) as node, OtherNode(database, handler, lease) as other:
        node.settle(2)
        seconds = recovery.after(other.kill)
    yield Measured(NODE.name, seconds - lease, f"{seconds:.2f} s, of which the lease is {lease:g} s")


def _measure(database: BenchDatabase, wanted: Set[str]) -> Results:
    database.fresh()
    path: Path = database.folder / "recovery"
    notebook, handler, lease = Notebook(path), NoteTaker(path), database.sizes.lease
    outbox = database.outbox(handler, lease=lease, heartbeat=_heartbeat(lease))
    recovery = _Recovery(database, outbox, notebook)
    if PROCESS.name in wanted:
        yield from _process(database, outbox, recovery)
    if NODE.name in wanted:
        yield from _node(database, outbox, recovery, handler)


GROUP = LineGroup((PROCESS, NODE), _measure)
