"""Many idle instances in a few processes.

Each is an embedded worker, which sends the same statements as a node of one process. A process per instance would use
up the memory of the machine and show nothing more about the server."""

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

# Instances per process. More threads at one GIL would be late with their polls.
EACH: Final = 25
# Connections of an instance: poller, saver, listener, and one or two for membership.
SESSIONS: Final = 5
SPARE: Final = 10  # connections for the bench and others
STACK: Final = 256 << 10  # bytes per thread, of which an instance has a dozen
LOOK: Final = 0.2  # seconds
TO_GATHER: Final = 300.0  # seconds


@dataclass(frozen=True, slots=True)
class IdleTask:
    """Parameters of a process: one instance for each name. Names may repeat."""

    dsn: str
    schema: str
    subscriptions: Sequence[str]
    handler: Handler


class IdleInstances:
    """Instances in child processes, which end together with the stack."""

    def __init__(self, database: BenchDatabase, stack: ExitStack, handler: Handler) -> None:
        self._database = database
        self._handler = handler
        self._stack = stack
        self._processes: list[ChildProcess] = []
        self._members: list[str] = []  # the subscription of each

    def join(self, subscriptions: Sequence[str]) -> None:
        """Start one more instance for each name, and wait until all partitions of these subscriptions are owned."""
        database = self._database
        dsn = make_conninfo(database.dsn, application_name=database.name)
        for first in range(0, len(subscriptions), EACH):
            task = IdleTask(dsn, database.schema, subscriptions[first : first + EACH], self._handler)
            process = ChildProcess("partbox-bench-instances", _run, task)
            self._processes.append(self._stack.enter_context(process))
        self._members += subscriptions
        database.until(self._gathered, f"starting {len(self._members)} instances", TO_GATHER, look=LOOK)

    def server(self) -> float:
        """Return the CPU seconds of the server processes of all instances so far."""
        found = statements.backends(self._database.conn, self._database.schema, self._database.name)
        return total(each.pid for each in found)

    def _gathered(self) -> bool:
        if any(each.ended for each in self._processes):
            raise PartboxError(f"the instances ended: {self._database.failure() or 'they gave no reason'}")
        return statements.gathered(self._database.conn, self._database.schema, self._members)


@contextmanager
def idle_instances(database: BenchDatabase, handler: Handler = ignore) -> Iterator[IdleInstances]:
    """Yield a set without instances, whose events go to `handler`. The instances end with the block."""
    with ExitStack() as stack:
        yield IdleInstances(database, stack, handler)


def most(database: BenchDatabase, wanted: int) -> int:
    """Return how many of the wanted instances fit into the free connections of the server, at least 1."""
    free = statements.free_connections(database.conn, database.schema) - SPARE
    return max(1, min(wanted, free // SESSIONS))


def _run(task: IdleTask, stop: StopPipe) -> None:
    threading.stack_size(STACK)
    outbox = Outbox(task.dsn, schema=task.schema, enabled=True, concurrency=1)
    for name in dict.fromkeys(task.subscriptions):
        outbox.register(task.handler, "*", subscription=name)
    for name in task.subscriptions:
        while not stop.poll(0) and not _started(outbox, name):
            pass
    while not stop.poll(LOOK):
        pass
    # The instances are not stopped one by one: the caller drops the schema that they work on.
    os._exit(0)


def _started(outbox: Outbox, subscription: str) -> bool:
    """Start an instance. Return False if the server did not answer in time, because many join at once."""
    try:
        outbox.worker(subscription=subscription).start()
    except psycopg.Error as error:
        sys.stderr.write(f"an instance could not start, and is started again: {error}\n")
        return False
    return True
