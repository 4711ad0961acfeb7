"""A node: `partbox worker` as an operating system process, with its worker processes, in a process group of its own."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
from waiting import eventually

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
        with self.log_file.open("wb") as log:
            self.process = subprocess.Popen(
                [str(Path(sys.executable).with_name("partbox")), "worker", application, *arguments],
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
    def log(self) -> str:
        return self.log_file.read_text()

    def family(self) -> list[int]:
        """The pids of the node's process group that still run, the supervisor's and those of its helpers included."""
        return [process.pid for process in psutil.process_iter() if _runs_in(process, self.pid)]

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


def _runs_in(process: psutil.Process, group: int) -> bool:
    try:
        return os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE
    except (ProcessLookupError, psutil.NoSuchProcess):
        return False
