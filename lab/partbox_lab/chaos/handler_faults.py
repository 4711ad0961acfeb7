"""The misbehaviour asked of handlers: a file that the run writes and every handler reads."""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class HandlerFault:
    """A fault of handlers: "calm", "fail", "hang", or "block-gil"."""

    kind: str = "calm"
    ticket: str = ""  # for "hang" and "block-gil", which one handler takes


class FaultFile:
    """The current fault, in a file that the run writes and worker processes read."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "fault"
        self._tickets = folder / "tickets"
        self._seen: int | None = None
        self._faults = HandlerFault()

    def set(self, fault: HandlerFault) -> None:
        """Replace the fault. The file is renamed into place, so that no reader sees half of it."""
        self._tickets.mkdir(exist_ok=True)
        new = self._path.with_suffix(".new")
        new.write_text(json.dumps(asdict(fault)))
        new.replace(self._path)

    def now(self) -> HandlerFault:
        """Return the current fault. The file is read again only if it was replaced."""
        try:
            changed = self._path.stat().st_ino, self._path.stat().st_mtime_ns
        except FileNotFoundError:
            return HandlerFault()
        if hash(changed) != self._seen:
            self._faults, self._seen = HandlerFault(**json.loads(self._path.read_text())), hash(changed)
        return self._faults

    def take(self, ticket: str) -> bool:
        """Return True for the first handler of all processes that takes the ticket."""
        try:
            os.close(os.open(self._tickets / ticket, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            return False
        return True
