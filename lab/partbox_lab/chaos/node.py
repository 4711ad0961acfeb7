"""A worker node of a chaos run: `partbox worker` in a process group of its own."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from partbox.embedded.processes import read_arguments
from partbox_lab import processes

RUN: Final = "from partbox.cli import main; main()"
LOOK = 0.05  # seconds


class Supervising(Protocol):
    """The process of a node: a `subprocess.Popen`, or an object that behaves the same."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def wait(self, timeout: float = ..., /) -> int: ...

    def send_signal(self, sig: int) -> None: ...


# Starts `partbox` with arguments, in a folder, with an environment and a log file, in a process group of its own.
Start = Callable[[Sequence[str], Path, Mapping[str, str], Path], Supervising]


def spawn(arguments: Sequence[str], folder: Path, environment: Mapping[str, str], log: Path) -> Supervising:
    """Start `partbox` in a new interpreter and a process group of its own, with its output in a log file."""
    with log.open("wb") as file:
        return subprocess.Popen(
            [sys.executable, "-c", RUN, *arguments],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )


class Node:
    """A supervisor and its worker processes, started at once. The setting `lease=2` becomes `PARTBOX_LEASE=2`."""

    def __init__(
        self,
        name: str,
        folder: Path,
        arguments: Sequence[str],
        settings: Mapping[str, object],
        surroundings: Mapping[str, str],
        start: Start = spawn,
    ) -> None:
        self.name = name
        self.log_file = folder / f"{name}.log"
        # True once the node was asked to leave, so that its end is expected.
        self.leaving = False
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PARTBOX_")}
        environment |= {f"PARTBOX_{key.upper()}": str(value) for key, value in settings.items()}
        environment |= {"PARTBOX_NODE": name, **surroundings}
        self.process = start(["worker", *arguments], folder, environment, self.log_file)

    @property
    def pid(self) -> int:
        """The supervisor's process id, which is the group's id too."""
        return self.process.pid

    @property
    def runs(self) -> bool:
        """True if the supervisor has not ended."""
        # Reap the supervisor, so that it does not stay in the group as a zombie.
        return self.process.poll() is None

    def family(self) -> list[int]:
        """Return the process ids of the group that still run, orphans included."""
        return processes.group(self.pid)

    def workers(self) -> list[int]:
        """Return the process ids of the workers, including workers that are still starting."""
        return [pid for pid in self.family() if "--multiprocessing-fork" in read_arguments(pid)]

    def signal_all(self, number: signal.Signals) -> None:
        """Send a signal to all processes."""
        processes.signal_all(self.family(), number)

    def ask_to_leave(self) -> None:
        """Send SIGTERM to the supervisor, which drains its workers."""
        self.leaving = True
        if self.runs:
            self.process.send_signal(signal.SIGTERM)

    def end(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds for all processes, kill the rest, and return True if none was killed."""
        until = time.monotonic() + timeout
        while self.family() and time.monotonic() < until:
            self.process.poll()
            time.sleep(LOOK)
        by_itself = not self.family()
        while left := self.family():
            processes.signal_all(left, signal.SIGKILL)
            self.process.poll()
            time.sleep(LOOK)
        self.process.wait()
        return by_itself
