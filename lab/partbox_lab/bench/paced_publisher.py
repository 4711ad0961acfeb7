"""A publisher in a process of its own that sends an event to every partition per beat. A pause of a partition shows as
the delay of its events."""

import struct
import time
from pathlib import Path
from typing import Final

import psycopg

from partbox.events import Event
from partbox.outbox import Outbox
from partbox.protocol.hashing import partition_of
from partbox_lab.bench.child_process import ChildProcess, StopPipe
from partbox_lab.bench.node import ALL

SENT: Final = struct.Struct("<q")  # nanoseconds of the monotonic clock


def one_for_each_partition(first: int) -> list[Event]:
    """Return 256 events, one for each partition, numbered from `first`."""
    return [_event(first + partition, name) for partition, name in enumerate(names())]


def names() -> list[str]:
    """Return an aggregate id for each partition, in order."""
    found: dict[int, str] = {}
    number = 0
    while len(found) < ALL:
        found.setdefault(partition_of(str(number)), str(number))
        number += 1
    return [found[partition] for partition in range(ALL)]


def _event(number: int, name: str) -> Event:
    return Event("BenchTick", {"number": number}, aggregate_type="Clock", aggregate_id=name)


class PacedPublisher:
    """A publisher of 256 events every `period` seconds. The events of beat b are numbered from 256 b."""

    def __init__(self, dsn: str, schema: str, period: float, path: Path) -> None:
        self._path = path
        path.touch(0o600)
        self._process = ChildProcess("partbox-bench-publisher", _run, dsn, schema, period, path)

    def __enter__(self) -> "PacedPublisher":
        self._process.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._process.__exit__(*error)

    @property
    def beats(self) -> list[int]:
        """The monotonic times in nanoseconds at which the commits of the beats returned."""
        data = self._path.read_bytes()
        return [at for (at,) in SENT.iter_unpack(data[: len(data) - len(data) % SENT.size])]


def _run(dsn: str, schema: str, period: float, path: Path, stop: StopPipe) -> None:
    outbox, keys, beat = Outbox(dsn, schema=schema), names(), 0
    with psycopg.connect(dsn, autocommit=True) as conn, path.open("ab", buffering=0) as file:
        due = time.monotonic()
        while not stop.poll(max(0.0, due - time.monotonic())):
            events = [_event(beat * ALL + partition, name) for partition, name in enumerate(keys)]
            with conn.transaction():
                outbox.publish_many(conn, events)
            file.write(SENT.pack(time.monotonic_ns()))
            beat += 1
            # A late beat is skipped, and does not hurry the beats after it.
            due = max(due + period, time.monotonic())
