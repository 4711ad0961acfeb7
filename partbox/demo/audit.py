"""The record of all deliveries, and its audit. All worker processes append to one file, by single writes of 64 bytes.
So the file has the order in which the handlers ran, and a killed process leaves no partial delivery."""

import os
import struct
import time
from array import array
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Final, NamedTuple

from partbox.events import DeliveredEvent

STEPS: Final = ("OrderPlaced", "OrderPaid", "OrderShipped")

DELIVERY: Final = struct.Struct("<qBBHiqqq24x")


class RecordedDelivery(NamedTuple):
    """One recorded call of the demo's handler.

    - `step`: counts from 1
    - `sent`, `handled`: monotonic nanoseconds of this machine
    - `declined`: the publishing transaction was rolled back"""

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
        """The seconds from the publishing of the event to the call of its handler."""
        return max(0, self.handled - self.sent) / 1e9


class DemoRecorder:
    """The demo's event handler, which records every delivery in a file.

    - The handler is sent to the worker processes."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def handle(self, event: DeliveredEvent) -> None:
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


class _Owner(NamedTuple):
    epoch: int
    pid: int
    after_kill: bool


class DeliveryAudit:
    """A check of the demo's delivery guarantees, which reads the growing file of recorded deliveries and counts
    violations. `duplicates` counts further deliveries of the same events, `unexplained` those without a kill.
    `out_of_order` counts deliveries whose previous step was never delivered, or whose owner had already been succeeded.
    `phantoms` were published by transactions that were rolled back."""

    def __init__(self, path: Path) -> None:
        path.touch(0o600)
        self._file = path.open("rb")
        # One bit for each step, by order.
        self._seen = bytearray()
        # The step that was delivered last, by order.
        self._last = bytearray()
        self._owners: dict[int, _Owner] = {}
        self._killed: set[int] = set()
        self.delivered = self.duplicates = self.unexplained = self.out_of_order = self.phantoms = 0

    def close(self) -> None:
        self._file.close()

    def expect_repeats(self, pid: int) -> None:
        """Expect repeated deliveries, because this process is about to be killed before it saves its progress."""
        # Its unsaved events may be delivered again.
        self._killed.add(pid)

    def read_deliveries(self) -> list[RecordedDelivery]:
        """Read the deliveries recorded since the last call, and return the first delivery of each event."""
        # Violations are counted.
        data = self._file.read()
        whole = len(data) - len(data) % DELIVERY.size
        # A partially written delivery is read the next time.
        self._file.seek(whole - len(data), os.SEEK_CUR)
        found = (RecordedDelivery(*fields) for fields in DELIVERY.iter_unpack(data[:whole]))
        return [each for each in found if self._count_delivery(each)]

    def compare_orders(self, orders: Iterable[tuple[int, int]]) -> tuple[int, int, int]:
        """Count the events that were published, lost, or delivered without having been published."""
        # `orders` is the shop's table of `(order, step)`.
        published = received = 0
        for order, step in orders:
            self._grow_to(order)
            published += step
            received += (self._seen[order] & (1 << step) - 1).bit_count()
        return published, published - received, self.delivered - received

    def _count_delivery(self, each: RecordedDelivery) -> bool:
        # The result is True for the first delivery of an event.
        if each.declined:
            self.phantoms += 1
            return False
        self._grow_to(each.order)
        owner = self._find_owner(each)
        if each.epoch != owner.epoch or each.step > self._last[each.order] + 1:
            self.out_of_order += 1
        self._last[each.order] = each.step
        bit = 1 << each.step - 1
        if self._seen[each.order] & bit:
            self.duplicates += 1
            self.unexplained += not owner.after_kill
            return False
        self._seen[each.order] |= bit
        self.delivered += 1
        return True

    def _find_owner(self, each: RecordedDelivery) -> _Owner:
        # The latest known owner of the partition may be a later one than the process that delivered.
        owner = self._owners.get(each.partition)
        if owner is None or each.epoch > owner.epoch:
            after_kill = owner is not None and owner.pid in self._killed
            owner = self._owners[each.partition] = _Owner(each.epoch, each.pid, after_kill)
        return owner

    def _grow_to(self, order: int) -> None:
        missing = bytes(max(0, order + 1 - len(self._seen)))
        self._seen += missing
        self._last += missing


WINDOW = 3.0  # seconds


class Throughput(NamedTuple):
    """The demo's counts of all events so far, and the rates per second and lags of the last seconds."""

    published: int
    published_rate: float
    delivered: int
    delivered_rate: float
    rates: dict[int, float]
    lags: tuple[float, float] | None

    @property
    def pending(self) -> int:
        # A delivery may be recorded before its publisher has counted the event.
        return max(0, self.published - self.delivered)


class DeliveryMeter:
    """A meter of how many events the demo delivers per second and how late.

    - Times are monotonic."""

    def __init__(self, now: float) -> None:
        self._began = now
        self._recent: deque[RecordedDelivery] = deque()
        self._published: deque[tuple[float, int]] = deque([(now, 0)])
        self._lags = array("f")

    def measure_deliveries(self, now: float, deliveries: Iterable[RecordedDelivery], published: int) -> Throughput:
        """Add the deliveries since the last call, and return the present counts, rates and lags."""
        # `published` counts all events so far.
        for each in deliveries:
            self._recent.append(each)
            self._lags.append(each.lag)
        while self._recent and self._recent[0].handled / 1e9 < now - WINDOW:
            self._recent.popleft()
        self._published.append((now, published))
        while len(self._published) > 2 and self._published[1][0] < now - WINDOW:
            self._published.popleft()
        first, before = self._published[0]
        span = min(WINDOW, max(0.1, now - self._began))
        return Throughput(
            published=published,
            published_rate=(published - before) / (now - first) if now > first else 0.0,
            delivered=len(self._lags),
            delivered_rate=len(self._recent) / span,
            rates={pid: count / span for pid, count in Counter(each.pid for each in self._recent).items()},
            lags=_compute_percentiles([each.lag for each in self._recent]),
        )

    def compute_lags(self) -> tuple[float, float] | None:
        """Return the median and the 99th percentile of all lags in seconds, or None before the first delivery."""
        return _compute_percentiles(self._lags)


def _compute_percentiles(lags: Sequence[float]) -> tuple[float, float] | None:
    if not lags:
        return None
    ordered = sorted(lags)
    return ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100]
