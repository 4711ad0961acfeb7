"""The counters of a worker process, in its supervisor's shared memory, or in plain memory.

Each process writes only its own cells, so processes share no lock, and the counts of a killed process remain. (The
multiprocess mode of prometheus-client writes files, named by an environment variable that must be set before its
import, and keeps the gauges of the dead until somebody deletes them.)
"""

import threading
from collections.abc import Callable, Iterable, MutableSequence, Sequence
from dataclasses import dataclass
from typing import Any, Final

from partbox.observe.metrics.table import METRICS, PARKED, Metric, MetricSource

OTHER: Final = "other"
"""The label of handlers that were registered after the memory was laid out."""

MEASURED = tuple(
    metric
    for metric in METRICS
    if metric.source is MetricSource.PROCESSES or (metric.source is MetricSource.NODE and metric.kind == "counter")
)


def width(metric: Metric) -> int:
    """The number of cells of one series: for a histogram one for each bucket, one for what is above, and the sum."""
    return len(metric.buckets) + 2 if metric.buckets else 1


class Layout:
    """The layout of cells: equal wherever it is made from the same names of handlers and sinks."""

    def __init__(self, handlers: Iterable[str], sinks: Iterable[str] = ()) -> None:
        self.handlers = tuple(dict.fromkeys([*handlers, OTHER]))
        self.sinks = tuple(dict.fromkeys(sinks))
        self._at: dict[tuple[str, str], int] = {}
        self.size = 0
        for metric in MEASURED:
            for value in self.values(metric):
                self._at[metric.name, value] = self.size
                self.size += width(metric)

    def values(self, metric: Metric) -> tuple[str, ...]:
        """The values of the metric's label beside the subscription; one empty string if it has none."""
        if "handler" in metric.labels:
            return self.sinks if metric.of_sinks else self.handlers
        return PARKED if "state" in metric.labels else ("",)

    def at(self, name: str, value: str = "") -> int:
        """The first cell of this series."""
        return self._at[name, value]

    def series(self, value: str) -> dict[str, int]:
        """The first cells of all series of this value, by the names of their metrics."""
        return {name: at for (name, its), at in self._at.items() if its == value}


class Meter:
    """The cells of one process. `lock` is for the threads of that process."""

    __slots__ = ("cells", "layout", "lock")

    def __init__(self, layout: Layout, cells: MutableSequence[float] | None = None) -> None:
        self.layout = layout
        self.cells = [0.0] * layout.size if cells is None else cells
        self.lock = threading.Lock()

    @classmethod
    def shared(cls, layout: Layout, context: Any) -> "Meter":
        """In memory that children of `context` (multiprocess) inherit."""
        return cls(layout, context.RawArray("d", layout.size))

    def add(self, name: str, amount: float = 1.0) -> None:
        """Increase a series that has no label beside the subscription."""
        with self.lock:
            self.cells[self.layout.at(name)] += amount


@dataclass(frozen=True, slots=True)
class MeterReading:
    """The cells of a node at one moment: `counted` sums all, dead processes included, and is meaningless for gauges;
    `living`: the cells of each living process."""

    layout: Layout
    counted: Sequence[float]
    living: Sequence[Sequence[float]]


class Meters:
    """The meters of a node: its own, those of its living processes, and the counts of dead ones."""

    def __init__(self, handlers: Iterable[str], sinks: Iterable[str] = ()) -> None:
        self.layout = Layout(handlers, sinks)
        self.own = Meter(self.layout)
        self._living: list[Meter] = []
        self._past = [0.0] * self.layout.size
        self._lock = threading.Lock()
        self.ended: Callable[[], None] = lambda: None
        """Called when their node has ended for good: from then on only the counts matter."""

    def join(self, meter: Meter) -> None:
        """Add the meter of a process that starts."""
        with self._lock:
            self._living.append(meter)

    def retire(self, meter: Meter) -> None:
        """Close the meter of a dead process: its counts stay, its gauges go. Idempotent."""
        with self._lock:
            if not any(each is meter for each in self._living):
                return
            self._living = [each for each in self._living if each is not meter]
            for at, value in enumerate(meter.cells[:]):
                self._past[at] += value

    def absorb(self, others: "Meters") -> None:
        """Add the counts of meters with the same layout, whose node has ended."""
        counted = others.reading().counted
        with self._lock:
            self._past = [mine + theirs for mine, theirs in zip(self._past, counted, strict=True)]

    def reading(self) -> MeterReading:
        """All of it, now."""
        with self._lock:
            living = [meter.cells[:] for meter in self._living]
            sources = [self._past, self.own.cells[:], *living]
        return MeterReading(self.layout, [sum(column) for column in zip(*sources, strict=True)], living)
