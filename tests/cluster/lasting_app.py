"""An application whose handler does nothing, and now and then all else that a handler may do."""

import os
from pathlib import Path
from typing import Any

from in_use import Teller

from partbox import Dead, Outbox

SELDOM = 10_000

outbox = Outbox()
teller = Teller(Path(os.environ["CLUSTER_JOURNAL"]))


def handle(event: Any) -> Dead | None:
    """One event in SELDOM fails once and holds up what is behind it for a while; another one is dead."""
    teller.tell()
    kind = event.id % SELDOM
    if kind == 1:
        return Dead("one of the dead")
    if event.attempt == 1 and kind == 2:
        raise ValueError("not at once")
    return None


outbox.register(handle, "*")
