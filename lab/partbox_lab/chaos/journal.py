"""The journal of handler calls: each worker process appends to a file of its own, a line for a start and one for an
end. A line is one write, so a killed process leaves whole lines."""

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# All processes of a machine share this clock, and it never steps.
from partbox.platform import boottime as now


@dataclass(slots=True)
class HandlerCall:
    """One call of a handler."""

    event: str
    aggregate: str | None
    seq: int | None  # None: no order
    partition: int
    epoch: int  # of its owner
    attempt: int
    pid: int
    start: float  # seconds of the boot clock, as is `end`
    end: float | None = None  # None while it runs, or if it never ended
    wall: float = 0.0  # seconds since 1970, by the process's calendar
    failed: bool = False  # the event is still undelivered

    @property
    def done(self) -> bool:
        """True if the handler ended without an error."""
        return self.end is not None and not self.failed


class JournalWriter:
    """The journal of the current process, opened at the first line: importing an application writes nothing."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._fd: int | None = None

    @contextmanager
    def noted(self, event: Any) -> Iterator[str]:
        """Note the start of a call, and its end unless the block raises or is cancelled. Yield a key for `failed`."""
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
        """Note that the call ended with an error."""
        self._write({"call": call, "end": now(), "failed": True})

    def _write(self, line: dict[str, Any]) -> None:
        if self._fd is None:
            path = self._folder / f"{os.getpid()}.journal"
            self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(self._fd, json.dumps(line).encode() + b"\n")


class Journal:
    """All handler calls of a run, read from the journals of its processes."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self._calls: dict[tuple[Path, str], HandlerCall] = {}
        self._offsets: dict[Path, int] = {}
        self._ended: set[str] = set()

    def deliveries(self, of: Callable[[HandlerCall], bool] = lambda _: True) -> list[HandlerCall]:
        """Return all calls so far that `of` accepts, in the order of their starts."""
        self.read()
        return sorted(filter(of, self._calls.values()), key=lambda delivery: delivery.start)

    def started(self) -> set[str]:
        """Return the ids of the events with at least one call."""
        return {delivery.event for delivery in self.deliveries()}

    def ended(self) -> set[str]:
        """Return the ids of the events that a handler has handled without an error."""
        self.read()
        return self._ended.copy()

    @property
    def handled(self) -> int:
        """The number of events handled to the end, as of the last read."""
        return len(self._ended)

    def read(self) -> int:
        """Read the lines written since the last read and return the number of calls so far."""
        for path in self.folder.glob("*.journal"):
            self._read(path)
        return len(self._calls)

    def _read(self, path: Path) -> None:
        with path.open("rb") as file:
            file.seek(self._offsets.get(path, 0))
            for line in file:
                # The rest of the line is not written yet, or never will be.
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
