"""The application of a chaos run, imported by worker processes only. Its handlers note calls and misbehave when
asked."""

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

# The environment variable with the run's folder.
FOLDER: Final = "CHAOS_FOLDER"
TARGET: Final = "partbox_lab.chaos.application:outbox"
SYNC, ASYNC = "ChaosStep", "ChaosAsyncStep"
WORK = 0.002  # seconds of most handlers at most
# Some handlers are slow, so that events wait in the process, which must not start them after losing its lease.
LABOUR = 0.1  # seconds of a slow handler at most
LABORIOUS = 0.2  # share of slow handlers
FAILING = 0.2  # share of first attempts that fail, while handlers fail

outbox = Outbox()
_folder = Path(os.environ.get(FOLDER, "."))
_writer = JournalWriter(_folder / "journal")
_faults = FaultFile(_folder)


@outbox.on(SYNC, timeout=HANDLER_TIMEOUT)
def step(event: DeliveredEvent) -> None:
    """Handle an event in a thread."""
    with _noted(event):
        time.sleep(_behave(event))


@outbox.on(ASYNC, timeout=HANDLER_TIMEOUT)
async def async_step(event: DeliveredEvent) -> None:
    """Handle an event in the event loop."""
    with _noted(event):
        await asyncio.sleep(_behave(event))


@contextmanager
def _noted(event: DeliveredEvent) -> Iterator[None]:
    with _writer.noted(event) as call:
        try:
            yield
        except BaseException:
            # A timeout cancels the handler.
            _writer.failed(call)
            raise


def _behave(event: DeliveredEvent) -> float:
    """Misbehave as the current fault says, or return the seconds this call takes."""
    fault = _faults.now()
    if fault.kind == "fail" and event.attempt == 1 and random.random() < FAILING:
        raise RecoverableError("chaos")
    if fault.kind in ("hang", "block-gil") and event.attempt == 1 and _faults.take(fault.ticket):
        if fault.kind == "hang":
            return HANDLER_TIMEOUT * 2
        _hold_the_interpreter(LEASE + 0.5)
    return random.uniform(0, LABOUR if random.random() < LABORIOUS else WORK)


def _hold_the_interpreter(seconds: float) -> None:
    """Block as C code does that never releases the GIL."""
    ctypes.PyDLL(None).usleep(int(seconds * 1_000_000))
