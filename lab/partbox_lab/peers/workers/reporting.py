"""Reports of a Python worker to the benchmark (see processes.py). The import starts the thread that reports."""

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

RUN = json.loads(os.environ["PEER_RUN"])
WATCHED: bool = RUN["watched"]
_EVERY = 0.1 if WATCHED else 0.02  # seconds

_handled = 0
_seen: list[tuple[int, int]] = []


def handler(number_of: Callable[[Any], int]) -> Callable[[Any], None]:
    """Return a handler that reads the number in the payload and counts the event. In a watched run it notes the time
    too."""

    def count(event: Any) -> None:
        global _handled
        number_of(event)
        _handled += 1

    def note(event: Any) -> None:
        global _handled
        now = time.monotonic_ns()
        _seen.append((now, number_of(event)))
        _handled += 1

    return note if WATCHED else count


def list_handler(number_of: Callable[[Any], int]) -> Callable[[Sequence[Any]], None]:
    """Return a handler that counts the events of each list. In a watched run it notes their numbers and times too."""

    def handle(events: Sequence[Any]) -> None:
        global _handled
        now = time.monotonic_ns()
        numbers = [number_of(event) for event in events]
        if WATCHED:
            _seen.extend((now, number) for number in numbers)
        _handled += len(numbers)

    return handle


def wait_for_go(leave: Callable[[], object] = lambda: os._exit(0)) -> None:
    """Report that the worker is ready and wait for the start. `leave` is called later, when the benchmark ends the
    worker."""
    os.write(1, b"ready\n")
    if not sys.stdin.readline():
        os._exit(0)
    threading.Thread(target=_watch, args=(leave,), daemon=True).start()


def _watch(leave: Callable[[], object]) -> None:
    sys.stdin.read()
    leave()


def _report() -> None:
    pid, told, shown = os.getpid(), 0, 0
    while True:
        time.sleep(_EVERY)
        now, handled = time.monotonic_ns(), _handled
        if handled != told:
            seen = _seen[shown:]
            shown += len(seen)
            lines = [f"seen {pid} {at} {number}\n" for at, number in seen]
            told = handled
            # A pipe takes short pieces whole, which matters because processes share the pipe.
            for first in range(0, len(lines), 50):
                os.write(1, "".join(lines[first : first + 50]).encode())
            os.write(1, f"count {pid} {now} {handled}\n".encode())


threading.Thread(target=_report, daemon=True).start()
