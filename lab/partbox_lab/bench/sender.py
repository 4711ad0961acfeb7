"""A publisher in a process of its own that sends events at a given rate, each at a random time of its period.

Random times keep a rhythm of publishing from meeting a rhythm of polling. A late publisher catches up."""

import random
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final

import psycopg

from partbox.errors import PartboxError
from partbox.outbox import Outbox
from partbox_lab.bench.child_process import ChildProcess, StopPipe

SENT: Final = struct.Struct("<qq")  # number, nanoseconds of the monotonic clock
EACH: Final = 250.0  # events per second and connection
AGGREGATES: Final = 512
KIND: Final = "BenchTick"
LOOK: Final = 0.05  # seconds


@dataclass(frozen=True, slots=True)
class SendingTask:
    """Parameters of the process: `rate` events per second, for `seconds` or until it is stopped, of `types` types."""

    dsn: str
    schema: str
    rate: float
    seconds: float | None
    path: Path
    types: int = 1

    @property
    def clients(self) -> int:
        """The number of connections, each with a thread. A single one would wait for the disc too long."""
        return max(1, round(self.rate / EACH))


def name_type(number: int, types: int) -> str:
    """Return the type of an event, of so many types."""
    return KIND if types == 1 else f"{KIND}-{number % types}"


def aggregate(number: int, clients: int) -> str:
    """Return the aggregate of an event. Each aggregate belongs to one client, which numbers its events upwards."""
    return f"{number % clients}-{number // clients % AGGREGATES}"


class Sender:
    """A publisher that runs until everything is published, or until its block ends."""

    def __init__(self, task: SendingTask) -> None:
        self._task = task
        self._process = ChildProcess("partbox-bench-sender", _run, task)

    def __enter__(self) -> "Sender":
        self._process.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._process.__exit__(*error)

    @property
    def ended(self) -> bool:
        """True if everything is published, or the process has failed."""
        return self._process.ended

    def stop(self) -> None:
        """Stop publishing and wait for the process."""
        self._process.stop()

    def sent(self) -> dict[int, int]:
        """Return when each commit so far returned: monotonic nanoseconds by number. Raise PartboxError if the process
        ended without any."""
        # Read the state before the file: a process that ends in between has then written everything.
        ended = self.ended
        data = self._task.path.read_bytes() if self._task.path.exists() else b""
        found = dict(SENT.iter_unpack(data[: len(data) - len(data) % SENT.size]))
        if ended and not found:
            raise PartboxError("the publisher of the bench ended without having published anything")
        return found


def _run(task: SendingTask, stop: StopPipe) -> None:
    lock, stopping = threading.Lock(), threading.Event()
    with task.path.open("ab", buffering=0) as file:

        def note(number: int) -> None:
            at = time.monotonic_ns()
            with lock:
                file.write(SENT.pack(number, at))

        clients = [threading.Thread(target=_publish, args=(task, n, note, stopping)) for n in range(task.clients)]
        for each in clients:
            each.start()
        while any(each.is_alive() for each in clients) and not stop.poll(LOOK):
            pass
        stopping.set()
        for each in clients:
            each.join()


def _publish(task: SendingTask, client: int, note: Callable[[int], None], stopping: threading.Event) -> None:
    outbox, chance = Outbox(task.dsn, schema=task.schema), random.Random(client)
    with psycopg.connect(task.dsn, autocommit=True) as conn:
        for number in _due(task, client, chance, stopping):
            key = aggregate(number, task.clients)
            with conn.transaction():
                kind = name_type(number, task.types)
                outbox.publish(conn, kind, {"number": number}, aggregate_type="Clock", aggregate_id=key)
            note(number)


def _due(task: SendingTask, client: int, chance: random.Random, stopping: threading.Event) -> Iterator[int]:
    began = time.monotonic()
    for turn, due in enumerate(schedule(task.rate / task.clients, task.seconds, chance)):
        if stopping.wait(max(0.0, began + due - time.monotonic())):
            return
        yield client + turn * task.clients


def schedule(rate: float, seconds: float | None, chance: random.Random) -> Iterator[float]:
    """Return the seconds at which events are due: one at a random time of each period."""
    turns = count() if seconds is None else range(max(1, round(rate * seconds)))
    return ((turn + chance.random()) / rate for turn in turns)


@contextmanager
def sending(dsn: str, schema: str, rate: float, seconds: float | None, path: Path, types: int = 1) -> Iterator[Sender]:
    """Run a sender until the block ends."""
    with Sender(SendingTask(dsn, schema, rate, seconds, path, types)) as sender:
        yield sender
