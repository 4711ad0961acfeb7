"""The application that the nodes of a run deliver to: its handlers record their calls, and misbehave when asked.

It is imported by worker processes only, which find the run's folder in the environment.
"""

import asyncio
import ctypes
import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from partbox.errors import RecoverableError
from partbox.events import DeliveredEvent
from partbox.outbox import Outbox
from partbox_lab.chaos.faults import HANDLER_TIMEOUT, LEASE
from partbox_lab.chaos.handler_faults import FaultFile
from partbox_lab.chaos.journal import JournalWriter

FOLDER: Final = "CHAOS_FOLDER"
TARGET: Final = "partbox_lab.chaos.application:outbox"
SYNC, ASYNC = "ChaosStep", "ChaosAsyncStep"
WORK = 0.002  # seconds at most that a handler takes
LABOUR = 0.1  # the same of some, so that events wait in the process, which it must not start after losing its lease
LABORIOUS = 0.2
FAILING = 0.2  # of first attempts, while handlers fail

outbox = Outbox()
_folder = Path(os.environ.get(FOLDER, "."))
_writer = JournalWriter(_folder / "journal")
_faults = FaultFile(_folder)


@outbox.on(SYNC, timeout=HANDLER_TIMEOUT)
def step(event: DeliveredEvent) -> None:
    with _noted(event):
        time.sleep(_behave(event))


@outbox.on(ASYNC, timeout=HANDLER_TIMEOUT)
async def async_step(event: DeliveredEvent) -> None:
    with _noted(event):
        await asyncio.sleep(_behave(event))


@contextmanager
def _noted(event: DeliveredEvent) -> Iterator[None]:
    with _writer.noted(event) as call:
        try:
            yield
        except BaseException:  # a timeout cancels
            _writer.failed(call)
            raise


def _behave(event: DeliveredEvent) -> float:
    """Misbehave, or return the seconds that the work takes."""
    fault = _faults.now()
    if fault.kind == "fail" and event.attempt == 1 and random.random() < FAILING:
        raise RecoverableError("chaos")
    if fault.kind in ("hang", "block-gil") and event.attempt == 1 and _faults.take(fault.ticket):
        if fault.kind == "hang":
            return HANDLER_TIMEOUT * 2
        _hold_the_interpreter(LEASE + 0.5)
    return random.uniform(0, LABOUR if random.random() < LABORIOUS else WORK)


def _hold_the_interpreter(seconds: float) -> None:
    """Block like C code that never releases the interpreter's lock."""
    ctypes.PyDLL(None).usleep(int(seconds * 1_000_000))
