"""A reader of the pages: types their commands in a folder with an empty database."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from forked_commands import Command, Forks


class Reader:
    """Runs commands in a folder of its own, with PARTBOX_DSN set to an empty database.

    Each is a fork of a process that has imported partbox, and a worker has one process. Without `forks` the installed
    commands are run, and workers of two processes.
    """

    def __init__(self, folder: Path, dsn: str, forks: Forks | None) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PARTBOX_")}
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self.folder = folder
        self.environment = {**kept, "PARTBOX_DSN": dsn, "PATH": path}
        self.worker = ["--until-empty", "--processes", "1" if forks else "2"]
        self.logged = ""
        self._forks = forks
        self._started: list[Command | subprocess.Popen[str]] = []

    def __call__(self, *command: str, code: int = 0) -> str:
        """Run it to its end; what it prints. What it logs is in `logged`."""
        process: Command | subprocess.Popen[str]
        if self._forks:
            process = self._forks.start(*command, cwd=self.folder, env=self.environment)
        else:
            process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=self.environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        out, self.logged = process.communicate()
        assert process.returncode == code, out + self.logged
        return out

    def start(self, log: Path, *command: str) -> None:
        """Start it, and do not wait. What it prints and logs is in `log`."""
        if self._forks:
            self._started.append(self._forks.start_into(log, *command, cwd=self.folder, env=self.environment))
        else:
            with log.open("w") as file:
                self._started.append(
                    subprocess.Popen(
                        command, cwd=self.folder, env=self.environment, stdout=file, stderr=subprocess.STDOUT, text=True
                    )
                )

    def press_ctrl_c(self) -> None:
        """End what was started last, and wait for its end."""
        process = self._started.pop()
        process.send_signal(signal.SIGINT)
        assert process.wait() == 0

    def close(self) -> None:
        while self._started:
            self.press_ctrl_c()
