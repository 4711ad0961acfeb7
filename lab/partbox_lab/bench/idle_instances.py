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
from partbox_lab.bench.cpu import total
from partbox_lab.bench.ground import Ground
from partbox_lab.bench.handlers import ignore
from partbox_lab.bench.leash import Leash, LeashedProcess

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
class CrewTask:
    """The task of one process: an instance in each of these subscriptions, in which one may stand several times."""

    dsn: str
    schema: str
    subscriptions: Sequence[str]
    handler: Handler


class Crew:
    """Instances that join, and leave all together when its block ends."""

    def __init__(self, ground: Ground, stack: ExitStack, handler: Handler) -> None:
        self._ground = ground
        self._handler = handler
        self._stack = stack
        self._processes: list[LeashedProcess] = []
        self._members: list[str] = []  # the subscription of each

    def join(self, subscriptions: Sequence[str]) -> None:
        """Have one more instance in each of these, and wait until every partition of theirs is owned."""
        ground = self._ground
        dsn = make_conninfo(ground.dsn, application_name=ground.name)
        for first in range(0, len(subscriptions), EACH):
            task = CrewTask(dsn, ground.schema, subscriptions[first : first + EACH], self._handler)
            process = LeashedProcess("partbox-bench-crew", _run, task)
            self._processes.append(self._stack.enter_context(process))
        self._members += subscriptions
        ground.until(self._gathered, f"starting {len(self._members)} instances", TO_GATHER, look=LOOK)

    def server(self) -> float:
        """Seconds of CPU that the server's processes have spent on these instances."""
        found = statements.backends(self._ground.conn, self._ground.schema, self._ground.name)
        return total(each.pid for each in found)

    def _gathered(self) -> bool:
        if any(each.ended for each in self._processes):
            raise PartboxError(f"the instances ended: {self._ground.failure() or 'they gave no reason'}")
        return statements.gathered(self._ground.conn, self._ground.schema, self._members)


@contextmanager
def crew(ground: Ground, handler: Handler = ignore) -> Iterator[Crew]:
    """A crew without members, whose events go to `handler`; they leave when the block ends."""
    with ExitStack() as stack:
        yield Crew(ground, stack, handler)


def most(ground: Ground, wanted: int) -> int:
    """The number of instances for which the server allows connections, at most what is `wanted`."""
    free = statements.free_connections(ground.conn, ground.schema) - SPARE
    return max(1, min(wanted, free // SESSIONS))


def _run(task: CrewTask, leash: Leash) -> None:
    """The process's program. It does not end its instances one by one: whoever made them drops what they work on."""
    threading.stack_size(STACK)
    outbox = Outbox(task.dsn, schema=task.schema, enabled=True, concurrency=1)
    for name in dict.fromkeys(task.subscriptions):
        outbox.register(task.handler, "*", subscription=name)
    for name in task.subscriptions:
        while not leash.poll(0) and not _started(outbox, name):
            pass
    while not leash.poll(LOOK):
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
