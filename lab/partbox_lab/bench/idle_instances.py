"""Many instances in a few processes: each an embedded worker, which sends what a node of one process sends.

A process for each would take the memory of the machine, and says nothing more about the server.
"""

import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final

import psycopg
from psycopg.conninfo import make_conninfo

from partbox.errors import PartboxError
from partbox.events import DeliveredEvent
from partbox.outbox import Outbox
from partbox_lab.bench import statements
from partbox_lab.bench.bench_database import BenchDatabase
from partbox_lab.bench.child_process import ChildProcess, StopPipe
from partbox_lab.bench.cpu import total
from partbox_lab.bench.handlers import ignore

Handler = Callable[[DeliveredEvent], None]

EACH: Final = 25
"""Instances of one process: their threads share the interpreter, and more of them would be late for their own looks."""
SESSIONS: Final = 5
"""Connections of an instance: poller, saver, listener, and one or two of its membership."""
SPARE: Final = 10  # connections for the bench, and for others
STACK: Final = 256 << 10  # bytes of a thread, of which an instance has a dozen
LOOK: Final = 0.2
TO_GATHER: Final = 300.0


@dataclass(frozen=True, slots=True)
class IdleTask:
    """The task of one process: an instance in each of these subscriptions, in which one may stand several times."""

    dsn: str
    schema: str
    subscriptions: Sequence[str]
    handler: Handler


class IdleInstances:
    """Instances that join, and leave all together when its block ends."""

    def __init__(self, database: BenchDatabase, stack: ExitStack, handler: Handler) -> None:
        self._database = database
        self._handler = handler
        self._stack = stack
        self._processes: list[ChildProcess] = []
        self._members: list[str] = []  # the subscription of each

    def join(self, subscriptions: Sequence[str]) -> None:
        """Have one more instance in each of these, and wait until every partition of theirs is owned."""
        database = self._database
        dsn = make_conninfo(database.dsn, application_name=database.name)
        for first in range(0, len(subscriptions), EACH):
            task = IdleTask(dsn, database.schema, subscriptions[first : first + EACH], self._handler)
            process = ChildProcess("partbox-bench-instances", _run, task)
            self._processes.append(self._stack.enter_context(process))
        self._members += subscriptions
        database.until(self._gathered, f"starting {len(self._members)} instances", TO_GATHER, look=LOOK)

    def server(self) -> float:
        """Seconds of CPU that the server's processes have spent on these instances."""
        found = statements.backends(self._database.conn, self._database.schema, self._database.name)
        return total(each.pid for each in found)

    def _gathered(self) -> bool:
        if any(each.ended for each in self._processes):
            raise PartboxError(f"the instances ended: {self._database.failure() or 'they gave no reason'}")
        return statements.gathered(self._database.conn, self._database.schema, self._members)


@contextmanager
def idle_instances(database: BenchDatabase, handler: Handler = ignore) -> Iterator[IdleInstances]:
    """A set without members, whose events go to `handler`; they leave when the block ends."""
    with ExitStack() as stack:
        yield IdleInstances(database, stack, handler)


def most(database: BenchDatabase, wanted: int) -> int:
    """The number of instances for which the server allows connections, at most what is `wanted`."""
    free = statements.free_connections(database.conn, database.schema) - SPARE
    return max(1, min(wanted, free // SESSIONS))


def _run(task: IdleTask, stop: StopPipe) -> None:
    """The process's program. It does not end its instances one by one: whoever made them drops what they work on."""
    threading.stack_size(STACK)
    outbox = Outbox(task.dsn, schema=task.schema, enabled=True, concurrency=1)
    for name in dict.fromkeys(task.subscriptions):
        outbox.register(task.handler, "*", subscription=name)
    for name in task.subscriptions:
        while not stop.poll(0) and not _started(outbox, name):
            pass
    while not stop.poll(LOOK):
        pass
    os._exit(0)


def _started(outbox: Outbox, subscription: str) -> bool:
    """Start an instance; False if the server, which many join at the same time, did not answer in time."""
    try:
        outbox.worker(subscription=subscription).start()
    except psycopg.Error as error:
        sys.stderr.write(f"an instance could not start, and is started again: {error}\n")
        return False
    return True
