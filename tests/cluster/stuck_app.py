"""An application whose observer does not return once its handler has ended, until there is a `cure`."""

import os
import threading
import time
from pathlib import Path

from partbox import DeliveredEvent, Outbox
from partbox.observe import Observer, Turn
from partbox_lab.chaos.journal import JournalWriter

outbox = Outbox()
folder = Path(os.environ["CLUSTER_JOURNAL"])
writer = JournalWriter(folder)


@outbox.on("Step")
def step(event: DeliveredEvent) -> None:
    with writer.noted(event):
        pass


class Hanging(Observer):
    def delivered(self, turn: Turn) -> None:
        if not (folder / "cure").exists():
            (folder / f"hangs-{os.getpid()}-{threading.get_ident()}").touch()
            time.sleep(3600)


outbox.observe(Hanging())
