"""The steps of the shop's orders, and the handler that writes down each event it gets.

All worker processes append to one file. A delivery is one write of 64 bytes, which a page always holds whole: the
file is the order in which the handlers ran, across processes, and a killed process leaves no half delivery.
"""

import os
import struct
import time
from functools import cached_property
from pathlib import Path
from typing import Final, NamedTuple

from partbox.events import DeliveredEvent

STEPS: Final = ("OrderPlaced", "OrderPaid", "OrderShipped")

DELIVERY: Final = struct.Struct("<qBBHiqqq24x")


class RecordedDelivery(NamedTuple):
    """One call of the handler. `step` counts from 1; `sent` and `handled` are monotonic nanoseconds of this machine.

    `declined`: the transaction that published it was rolled back, so no handler should ever get it.
    """

    order: int
    step: int
    declined: int
    partition: int
    pid: int
    epoch: int
    sent: int
    handled: int

    @property
    def lag(self) -> float:
        """Seconds from publish to handler."""
        return max(0, self.handled - self.sent) / 1e9


class DemoRecorder:
    """The handler of every step; it travels to the worker processes."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def handle(self, event: DeliveredEvent) -> None:
        """Write the event down."""
        delivery = RecordedDelivery(
            order=int(event.aggregate_id or 0),
            step=STEPS.index(event.event_type) + 1,
            declined=event.payload["declined"],
            partition=event.partition,
            pid=os.getpid(),
            epoch=event.epoch,
            sent=event.payload["sent"],
            handled=time.monotonic_ns(),
        )
        os.write(self._file, DELIVERY.pack(*delivery))

    @cached_property
    def _file(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
