"""The observer behind the metrics: it counts into the meter of its process."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence

from partbox.events import DeliveredEvent
from partbox.observe.metrics.meter import OTHER, Meter
from partbox.observe.metrics.table import ACKNOWLEDGED_SECONDS, HANDLER_SECONDS, HANDOVER_SECONDS, LAG_SECONDS, PARKED
from partbox.observe.observer import Answer, Load, Observer, Turn
from partbox.protocol.verdict import Verdict


class MetricsRecorder(Observer):
    """Counts for one process, or for a supervisor. No hook loops over events."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._cells = meter.cells
        self._lock = meter.lock
        # The first cells of series, by the names of their metrics: of the subscription, of a handler, of a sink.
        self._at = meter.layout.series("")
        self._of = {handler: meter.layout.series(handler) for handler in meter.layout.handlers}
        self._other = self._of[OTHER]
        self._sinks = {sink: meter.layout.series(sink) for sink in meter.layout.sinks}
        self._parked = {state: meter.layout.at("parked_total", state) for state in PARKED}

    def read(self, records: Sequence[tuple[int, int]], seconds: float, late_ids: int) -> None:
        with self._lock:
            self._cells[self._at["records_read_total"]] += len(records)
            self._cells[self._at["late_scan_ids_total"]] += late_ids

    def delivered(self, turn: Turn) -> None:
        of, cells, count = self._of.get(turn.handler, self._other), self._cells, turn.count
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
        of, cells = self._of.get(handler, self._other), self._cells
        failed = error is not None or verdict.attempts >= event.attempt
        with self._lock:
            cells[of["failed_total"]] += failed
            cells[of["dead_total"]] += verdict.state == "dead"
            cells[of["deferred_total"]] += verdict.state == "deferred"
            if seconds is not None:
                self._observe(of["handler_seconds"], HANDLER_SECONDS, seconds)

    def sending(self, handler: str, messages: int) -> None:
        sink = self._sinks.get(handler)
        if sink is not None:
            with self._lock:
                self._cells[sink["sink_in_flight"]] += messages

    def answered(self, handler: str, answer: Answer) -> None:
        sink = self._sinks.get(handler)
        if sink is None:
            return
        with self._lock:
            self._cells[sink["sink_in_flight"]] -= answer.messages
            self._cells[sink["sink_sent_total"]] += answer.acknowledged
            self._cells[sink["sink_retries_total"]] += answer.retried
            acknowledged = sink["sink_acknowledged_seconds"]
            self._observe(acknowledged, ACKNOWLEDGED_SECONDS, answer.seconds, answer.acknowledged)

    def circuit(self, handler: str, is_open: bool) -> None:
        self._cells[self._of.get(handler, self._other)["circuit_open"]] = float(is_open)

    def saved(self, partitions: int, parked: Mapping[str, int], seconds: float) -> None:
        with self._lock:
            self._cells[self._at["saves_total"]] += 1
            self._cells[self._at["save_seconds_total"]] += seconds
            for state, count in parked.items():
                self._cells[self._parked[state]] += count

    def refused(self, partitions: int) -> None:
        self._meter.add("fence_rejections_total")

    def claimed(self, partition: int, epoch: int, pause: float | None) -> None:
        with self._lock:
            self._cells[self._at["claimed_partitions_total"]] += 1
            if pause is not None:
                self._observe(self._at["handover_seconds"], HANDOVER_SECONDS, pause)

    def lost(self, partition: int) -> None:
        self._meter.add("lost_partitions_total")

    def loaded(self, load: Load) -> None:
        cells, at = self._cells, self._at
        cells[at["handlers_running"]] = load.running
        cells[at["lanes"]] = load.lanes
        cells[at["window_used_ratio"]] = min(1.0, load.records / load.window) if load.window else 0.0

    def planned(self, moved: int) -> None:
        self._meter.add("rebalances_total")
        self._meter.add("moved_partitions_total", moved)

    def buried(self, instances: int) -> None:
        self._meter.add("buried_instances_total", instances)

    def _observe(self, at: int, buckets: Sequence[float], seconds: float, times: int = 1) -> None:
        """Add to the histogram that begins at this cell; the caller has locked the cells."""
        seconds = max(0.0, seconds)
        self._cells[at + bisect_left(buckets, seconds)] += times
        self._cells[at + len(buckets) + 1] += seconds * times
