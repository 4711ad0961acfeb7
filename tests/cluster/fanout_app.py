"""An application whose handlers write down every event, in each of several subscriptions.

An event waits for its `gate`, a file, if it names one.
"""

import os
import time
from pathlib import Path
from typing import Any

from partbox import Outbox
from partbox_lab.chaos.journal import JournalWriter

outbox = Outbox()
writer = JournalWriter(Path(os.environ["CLUSTER_JOURNAL"]))


def note(event: Any) -> None:
    with writer.noted(event):
        while "gate" in event.payload and not Path(event.payload["gate"]).exists():
            time.sleep(0.01)


for name in ("default", "audit", "urgent"):
    outbox.register(note, "*", subscription=name)
