"""A process that is killed, and a node: how long until others deliver what was theirs."""

import os
import signal
import time
from collections.abc import Callable, Set
from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil

from partbox.outbox import Outbox
from partbox_lab.bench.budget import Budget, Direction, Measured
from partbox_lab.bench.family import Family, Results
from partbox_lab.bench.ground import Ground
from partbox_lab.bench.handlers import Notebook, NoteTaker
from partbox_lab.bench.leash import Leash, LeashedProcess
from partbox_lab.bench.metronome import one_for_each_partition
from partbox_lab.bench.node import ALL, BenchNode

PROCESS: Final = Budget(
    "kill-process", "process killed: until all its partitions deliver elsewhere", Direction.AT_MOST, 1, "s"
)
NODE: Final = Budget("kill-node", "node killed: the same, beyond the lease", Direction.AT_MOST, 2, "s")
TO_RECOVER: Final = 60.0
LOOK: Final = 0.1


class OtherNode:
    """A node in a process of its own, with one worker process, so that all of it can be killed."""

    def __init__(self, ground: Ground, handler: NoteTaker, lease: float) -> None:
        self._process = LeashedProcess("partbox-bench-node", _run, ground.dsn, ground.schema, handler, lease)

    def __enter__(self) -> "OtherNode":
        self._process.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._process.__exit__(*error)

    def kill(self) -> None:
        """End the node with its worker process, at once."""
        supervisor = psutil.Process(self._process.pid)
        for each in (supervisor, *supervisor.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                each.kill()


def _run(dsn: str, schema: str, handler: NoteTaker, lease: float, leash: Leash) -> None:
    """The process's program."""
    outbox = Outbox(dsn, schema=schema, enabled=True, lease=lease, heartbeat=_heartbeat(lease), node="partbox-bench-2")
    outbox.register(handler, "*")
    node = outbox.supervisor(processes=1)
    node.start()
    while node.running and not leash.poll(LOOK):
        pass
    node.stop()
    node.join()


def _heartbeat(lease: float) -> float:
    return min(1.0, lease / 4)


class _Recovery:
    """Kills, and counts the seconds until every partition has delivered."""

    def __init__(self, ground: Ground, outbox: Outbox, notebook: Notebook) -> None:
        self._ground = ground
        self._outbox = outbox
        self._notebook = notebook
        self._first = 0

    def after(self, kill: Callable[[], None]) -> float:
        """Seconds from the kill until an event of each partition, published right after it, is handled."""
        events, self._first = one_for_each_partition(self._first), self._first + ALL
        wanted = {event.payload["number"] for event in events}
        killed = time.monotonic_ns()
        kill()
        with self._ground.conn.transaction():
            self._outbox.publish_many(self._ground.conn, events)
        arrived: dict[int, int] = {}

        def recovered() -> bool:
            arrived.update((note.number, note.at) for note in self._notebook.new() if note.number in wanted)
            return len(arrived) == ALL

        self._ground.until(recovered, "taking over the partitions", TO_RECOVER)
        return (max(arrived.values()) - killed) / 1e9


def _process(ground: Ground, outbox: Outbox, recovery: _Recovery) -> Results:
    with BenchNode(ground, outbox, 2) as node:
        seconds = recovery.after(lambda: os.kill(node.pids[0], signal.SIGKILL))
    yield Measured(
        PROCESS.name, seconds, "one of two; an event of each of the 256 partitions, published after the kill"
    )


def _node(ground: Ground, outbox: Outbox, recovery: _Recovery, handler: NoteTaker) -> Results:
    lease = ground.sizes.lease
    with BenchNode(ground, outbox, 1) as node, OtherNode(ground, handler, lease) as other:
        node.settle(2)
        seconds = recovery.after(other.kill)
    yield Measured(NODE.name, seconds - lease, f"{seconds:.2f} s, of which the lease is {lease:g} s")


def _measure(ground: Ground, wanted: Set[str]) -> Results:
    ground.fresh()
    path: Path = ground.folder / "recovery"
    notebook, handler, lease = Notebook(path), NoteTaker(path), ground.sizes.lease
    outbox = ground.outbox(handler, lease=lease, heartbeat=_heartbeat(lease))
    recovery = _Recovery(ground, outbox, notebook)
    if PROCESS.name in wanted:
        yield from _process(ground, outbox, recovery)
    if NODE.name in wanted:
        yield from _node(ground, outbox, recovery, handler)


FAMILY = Family((PROCESS, NODE), _measure)
