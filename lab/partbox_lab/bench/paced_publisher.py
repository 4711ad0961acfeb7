"""A publisher in a process of its own that gives every partition an event at each beat: a pause of any of them shows as
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

SENT: Final = struct.Struct("<q")


def one_for_each_partition(first: int) -> list[Event]:
    """256 events, one for each partition, numbered from `first` on."""
    return [_event(first + partition, name) for partition, name in enumerate(names())]


def names() -> list[str]:
    """An aggregate of each partition."""
    found: dict[int, str] = {}
    number = 0
    while len(found) < ALL:
        found.setdefault(partition_of(str(number)), str(number))
        number += 1
    return [found[partition] for partition in range(ALL)]


def _event(number: int, name: str) -> Event:
    return Event("BenchTick", {"number": number}, aggregate_type="Clock", aggregate_id=name)


class PacedPublisher:
    """Publishes 256 events every `period` seconds while `with` lasts; those of beat b are numbered from 256 b on."""

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
        """The monotonic time (ns) at which each beat's commit had returned."""
        data = self._path.read_bytes()
        return [at for (at,) in SENT.iter_unpack(data[: len(data) - len(data) % SENT.size])]


def _run(dsn: str, schema: str, period: float, path: Path, stop: StopPipe) -> None:
    """The process's program. A beat that is late is left out, and does not hurry those after it."""
    outbox, keys, beat = Outbox(dsn, schema=schema), names(), 0
    with psycopg.connect(dsn, autocommit=True) as conn, path.open("ab", buffering=0) as file:
        due = time.monotonic()
        while not stop.poll(max(0.0, due - time.monotonic())):
            events = [_event(beat * ALL + partition, name) for partition, name in enumerate(keys)]
            with conn.transaction():
                outbox.publish_many(conn, events)
            file.write(SENT.pack(time.monotonic_ns()))
            beat += 1
            due = max(due + period, time.monotonic())
