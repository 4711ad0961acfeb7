"""An application whose handlers end badly, beside harmless ones.

Every handler notes its start; a `Kill` ends its process, an `Eat` has the kernel do it, a `Hang` never returns, nor
does a `HangInPool` and an `AsyncHang`, a `Hold` never lets go of the interpreter. `Step`, `Listed` and `Effect` are
harmless: they take `seconds` and wait for their `gate`; an `Effect` is counted in the database. What `on_error` is told
goes to the log.
"""

import asyncio
import ctypes
import logging
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from partbox import Outbox
from partbox_lab.chaos.journal import JournalWriter

outbox = Outbox()
writer = JournalWriter(Path(os.environ["CLUSTER_JOURNAL"]))
A_YEAR = 31_536_000


def takes_its_time(payload: dict[str, Any]) -> None:
    time.sleep(payload.get("seconds", 0))
    while "gate" in payload and not Path(payload["gate"]).exists():
        time.sleep(0.01)


def say(event: Any, error: BaseException, attempt: int) -> None:
    logging.getLogger("poison").error("on_error: %s %s %d", event.event_type, type(error).__name__, attempt)


def never_ending(event: Any, wait: Callable[[], object]) -> None:
    with writer.noted(event):
        wait()


@outbox.on("Step")
def step(event: Any) -> None:
    with writer.noted(event):
        takes_its_time(event.payload)


@outbox.on_batch("Listed", max_size=10)
def listed(events: list[Any]) -> None:
    for event in events:
        step(event)


@outbox.on("Effect", transactional=True)
def effect(event: Any, conn: Any) -> None:
    with writer.noted(event):
        conn.execute("insert into effect (event) values (%s)", [event.event_id])
        takes_its_time(event.payload)


@outbox.on("Kill")
def kill(event: Any) -> None:
    never_ending(event, lambda: os.kill(os.getpid(), signal.SIGKILL))


@outbox.on("Eat")
def eat(event: Any) -> None:
    """Take more memory than the kernel gives."""
    never_ending(event, lambda: [bytearray(b"x" * (1 << 20)) for _ in range(2_000)])


@outbox.on("Hang", on_error=say)
def hang(event: Any) -> None:
    never_ending(event, lambda: time.sleep(A_YEAR))


@outbox.on("HangInPool", on_error=say)
def hang_in_pool(event: Any) -> None:
    never_ending(event, lambda: ThreadPoolExecutor(1).submit(time.sleep, A_YEAR).result())


@outbox.on("AsyncHang", on_error=say)
async def async_hang(event: Any) -> None:
    with writer.noted(event):
        await asyncio.sleep(A_YEAR)


@outbox.on("AsyncBlock", on_error=say)
async def async_block(event: Any) -> None:
    never_ending(event, lambda: time.sleep(A_YEAR))


@outbox.on("Hold")
def hold(event: Any) -> None:
    never_ending(event, lambda: ctypes.PyDLL(None).sleep(A_YEAR))
