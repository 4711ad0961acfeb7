"""`partbox relay` as an operating system process, with its worker processes, in a process group of its own."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from waiting import eventually

from partbox.embedded.processes import read_arguments
from partbox_lab.processes import group

PATIENCE = 120.0


class Relay:
    """Started at once, by the installed command. `settings` are those of the environment: `lease=2`."""

    def __init__(self, name: str, folder: Path, *arguments: str, **settings: object) -> None:
        self._log = folder / f"{name}.log"
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PARTBOX_")}
        environment |= {f"PARTBOX_{setting.upper()}": str(value) for setting, value in settings.items()}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [str(Path(sys.executable).with_name("partbox")), "relay", *arguments],
                cwd=folder,
                env=environment | {"PARTBOX_NODE": name},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def log(self) -> str:
        return self._log.read_text()

    def workers(self) -> list[int]:
        """Its worker processes."""
        family = group(self._process.pid)
        return [pid for pid in family if "--multiprocessing-fork" in read_arguments(pid)]

    def kill_one(self) -> None:
        """Kill a worker process."""
        os.kill(eventually(self.workers, PATIENCE)[0], signal.SIGKILL)

    def stop(self) -> int:
        """Ask it to leave, and wait; its exit code."""
        self._process.terminate()
        return self._process.wait(PATIENCE)

    def end(self) -> None:
        """End whatever is left of it."""
        for pid in group(self._process.pid):
            os.kill(pid, signal.SIGKILL)
        self._process.wait()
