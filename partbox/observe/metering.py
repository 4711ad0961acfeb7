"""OpenTelemetry metrics: those of the metrics table, with the same names, for `outbox.observe(Metering())`. Counters
and gauges are read at each export. A node's supervisor exports those of all its processes."""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from partbox.observe.conventions import VERSION, provider_factory

# `conventions` comes first, because its error says which extra to install.
# isort: split
from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, Histogram, Meter, MeterProvider, NoOpMeterProvider, Observation
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from partbox.events import DeliveredEvent
from partbox.observe.metrics.families import label_value, merge_values
from partbox.observe.metrics.registry import Display
from partbox.observe.metrics.table import METRICS, Metric
from partbox.observe.observer import Answer, Observer, Turn
from partbox.protocol.verdict import Verdict


class Metering(Display):
    """An observer that exports partbox's metrics to an OpenTelemetry meter provider, by default the global one.

    A provider cannot be sent to worker processes that get their handlers from this process. Give a function that makes
    a provider in each process, or set the global provider in the module that they import. `histograms` cost ten
    microseconds for each event in a worker. Everything else costs nothing there."""

    def __init__(
        self,
        meter_provider: MeterProvider | Callable[[], MeterProvider] | None = None,
        *,
        histograms: bool = True,
    ) -> None:
        self._given = meter_provider
        self._histograms = histograms
        self._lock = threading.Lock()
        self._made: MeterProvider | None = None

    def show(self, prefix: str, collector: Collector) -> Callable[[], None]:
        return self._instruments(prefix).show(collector)

    def recorder(self, prefix: str, subscription: str) -> Observer:
        return HistogramRecorder(self._instruments(prefix).histograms, subscription) if self._histograms else Observer()

    def _instruments(self, prefix: str) -> "Instruments":
        with self._lock:
            if self._made is None:
                self._made = self._given() if callable(self._given) else self._given
            return _instruments(self._made, prefix)

    def __reduce__(self) -> tuple[Any, ...]:
        given = provider_factory(self._given, "meter provider", "Metering")
        return partial(Metering, histograms=self._histograms), (given,)


class Instruments:
    """The OpenTelemetry instruments, one for each metric, of one meter provider and one prefix of metric names. The
    collectors run once for all instruments, and again when an instrument is read for the second time."""

    def __init__(self, meter: Meter, prefix: str) -> None:
        self._prefix = prefix
        self._lock = threading.Lock()
        self._collectors: tuple[Collector, ...] = ()
        # Samples by metric name, without those of metrics that were read since the last collection.
        self._unread: dict[str, list[Sample]] = {}
        self.histograms: dict[str, Histogram] = {}
        for metric in METRICS:
            self._make(meter, metric)

    def _make(self, meter: Meter, metric: Metric) -> None:
        name = f"{self._prefix}.{_without_suffix(metric.name)}"
        unit = "s" if name.endswith("_seconds") else "1" if name.endswith("_ratio") else ""
        if metric.buckets:
            self.histograms[metric.name] = meter.create_histogram(
                name, unit, metric.meaning, explicit_bucket_boundaries_advisory=metric.buckets
            )
        else:
            asked = meter.create_observable_counter if metric.kind == "counter" else meter.create_observable_gauge
            asked(name, [partial(self._observe, metric)], unit, metric.meaning)

    def show(self, collector: Collector) -> Callable[[], None]:
        """Export the metrics of a collector through these instruments until the returned function is called."""
        # A second call with the same collector adds nothing.
        with self._lock:
            self._collectors = (*self._others_than(collector), collector)
        return partial(self._remove_collector, collector)

    def _remove_collector(self, collector: Collector) -> None:
        with self._lock:
            self._collectors = self._others_than(collector)

    def _others_than(self, collector: Collector) -> tuple[Collector, ...]:
        return tuple(each for each in self._collectors if each is not collector)

    def _observe(self, metric: Metric, options: CallbackOptions) -> Iterator[Observation]:
        with self._lock:
            if metric.name not in self._unread:
                self._unread = self._collected()
            samples = self._unread.pop(metric.name)
        series = defaultdict(list)
        for sample in samples:
            series[tuple(sample.labels.items())].append(sample.value)
        for labels, values in series.items():
            yield Observation(merge_values(metric, values), dict(labels))

    def _collected(self) -> dict[str, list[Sample]]:
        found: dict[str, list[Sample]] = defaultdict(list)
        for collector in self._collectors:
            for family in collector.collect():
                found[family.name] += family.samples
        return {metric.name: found[f"{self._prefix}_{_without_suffix(metric.name)}"] for metric in METRICS}


class HistogramRecorder(Observer):
    """An observer that records the histograms of one worker, value by value. OpenTelemetry has no observable histogram
    that could be read at each export."""

    def __init__(self, histograms: dict[str, Histogram], subscription: str) -> None:
        self._ran = histograms["handler_seconds"].record
        self._lag = histograms["lag_seconds"].record
        self._handover = histograms["handover_seconds"].record
        self._acknowledged = histograms["sink_acknowledged_seconds"].record
        self._labels = {"subscription": label_value(subscription)}

    def delivered(self, turn: Turn) -> None:
        labels, first = self._labels_for(turn.handler), turn.count // 2
        quick = turn.count - len(turn.slow)
        mean = max(0.0, turn.seconds - sum(turn.slow)) / max(1, quick)
        oldest, newest = max(0.0, turn.ended - turn.oldest), max(0.0, turn.ended - turn.newest)
        _record(self._ran, [*turn.slow, *[mean] * quick], labels)
        _record(self._lag, [*[oldest] * first, *[newest] * (turn.count - first)], labels)

    def parked(
        self, event: DeliveredEvent, handler: str, verdict: Verdict, error: BaseException | None, seconds: float | None
    ) -> None:
        if seconds is not None:
            self._ran(max(0.0, seconds), self._labels_for(handler))

    def claimed(self, partition: int, epoch: int, pause: float | None) -> None:
        if pause is not None:
            self._handover(max(0.0, pause), self._labels)

    def answered(self, handler: str, answer: Answer) -> None:
        _record(self._acknowledged, [max(0.0, answer.seconds)] * answer.acknowledged, self._labels_for(handler))

    def _labels_for(self, handler: str) -> dict[str, str]:
        return {**self._labels, "handler": label_value(handler)}


def _record(record: Callable[[float, dict[str, str]], None], values: Sequence[float], labels: dict[str, str]) -> None:
    for value in values:
        record(value, labels)


def _without_suffix(name: str) -> str:
    # Prometheus exporters add the suffix themselves.
    return name.removesuffix("_total")


# A key that stands for the global provider, which may be set later.
_GLOBAL = NoOpMeterProvider()
_known: WeakKeyDictionary[MeterProvider, dict[str, Instruments]] = WeakKeyDictionary()
_making = threading.Lock()


def _instruments(provider: MeterProvider | None, prefix: str) -> Instruments:
    # All outboxes of the process share them, because two instruments with one name would be exported side by side.
    with _making:
        of = _known.setdefault(provider or _GLOBAL, {})
        if prefix not in of:
            of[prefix] = Instruments(metrics.get_meter("partbox", VERSION, provider), prefix)
        return of[prefix]
