"""The application that the nodes of these tests run.

A `Step` takes `seconds`, and waits for its `gate`, a file, to be there. `Limited` does the same, and its handler has a
limit; `AsyncStep` does so in the event loop. A `Mortal` is dead, without a note, until its `cure` is there; then it is
a `Step`.
"""

import asyncio
import os
import time
from pathlib import Path
from typing import Any

from partbox import Dead, Outbox
from partbox_lab.chaos.journal import JournalWriter

outbox = Outbox()
writer = JournalWriter(Path(os.environ["CLUSTER_JOURNAL"]))


def closed(payload: dict[str, Any]) -> bool:
    """True while the gate that the event waits for is shut."""
    return "gate" in payload and not Path(payload["gate"]).exists()


@outbox.on("Step")
def step(event: Any) -> None:
    with writer.noted(event):
        time.sleep(event.payload.get("seconds", 0))
        while closed(event.payload):
            time.sleep(0.01)


outbox.on("Limited", name="limited", rate="200/s")(step)


@outbox.on("AsyncStep")
async def async_step(event: Any) -> None:
    with writer.noted(event):
        await asyncio.sleep(event.payload.get("seconds", 0))
        while closed(event.payload):
            await asyncio.sleep(0.01)


@outbox.on("Mortal")
def mortal(event: Any) -> Dead | None:
    if not Path(event.payload["cure"]).exists():
        return Dead("there is no cure")
    step(event)
    return None
