"""Counters of worker processes, in memory that the supervisor shares with them, or in plain memory. Each process writes
only its own cells, so processes share no lock, and the counts of a killed process remain."""

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, MutableSequence, Sequence
from dataclasses import dataclass
from typing import Any, Final

from partbox.events import DeliveredEvent
from partbox.observe.metrics.table import (
    ACKNOWLEDGED_SECONDS,
    HANDLER_SECONDS,
    HANDOVER_SECONDS,
    LAG_SECONDS,
    METRICS,
    PARKED,
    Metric,
    MetricSource,
)
from partbox.observe.observer import Answer, Load, Observer, Turn
from partbox.protocol.verdict import Verdict

# The label of handlers that were registered after the memory was laid out.
OTHER: Final = "other"

MEASURED = tuple(
    metric
    for metric in METRICS
    if metric.source is MetricSource.PROCESSES or (metric.source is MetricSource.NODE and metric.kind == "counter")
)


def count_cells(metric: Metric) -> int:
    """Return the number of values in shared memory that one time series of a metric needs."""
    # A histogram has a cell for each bucket, one for larger values, and one for the sum. Other metrics have one.
    return len(metric.buckets) + 2 if metric.buckets else 1


class Layout:
    """A map of the shared memory of one worker process, with the index at which the values of each metric begin.

    Layouts made from the same names of handlers and sinks are equal in every process."""

    def __init__(self, handlers: Iterable[str], sinks: Iterable[str] = ()) -> None:
        self.handlers = tuple(dict.fromkeys([*handlers, OTHER]))
        self.sinks = tuple(dict.fromkeys(sinks))
        # The indexes of each metric, by label value and metric name.
        self._indexes: dict[str, dict[str, int]] = {}
        self.size = 0
        for metric in MEASURED:
            for value in self.list_label_values(metric):
                self._indexes.setdefault(value, {})[metric.name] = self.size
                self.size += count_cells(metric)

    def list_label_values(self, metric: Metric) -> tuple[str, ...]:
        """Return the label values of a metric, such as the names of the handlers."""
        # The label is the one beside the subscription. Return one empty string if the metric has no such label.
        if "handler" in metric.labels:
            return self.sinks if metric.of_sinks else self.handlers
        return PARKED if "state" in metric.labels else ("",)

    def find_index(self, name: str, value: str = "") -> int:
        """Return the index in shared memory at which the values of a metric with this label value begin."""
        return self._indexes[value][name]

    def list_indexes(self, value: str) -> dict[str, int]:
        """Return the first index in shared memory of each metric that has this label value, by metric name."""
        return self._indexes.get(value, {})


class Meter:
    """The current metric values of one process, in memory that its supervisor may read."""

    # `lock` is for the threads of the process.

    __slots__ = ("cells", "layout", "lock")

    def __init__(self, layout: Layout, cells: MutableSequence[float] | None = None) -> None:
        self.layout = layout
        self.cells = [0.0] * layout.size if cells is None else cells
        self.lock = threading.Lock()

    @classmethod
    def create_shared(cls, layout: Layout, context: Any) -> "Meter":
        """Return a meter in memory that child processes of this multiprocessing context inherit."""
        # The multiprocess mode of prometheus-client would write files instead, whose folder an environment variable
        # must name before its import, and keep the gauges of dead processes until somebody deletes them.
        return cls(layout, context.RawArray("d", layout.size))

    def add(self, name: str, amount: float = 1.0) -> None:
        # The metric's only label is the subscription.
        with self.lock:
            self.cells[self.layout.find_index(name)] += amount


@dataclass(frozen=True, slots=True)
class MeterReading:
    """A copy of the metric values of all processes of a worker node at one moment."""

    # `totals` sums the values of all processes, living and dead, and means nothing for gauges. `living_cells` has the
    # values of each living process.

    layout: Layout
    totals: Sequence[float]
    living_cells: Sequence[Sequence[float]]


class Meters:
    """The metric values of a node: of its supervisor, its living processes, and the totals of its dead ones."""

    def __init__(self, handlers: Iterable[str], sinks: Iterable[str] = ()) -> None:
        self.layout = Layout(handlers, sinks)
        self.own_meter = Meter(self.layout)
        self._living_meters: list[Meter] = []
        self._past_totals = [0.0] * self.layout.size
        self._lock = threading.Lock()
        # Called when the node has ended for good. From then on only the counts matter.
        self.on_end: Callable[[], None] = lambda: None

    def add_meter(self, meter: Meter) -> None:
        """Include the metric values of a worker process that starts."""
        with self._lock:
            self._living_meters.append(meter)

    def retire_meter(self, meter: Meter) -> None:
        """Remove a dead process's metric values, but keep its counts in the totals. A second call does nothing."""
        with self._lock:
            if not any(each is meter for each in self._living_meters):
                return
            self._living_meters = [each for each in self._living_meters if each is not meter]
            for at, value in enumerate(meter.cells[:]):
                self._past_totals[at] += value

    def absorb_counts(self, others: "Meters") -> None:
        """Add the counts of another node that has ended. Both must have the same layout."""
        counted = others.take_reading().totals
        with self._lock:
            self._past_totals = [mine + theirs for mine, theirs in zip(self._past_totals, counted, strict=True)]

    def take_reading(self) -> MeterReading:
        """Return a copy of the present metric values of all processes of the node."""
        with self._lock:
            living = [meter.cells[:] for meter in self._living_meters]
            sources = [self._past_totals, self.own_meter.cells[:], *living]
        return MeterReading(self.layout, [sum(column) for column in zip(*sources, strict=True)], living)


