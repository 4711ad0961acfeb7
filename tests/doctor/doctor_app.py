"""An application whose handlers are as ill as a test needs them."""

import os
import signal
from typing import Any

from partbox import DownstreamUnavailable, Outbox


def ill(*given: str, **settings: Any) -> Outbox:
    """An outbox whose handlers fail, but leave their process alive."""
    outbox = Outbox(*given, **settings)

    @outbox.on("Placed")
    def placed(event: Any) -> None:
        pass

    @outbox.on("Broken")
    def broken(event: Any) -> None:
        raise ValueError("no such customer")

    @outbox.on("Sent")
    def sent(event: Any) -> None:
        raise DownstreamUnavailable("the mail server is down")

    return outbox


outbox = ill()


@outbox.on("Deadly")
def deadly(event: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)
