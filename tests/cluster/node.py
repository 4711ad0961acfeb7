"""A node: `partbox worker` as an operating system process, with its worker processes, in a process group of its own.

It is forked from a process that has everything imported (see forked), unless it is to be `fresh`.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

from forked import Command, shared
from spares import SPARE
from waiting import eventually

from partbox.db import processes

PATIENCE = 40.0
"""Seconds that a loaded machine may take for what takes one or two."""


class Node:
    """Started at once. `settings` are those of the environment: `lease=2` is PARTBOX_LEASE=2."""

    def __init__(
        self,
        name: str,
        folder: Path,
        journal: Path,
        arguments: list[str],
        settings: dict[str, object],
        application: str = "app:outbox",
        *,
        fresh: bool = False,
        spare: int = SPARE,
    ) -> None:
        self.name = name
        self.log_file = folder / f"{name}.log"
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PARTBOX_")}
        environment |= {f"PARTBOX_{setting.upper()}": str(value) for setting, value in settings.items()}
        environment |= {
            "PARTBOX_NODE": name,
            "CLUSTER_JOURNAL": str(journal),
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]),
        }
        command = ["worker", application, *arguments]
        self.process: subprocess.Popen[bytes] | Command
        if fresh:
            self.process = _spawned(command, folder, environment, self.log_file)
        else:
            self.process = shared().start_into(
                self.log_file, "partbox", *command, cwd=folder, env=environment, spare=spare
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def log(self) -> str:
        return self.log_file.read_text()

    def family(self) -> list[int]:
        """The pids of the node's process group that still run, the supervisor's and those of its helpers included."""
        return processes.group(self.pid)

    def send(self, number: signal.Signals) -> None:
        """Signal the supervisor alone."""
        self.process.send_signal(number)

    def send_to_all(self, number: signal.Signals) -> None:
        """Signal every process of the node."""
        os.killpg(self.pid, number)

    def wait(self, timeout: float = PATIENCE) -> int:
        """The exit code, once the node has ended and none of its processes is left."""
        code = self.process.wait(timeout)
        eventually(lambda: not self.family(), PATIENCE, 0.05)
        return code

    def stop(self) -> int:
        """Ask it to leave, and wait; its exit code."""
        self.send(signal.SIGTERM)
        return self.wait()

    def end(self) -> None:
        """End whatever is left of it."""
        for pid in self.family():
            os.kill(pid, signal.SIGKILL)
        self.wait()


def _spawned(command: list[str], folder: Path, environment: dict[str, str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as file:
        return subprocess.Popen(
            [str(Path(sys.executable).with_name("partbox")), *command],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