class MetricsRecorder(Observer):
    """An observer that counts events and measures durations for the metrics of one worker process or supervisor.

    No hook loops over events, so that counting costs the same for a long run of events as for one."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._cells = meter.cells
        self._lock = meter.lock
        # The first cells of the series, by metric name: of the subscription, of each handler, of each sink.
        self._indexes = meter.layout.list_indexes("")
        self._indexes_by_handler = {handler: meter.layout.list_indexes(handler) for handler in meter.layout.handlers}
        self._other_indexes = self._indexes_by_handler[OTHER]
        self._indexes_by_sink = {sink: meter.layout.list_indexes(sink) for sink in meter.layout.sinks}
        self._parked_indexes = {state: meter.layout.find_index("parked_total", state) for state in PARKED}

    def read(self, records: Sequence[tuple[int, int]], seconds: float, late_ids: int) -> None:
        with self._lock:
            self._cells[self._indexes["records_read_total"]] += len(records)
            self._cells[self._indexes["late_scan_ids_total"]] += late_ids

    def delivered(self, turn: Turn) -> None:
        of, cells, count = self._indexes_by_handler.get(turn.handler, self._other_indexes), self._cells, turn.count
        ran, lag, first = of["handler_seconds"], of["lag_seconds"], count // 2
        oldest, newest = max(0.0, turn.ended - turn.oldest), max(0.0, turn.ended - turn.newest)
        with self._lock:
            cells[of["delivered_total"]] += count
            cells[ran] += count - len(turn.slow)
            for seconds in turn.slow:
                cells[ran + bisect_left(HANDLER_SECONDS, seconds)] += 1
            cells[ran + len(HANDLER_SECONDS) + 1] += turn.seconds
            cells[lag + bisect_left(LAG_SECONDS, oldest)] += first
            cells[lag + bisect_left(LAG_SECONDS, newest)] += count - first
            cells[lag + len(LAG_SECONDS) + 1] += oldest * first + newest * (count - first)

    def parked(
        self, event: DeliveredEvent, handler: str, verdict: Verdict, error: BaseException | None, seconds: float | None
    ) -> None:
        of, cells = self._indexes_by_handler.get(handler, self._other_indexes), self._cells
        failed = error is not None or verdict.attempts >= event.attempt
        with self._lock:
            cells[of["failed_total"]] += failed
            cells[of["dead_total"]] += verdict.state == "dead"
            cells[of["deferred_total"]] += verdict.state == "deferred"
            if seconds is not None:
                self._add_duration(of["handler_seconds"], HANDLER_SECONDS, seconds)

    def sending(self, handler: str, messages: int) -> None:
        sink = self._indexes_by_sink.get(handler)
        if sink is not None:
            with self._lock:
                self._cells[sink["sink_in_flight"]] += messages

    def answered(self, handler: str, answer: Answer) -> None:
        sink = self._indexes_by_sink.get(handler)
        if sink is None:
            return
        with self._lock:
            self._cells[sink["sink_in_flight"]] -= answer.messages
            self._cells[sink["sink_sent_total"]] += answer.acknowledged
            self._cells[sink["sink_retries_total"]] += answer.retried
            acknowledged = sink["sink_acknowledged_seconds"]
            self._add_duration(acknowledged, ACKNOWLEDGED_SECONDS, answer.seconds, answer.acknowledged)

    def circuit(self, handler: str, is_open: bool) -> None:
        self._cells[self._indexes_by_handler.get(handler, self._other_indexes)["circuit_open"]] = float(is_open)

    def saved(self, partitions: int, parked: Mapping[str, int], seconds: float) -> None:
        with self._lock:
            self._cells[self._indexes["saves_total"]] += 1
            self._cells[self._indexes["save_seconds_total"]] += seconds
            for state, count in parked.items():
                self._cells[self._parked_indexes[state]] += count

    def refused(self, partitions: int) -> None:
        self._meter.add("fence_rejections_total")

    def claimed(self, partition: int, epoch: int, pause: float | None) -> None:
        with self._lock:
            self._cells[self._indexes["claimed_partitions_total"]] += 1
            if pause is not None:
                self._add_duration(self._indexes["handover_seconds"], HANDOVER_SECONDS, pause)

    def lost(self, partition: int) -> None:
        self._meter.add("lost_partitions_total")

    def loaded(self, load: Load) -> None:
        cells, at = self._cells, self._indexes
        cells[at["handlers_running"]] = load.running
        cells[at["lanes"]] = load.lanes
        cells[at["window_used_ratio"]] = min(1.0, load.records / load.window) if load.window else 0.0

    def planned(self, moved: int) -> None:
        self._meter.add("rebalances_total")
        self._meter.add("moved_partitions_total", moved)

    def buried(self, instances: int) -> None:
        self._meter.add("buried_instances_total", instances)

    def _add_duration(self, at: int, buckets: Sequence[float], seconds: float, times: int = 1) -> None:
        """Add a value in seconds to a histogram. The caller holds the lock."""
        # The cells of the histogram begin at the index `at`.
        seconds = max(0.0, seconds)
        self._cells[at + bisect_left(buckets, seconds)] += times
        self._cells[at + len(buckets) + 1] += seconds * times
