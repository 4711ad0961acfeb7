"""Handlers of the bench; they travel to the worker processes."""

import asyncio
import os
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Final, NamedTuple

from partbox.events import DeliveredEvent

NOTE: Final = struct.Struct("<qqii8x")
SLOW: Final = 0.005  # seconds
WAIT: Final = 0.001  # seconds
LIST: Final = 1_000  # events, at most


def ignore(event: DeliveredEvent) -> None:
    """Do nothing."""


async def ignore_async(event: DeliveredEvent) -> None:
    """Do nothing."""


def ignore_list(events: Sequence[DeliveredEvent]) -> None:
    """Do nothing."""


def wait(event: DeliveredEvent) -> None:
    """Wait, as for an answer of another program."""
    time.sleep(WAIT)


async def wait_async(event: DeliveredEvent) -> None:
    """Wait, as for an answer of another program."""
    await asyncio.sleep(WAIT)


def wait_list(events: Sequence[DeliveredEvent]) -> None:
    """Wait once, as for an answer of another program."""
    time.sleep(WAIT)


def parse_list(events: Sequence[DeliveredEvent]) -> None:
    """Parse every payload."""
    for event in events:
        event.payload  # noqa: B018  it is parsed when somebody asks


class ListHandler:
    """A handler of lists."""

    max_size = LIST

    def __init__(self, handle: Callable[[Sequence[DeliveredEvent]], None]) -> None:
        self.handle = handle


def dawdle(event: DeliveredEvent) -> None:
    """Take some time."""
    time.sleep(SLOW)


class Noted(NamedTuple):
    """A delivery: the number that the publisher gave the event, the monotonic time (ns), its partition, and the
    process."""

    number: int
    at: int
    partition: int
    pid: int


class NoteTaker:
    """Notes when each event arrives. Each process appends to one file by single writes, which no kill can split."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def handle(self, event: DeliveredEvent) -> None:
        """Note the event."""
        at = time.monotonic_ns()
        os.write(self._file, NOTE.pack(event.payload["number"], at, event.partition, os.getpid()))

    @cached_property
    def _file(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


class Notebook:
    """Reads the notes as they come, in the order in which the handlers ran."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch(0o600)
        self._read = 0

    def new(self) -> Iterator[Noted]:
        """The notes since the last call."""
        with self.path.open("rb") as file:
            file.seek(self._read)
            data = file.read()
        whole = data[: len(data) - len(data) % NOTE.size]
        self._read += len(whole)
        return (Noted(*fields) for fields in NOTE.iter_unpack(whole))
