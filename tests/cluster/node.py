"""A node of a test: that of chaos, forked from a process that has imported everything unless it is `fresh`.

`forks` is another such process than the one that most tests share.
"""

import os
import signal
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from forked_commands import Command, Forks, shared
from waiting import eventually

from partbox_lab.chaos import node

PATIENCE = 120.0
"""Seconds that a loaded machine may take for what takes one or two."""


class Node(node.Node):
    """Started at once. `settings` are those of the environment: `lease=2` is PARTBOX_LEASE=2."""

    def __init__(
        self,
        name: str,
        folder: Path,
        journal: Path,
        arguments: list[str],
        settings: Mapping[str, object],
        application: str = "app:outbox",
        *,
        fresh: bool = False,
        spare: int | None = None,
        forks: Forks | None = None,
    ) -> None:
        path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
        surroundings = {"CLUSTER_JOURNAL": str(journal), "PYTHONPATH": path}
        start = node.spawn if fresh else partial(_forked, spare=spare, forks=forks)
        super().__init__(name, folder, [application, *arguments], settings, surroundings, start)

    @property
    def log(self) -> str:
        return self.log_file.read_text()

    def send(self, number: signal.Signals) -> None:
        """Signal the supervisor alone."""
        self.process.send_signal(number)

    def send_to_all(self, number: signal.Signals) -> None:
        """Signal every process of the node at once."""
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

    def end(self, timeout: float = 0.0) -> bool:
        """Kill what is left of it after `timeout` seconds."""
        return super().end(timeout)


def _forked(
    arguments: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    log: Path,
    spare: int | None,
    forks: Forks | None,
) -> Command:
    made = forks or shared()
    return made.start_into(log, "partbox", *arguments, cwd=folder, env=dict(environment), spare=spare)
