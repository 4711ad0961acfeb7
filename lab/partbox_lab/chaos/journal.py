"""The journal of the handlers: a file per process, a line when a handler starts and one when it has ended.

A line is one write, so a process that is killed leaves whole lines.
"""

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from partbox.platform import boottime as now  # all processes of the machine share it, and it never steps


@dataclass(slots=True)
class HandlerCall:
    """One call of a handler; `end` is None while it runs, and for ever if it never came to its end.

    `start` and `end` are times of `now`, `wall` is the start by the node's own calendar, in seconds since 1970. `seq`
    is None for an event without an order. `failed`: it ended with an error, and the event is still to be delivered.
    """

    event: str
    aggregate: str | None
    seq: int | None
    partition: int
    epoch: int
    attempt: int
    pid: int
    start: float
    end: float | None = None
    wall: float = 0.0
    failed: bool = False

    @property
    def done(self) -> bool:
        return self.end is not None and not self.failed


class JournalWriter:
    """The journal of this process, opened at the first line: importing an application writes nothing."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._fd: int | None = None

    @contextmanager
    def noted(self, event: Any) -> Iterator[str]:
        """Note the start of a handler, and its end unless it is cancelled, killed or raises; yields the call's name."""
        started = now()
        call = f"{event.event_id}/{event.epoch}/{event.attempt}/{started!r}"
        self._write(
            {
                "call": call,
                "event": str(event.event_id),
                "aggregate": event.aggregate_id,
                "seq": event.payload["seq"],
                "partition": event.partition,
                "epoch": event.epoch,
                "attempt": event.attempt,
                "pid": os.getpid(),
                "start": started,
                "wall": time.time(),
            }
        )
        yield call
        self._write({"call": call, "end": now()})

    def failed(self, call: str) -> None:
        """Note that the handler ends with an error now."""
        self._write({"call": call, "end": now(), "failed": True})

    def _write(self, line: dict[str, Any]) -> None:
        if self._fd is None:
            path = self._folder / f"{os.getpid()}.journal"
            self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(self._fd, json.dumps(line).encode() + b"\n")


class Journal:
    """All journals of a folder, read incrementally."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self._calls: dict[tuple[Path, str], HandlerCall] = {}
        self._offsets: dict[Path, int] = {}
        self._ended: set[str] = set()

    def deliveries(self, of: Callable[[HandlerCall], bool] = lambda _: True) -> list[HandlerCall]:
        """Every delivery noted so far, by start."""
        self.read()
        return sorted(filter(of, self._calls.values()), key=lambda delivery: delivery.start)

    def started(self) -> set[str]:
        return {delivery.event for delivery in self.deliveries()}

    def ended(self) -> set[str]:
        self.read()
        return self._ended.copy()

    @property
    def handled(self) -> int:
        """The number of events handled to their end, as of the last read."""
        return len(self._ended)

    def read(self) -> int:
        """Read the new lines; return the number of deliveries so far."""
        for path in self.folder.glob("*.journal"):
            self._read(path)
        return len(self._calls)

    def _read(self, path: Path) -> None:
        with path.open("rb") as file:
            file.seek(self._offsets.get(path, 0))
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._offsets[path] = self._offsets.get(path, 0) + len(line)
                self._note(path, json.loads(line))

    def _note(self, path: Path, line: dict[str, Any]) -> None:
        call = (path, line.pop("call"))
        if "start" in line:
            self._calls[call] = HandlerCall(**line)
        else:
            delivery = self._calls[call]
            delivery.end, delivery.failed = line["end"], line.get("failed", False)
            if delivery.done:
                self._ended.add(delivery.event)
