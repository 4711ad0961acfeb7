"""Handlers of the bench, which are pickled for the worker processes, and a notebook of arrivals."""

import asyncio
import os
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Final, NamedTuple

from partbox.events import DeliveredEvent

NOTE: Final = struct.Struct("<qqii8x")  # number, nanoseconds, partition, process id
SLOW: Final = 0.005  # seconds
WAIT: Final = 0.001  # seconds
LIST: Final = 1_000  # events at most


def ignore(event: DeliveredEvent) -> None:
    """Do nothing with an event."""


async def ignore_async(event: DeliveredEvent) -> None:
    """Do nothing with an event, on the event loop."""


def ignore_list(events: Sequence[DeliveredEvent]) -> None:
    """Do nothing with a list of events."""


def wait(event: DeliveredEvent) -> None:
    """Sleep for 1 ms, as if another program had to answer."""
    time.sleep(WAIT)


async def wait_async(event: DeliveredEvent) -> None:
    """Sleep for 1 ms on the event loop."""
    await asyncio.sleep(WAIT)


def wait_list(events: Sequence[DeliveredEvent]) -> None:
    """Sleep for 1 ms per list."""
    time.sleep(WAIT)


def parse_list(events: Sequence[DeliveredEvent]) -> None:
    """Parse the payload of each event."""
    for event in events:
        event.payload  # noqa: B018  the payload is parsed on access


class ListHandler:
    """A batch handler for lists of up to 1,000 events."""

    max_size = LIST

    def __init__(self, handle: Callable[[Sequence[DeliveredEvent]], None]) -> None:
        self.handle = handle


def dawdle(event: DeliveredEvent) -> None:
    """Sleep for 5 ms, so that a backlog lasts."""
    time.sleep(SLOW)


class Noted(NamedTuple):
    """The arrival of an event at a handler."""

    number: int
    at: int  # nanoseconds of the monotonic clock
    partition: int
    pid: int


class NoteTaker:
    """A handler that notes the arrival of each event. All processes append to one file by single writes, which no kill
    can split."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def handle(self, event: DeliveredEvent) -> None:
        """Append a note of the event to the file."""
        at = time.monotonic_ns()
        os.write(self._file, NOTE.pack(event.payload["number"], at, event.partition, os.getpid()))

    @cached_property
    def _file(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


class Notebook:
    """The reader of the notes, in the order in which the handlers ran."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch(0o600)
        self._read = 0

    def new(self) -> Iterator[Noted]:
        """Return the arrivals since the last call. An incomplete note at the end is left for the next call."""
        with self.path.open("rb") as file:
            file.seek(self._read)
            data = file.read()
        whole = data[: len(data) - len(data) % NOTE.size]
        self._read += len(whole)
        return (Noted(*fields) for fields in NOTE.iter_unpack(whole))
