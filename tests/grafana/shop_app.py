"""The application of the nodes that Prometheus watches: its handlers do what files in this folder tell them.

`Placed` waits while `shut` is there. `Shipped` fails until `shipping` is there, `Lost` is dead until `found` is.
`Billed` is put off once; `Exported` goes to a file.
"""

import time
from pathlib import Path
from typing import Any

from partbox import Dead, Outbox, RetryAfter
from partbox.sinks.lines import FileSink

outbox = Outbox()
here = Path(__file__).parent
put_off: set[Any] = set()


@outbox.on("Placed", name="place")
def place(event: Any) -> None:
    time.sleep(0.002)  # so that a backlog can be seen from outside
    while (here / "shut").exists():
        time.sleep(0.02)  # a file is the only sign from the test to this process


@outbox.on("Shipped", name="ship", retry="fixed:0.3", max_attempts=1000)
def ship(event: Any) -> None:
    if not (here / "shipping").exists():
        raise ConnectionError("the carrier does not answer")


@outbox.on("Lost", name="lose")
def lose(event: Any) -> Dead | None:
    return None if (here / "found").exists() else Dead("it is lost")


@outbox.on("Limited", name="limited", rate="100/s", at_once=5)
def limited(event: Any) -> None:
    """Has a limit, for the panels of limits."""


@outbox.on("Billed", name="bill")
def bill(event: Any) -> RetryAfter | None:
    if event.event_id in put_off:
        return None
    put_off.add(event.event_id)
    return RetryAfter(0.1)


outbox.register(FileSink(here / "exported.jsonl"), "Exported", name="export")
