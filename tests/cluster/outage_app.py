"""An application whose downstream is out of order until the `cure`, a file, is there: then it notes each event.

With a file `bug` it is not the downstream: a mistake of the handler fails the events of some aggregates.
"""

import os
import time
from pathlib import Path
from typing import Any

from partbox import Outbox

outbox = Outbox()
folder = Path(os.environ["CLUSTER_JOURNAL"])
notes: dict[str, int] = {}


def note(name: str, text: str) -> None:
    """Append a line to a file of this process, in one write."""
    if name not in notes:
        notes[name] = os.open(folder / f"{os.getpid()}.{name}", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(notes[name], f"{text}\n".encode())


@outbox.on("Sent")
def sent(event: Any) -> None:
    note("tried", event.aggregate_id)
    if (folder / "bug").exists():
        if int(event.aggregate_id.removeprefix("k")) % 2:
            raise KeyError("a mistake")
    elif not (folder / "cure").exists():
        raise ConnectionError("the downstream is out of order")
    note("delivered", f"{time.monotonic_ns()} {event.aggregate_id} {event.payload['seq']}")
