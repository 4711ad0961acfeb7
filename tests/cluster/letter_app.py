"""An application whose events die at once, and whose dead-letter hook kills its process until there is a `cure`."""

import os
import signal
from pathlib import Path
from typing import Any

from partbox import Dead, Outbox
from partbox_lab.chaos.journal import JournalWriter

outbox = Outbox()
folder = Path(os.environ["CLUSTER_JOURNAL"])
writer = JournalWriter(folder)


@outbox.on("Step")
def step(event: Any) -> Dead | None:
    return Dead("no use") if event.payload["seq"] == 2 else None


@outbox.on_dead_letter
def letter(event: Any, error: str) -> None:
    with writer.noted(event):
        if not (folder / "cure").exists():
            os.kill(os.getpid(), signal.SIGKILL)
