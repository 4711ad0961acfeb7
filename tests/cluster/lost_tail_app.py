"""An application with a handler of each kind, whose calls the journal has.

An event waits for its `gate`, a file, and fails as many times as its `fails` say. An `Effect` is counted in the
database; a `Mortal` is dead.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from partbox import Dead, Outbox
from partbox_lab.chaos.journal import JournalWriter

outbox = Outbox()
writer = JournalWriter(Path(os.environ["CLUSTER_JOURNAL"]))


@contextmanager
def noted(event: Any) -> Iterator[None]:
    with writer.noted(event) as call:
        yield
        while "gate" in event.payload and not Path(event.payload["gate"]).exists():
            time.sleep(0.01)  # a file is the only sign from the test to this process
        if event.attempt <= event.payload.get("fails", 0):
            writer.failed(call)
            raise ValueError("not yet")


@outbox.on("Step", max_attempts=None)
def step(event: Any) -> None:
    with noted(event):
        pass


@outbox.on("AsyncStep", max_attempts=None)
async def async_step(event: Any) -> None:
    with noted(event):
        pass


@outbox.on_batch("Listed", max_size=10)
def listed(events: list[Any]) -> None:
    for event in events:
        with noted(event):
            pass


@outbox.on("Effect", transactional=True, max_attempts=None)
def effect(event: Any, conn: Any) -> None:
    with noted(event):
        conn.execute("insert into effect (event) values (%s)", [event.event_id])


@outbox.on("Mortal")
def mortal(event: Any) -> Dead:
    with noted(event):
        return Dead("of the lost tail")
