"""Publishers at a steady pace, and beside them, in the same process, controls that do the same elsewhere.

One control writes into a table that has nothing to do with the log, in transactions of its own, and rings for a worker
that sleeps, as publishers do: commits that ring come one after the other, whoever sends them. The other one sleeps for
a millisecond again and again, and is late where the machine, or this process, stood still.
"""

import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

import psycopg

from partbox.errors import PartboxError
from partbox.outbox import Outbox
from partbox_lab.bench import statements
from partbox_lab.bench.leash import Leash, LeashedProcess
from partbox_lab.bench.pauses import Span
from partbox_lab.bench.sender import KIND

PUBLISHERS: Final = 4
NOTE: Final = struct.Struct("<qqq")
OTHER, SLEEP = -1, -2  # instead of the number of an event
NAP: Final = 0.001
LOOK: Final = 0.05


@dataclass(frozen=True, slots=True)
class BystanderTask:
    """The task of the process: `rate` events a second of all publishers together, until it is stopped."""

    dsn: str
    schema: str
    rate: float
    path: Path


@dataclass(frozen=True, slots=True)
class BystanderNotes:
    """Each publish by the number of its event, and what the controls did."""

    publishes: dict[int, Span]
    others: list[Span]
    sleeps: list[Span]


class Bystanders:
    """Publish and control while `with` lasts."""

    def __init__(self, task: BystanderTask) -> None:
        self._task = task
        self._process = LeashedProcess("partbox-bench-bystanders", _run, task)
        task.path.touch(0o600)

    def __enter__(self) -> "Bystanders":
        self._process.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._process.__exit__(*error)

    def seen(self) -> BystanderNotes:
        """Everything so far; PartboxError if the process has ended early."""
        if self._process.ended:
            raise PartboxError("the publishers of the bench ended early")
        data = self._task.path.read_bytes()
        seen = BystanderNotes({}, [], [])
        for number, began, ended in NOTE.iter_unpack(data[: len(data) - len(data) % NOTE.size]):
            if number >= 0:
                seen.publishes[number] = Span(began, ended)
            else:
                (seen.others if number == OTHER else seen.sleeps).append(Span(began, ended))
        return seen

    def begun(self) -> bool:
        """True if every publisher and control has done something."""
        seen = self.seen()
        return bool(len(seen.publishes) >= PUBLISHERS and seen.others and seen.sleeps)


def _run(task: BystanderTask, leash: Leash) -> None:
    """The process's program."""
    stopping = threading.Event()
    with task.path.open("ab", buffering=0) as file:

        def note(number: int, began: int) -> None:
            file.write(NOTE.pack(number, began, time.monotonic_ns()))  # one write, so no lock is needed

        programs: list[Callable[[], None]] = [lambda: _sleep(note, stopping), lambda: _write(task, note, stopping)]
        programs += [lambda n=n: _publish(task, n, note, stopping) for n in range(PUBLISHERS)]  # type: ignore[misc]
        threads = [threading.Thread(target=each) for each in programs]
        for each in threads:
            each.start()
        while all(each.is_alive() for each in threads) and not leash.poll(LOOK):
            pass
        stopping.set()
        for each in threads:
            each.join()


def _publish(task: BystanderTask, client: int, note: Callable[[int, int], None], stopping: threading.Event) -> None:
    outbox, chance, number = Outbox(task.dsn, schema=task.schema), Random(client), client
    with psycopg.connect(task.dsn, autocommit=True) as conn:
        while not stopping.wait(chance.expovariate(task.rate / PUBLISHERS)):
            began, key = time.monotonic_ns(), str(number)  # so that no partition stands still
            with conn.transaction():
                outbox.publish(conn, KIND, {"number": number}, aggregate_type="Clock", aggregate_id=key)
            note(number, began)
            number += PUBLISHERS


def _write(task: BystanderTask, note: Callable[[int, int], None], stopping: threading.Event) -> None:
    chance = Random("control")
    with psycopg.connect(task.dsn, autocommit=True) as conn:
        while not stopping.wait(chance.expovariate(task.rate / PUBLISHERS)):
            began = time.monotonic_ns()
            with conn.transaction():
                statements.write_elsewhere(conn, task.schema)
            note(OTHER, began)


def _sleep(note: Callable[[int, int], None], stopping: threading.Event) -> None:
    while not stopping.is_set():
        began = time.monotonic_ns()
        time.sleep(NAP)
        note(SLEEP, began)
