"""An application whose events end in every way that is counted: `Good` is done, `Bad` fails at each of its three
attempts, `Later` is put off once, `Hopeless` is dead at once, `Slow` waits for its gate, `Limited` has limits."""

import time
from pathlib import Path
from typing import Any

from partbox import Dead, Outbox, RetryAfter
from partbox.sinks.lines import FileSink

outbox = Outbox()
put_off: set[Any] = set()


@outbox.on("Good", name="good")
def good(event: Any) -> None:
    """Done."""


@outbox.on("Bad", name="bad", max_attempts=3, retry="fixed:0.05")
def bad(event: Any) -> None:
    raise ValueError("no")


@outbox.on("Later", name="later")
def later(event: Any) -> RetryAfter | None:
    if event.event_id in put_off:
        return None
    put_off.add(event.event_id)
    return RetryAfter(0.05)


@outbox.on("Hopeless", name="hopeless")
def hopeless(event: Any) -> Dead:
    return Dead("there is no hope")


@outbox.on("Slow", name="slow")
def slow(event: Any) -> None:
    while not Path(event.payload["gate"]).exists():
        time.sleep(0.01)  # a file is the only sign from the test to this process


@outbox.on("Limited", name="limited", rate="100/s", at_once=2)
def limited(event: Any) -> None:
    """Done."""


outbox.register(FileSink("/dev/null"), "Exported", name="export")
