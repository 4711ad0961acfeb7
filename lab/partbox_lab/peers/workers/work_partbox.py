"""A node of partbox: a supervisor with its worker processes, paused until the start."""

import threading
import time
from typing import Any

from handle_partbox import handle
from reporting import RUN, wait_for_go

from partbox import Outbox


def main(handler: Any = handle) -> None:
    outbox = Outbox(RUN["dsn"])
    outbox.register(handler, "*")
    outbox.subscriptions.pause("default")
    node = outbox.supervisor(processes=RUN["processes"])
    node.start()
    while not (len(node.children) == RUN["processes"] and all(child.instance for child in node.children)):
        time.sleep(0.02)
    ended = threading.Event()
    wait_for_go(ended.set)
    outbox.subscriptions.resume("default")
    ended.wait()
    node.stop()
    node.join()


if __name__ == "__main__":
    main()
