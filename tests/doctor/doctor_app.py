"""An application whose handlers are as ill as a test needs them."""

import os
import signal
import time
from pathlib import Path
from typing import Any

from partbox import DownstreamUnavailable, Outbox

outbox = Outbox()


@outbox.on("Placed")
def placed(event: Any) -> None:
    pass


@outbox.on("Broken")
def broken(event: Any) -> None:
    raise ValueError("no such customer")


@outbox.on("Deadly")
def deadly(event: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@outbox.on("Slow")
def slow(event: Any) -> None:
    while not Path("gate").exists():
        time.sleep(0.01)  # a file is the only sign from the test to this process


@outbox.on("Sent")
def sent(event: Any) -> None:
    raise DownstreamUnavailable("the mail server is down")
