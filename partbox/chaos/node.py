"""A node: `partbox worker` as an operating system process, with its worker processes, in a process group of its own."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from partbox.chaos.application import FOLDER, TARGET
from partbox.db import processes

RUN: Final = "from partbox.cli import main; main()"
LOOK = 0.05


class Node:
    """Started at once. `settings` are those of the environment: `lease=2` is PARTBOX_LEASE=2.

    `leaving`: it was asked to go, so its end is expected.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        count: int,
        settings: Mapping[str, object],
        surroundings: Mapping[str, str],
    ) -> None:
        self.name = name
        self.leaving = False
        self.killed = False
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PARTBOX_")}
        environment |= {f"PARTBOX_{key.upper()}": str(value) for key, value in settings.items()}
        environment |= {"PARTBOX_NODE": name, FOLDER: str(folder), **surroundings}
        with (folder / f"{name}.log").open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", RUN, "worker", TARGET, "--processes", str(count)],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

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
        return [pid for pid in self.family() if "--multiprocessing-fork" in processes.arguments(pid)]

    def signal_all(self, number: signal.Signals) -> None:
        """Signal every process of the node."""
        processes.signal_all(self.family(), number)

    def ask_to_leave(self) -> None:
        self.leaving = True
        if self.runs:
            self.process.terminate()

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
