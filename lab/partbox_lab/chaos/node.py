"""A node: `partbox worker` as an operating system process, with its worker processes, in a process group of its own."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from partbox.embedded.processes import arguments
from partbox_lab import processes

RUN: Final = "from partbox.cli import main; main()"
LOOK = 0.05


class Supervising(Protocol):
    """The process of a node: a `subprocess.Popen`, or something that behaves like one."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def wait(self, timeout: float = ..., /) -> int: ...

    def send_signal(self, sig: int) -> None: ...


Start = Callable[[Sequence[str], Path, Mapping[str, str], Path], Supervising]
"""Starts `partbox` with arguments, in a folder, with an environment and a log, in a process group of its own."""


def spawn(arguments: Sequence[str], folder: Path, environment: Mapping[str, str], log: Path) -> Supervising:
    """Start `partbox` in a new interpreter."""
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
    """Started at once. `settings` are those of the environment: `lease=2` is PARTBOX_LEASE=2.

    `leaving`: it was asked to go, so its end is expected.
    """

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
        self.leaving = False
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PARTBOX_")}
        environment |= {f"PARTBOX_{key.upper()}": str(value) for key, value in settings.items()}
        environment |= {"PARTBOX_NODE": name, **surroundings}
        self.process = start(["worker", *arguments], folder, environment, self.log_file)

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def runs(self) -> bool:
        return self.process.poll() is None

    def family(self) -> list[int]:
        """The pids of the node's process group that still run, orphans included."""
        return processes.group(self.pid)

    def workers(self) -> list[int]:
        """Its worker processes, those that are still starting too."""
        return [pid for pid in self.family() if "--multiprocessing-fork" in arguments(pid)]

    def signal_all(self, number: signal.Signals) -> None:
        """Signal every process of the node."""
        processes.signal_all(self.family(), number)

    def ask_to_leave(self) -> None:
        self.leaving = True
        if self.runs:
            self.process.send_signal(signal.SIGTERM)

    def end(self, timeout: float) -> bool:
        """Wait until all its processes have ended, and kill them after `timeout` seconds; True if it left by itself."""
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
