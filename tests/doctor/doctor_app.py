"""An application whose handlers are as ill as a test needs them."""

import os
import signal
import threading
from typing import Any

from partbox import DownstreamUnavailable, Outbox

hanging = threading.Event()
"""Ends what hangs, in this process."""


def ill(*given: str, **settings: Any) -> Outbox:
    """An outbox whose handlers fail, but leave their process alive."""
    outbox = Outbox(*given, **settings)

    @outbox.on("Placed")
    def placed(event: Any) -> None:
        pass

    @outbox.on("Broken")
    def broken(event: Any) -> None:
        raise ValueError("no such customer")

    @outbox.on("Hanging")
    def hangs(event: Any) -> None:
        hanging.wait(600)

    @outbox.on("Sent")
    def sent(event: Any) -> None:
        raise DownstreamUnavailable("the mail server is down")

    return outbox


outbox = ill()


@outbox.on("Deadly")
def deadly(event: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)
