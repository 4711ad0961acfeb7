"""OpenTelemetry metrics: those of the metrics table, with the same names, for `outbox.observe(Metering())`. Counters
and gauges are read at each export. A node's supervisor exports those of all its processes."""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from partbox.observe.conventions import VERSION, require_provider_factory

# `conventions` comes first, because its error says which extra to install.
# isort: split
from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, Histogram, Meter, MeterProvider, NoOpMeterProvider, Observation
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from partbox.events import DeliveredEvent
from partbox.observe.metrics.families import merge_values, to_label_value
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
        self._given_provider = meter_provider
        self._histograms = histograms
        self._lock = threading.Lock()
        self._used_provider: MeterProvider | None = None

    def export_collector(self, prefix: str, collector: Collector) -> Callable[[], None]:
        return self._get_instruments(prefix).export_collector(collector)

    def build_recorder(self, prefix: str, subscription: str) -> Observer:
        return (
            HistogramRecorder(self._get_instruments(prefix).histograms, subscription)
            if self._histograms
            else Observer()
        )

    def _get_instruments(self, prefix: str) -> "Instruments":
        with self._lock:
            if self._used_provider is None:
                self._used_provider = self._given_provider() if callable(self._given_provider) else self._given_provider
            return _find_instruments(self._used_provider, prefix)

    def __reduce__(self) -> tuple[Any, ...]:
        given = require_provider_factory(self._given_provider, "meter provider", "Metering")
        return partial(Metering, histograms=self._histograms), (given,)


class Instruments:
    """The OpenTelemetry instruments that export partbox's metrics, one instrument for each metric.

    They belong to one meter provider and one prefix of metric names. The collectors run once for all instruments, and
    again when an instrument is read for the second time."""

    def __init__(self, meter: Meter, prefix: str) -> None:
        self._prefix = prefix
        self._lock = threading.Lock()
        self._collectors: tuple[Collector, ...] = ()
        # Samples by metric name, without those of metrics that were read since the last collection.
        self._unread_samples: dict[str, list[Sample]] = {}
        self.histograms: dict[str, Histogram] = {}
        for metric in METRICS:
            self._make_instrument(meter, metric)

    def _make_instrument(self, meter: Meter, metric: Metric) -> None:
        name = f"{self._prefix}.{_strip_suffix(metric.name)}"
        unit = "s" if name.endswith("_seconds") else "1" if name.endswith("_ratio") else ""
        if metric.buckets:
            self.histograms[metric.name] = meter.create_histogram(
                name, unit, metric.meaning, explicit_bucket_boundaries_advisory=metric.buckets
            )
        else:
            asked = meter.create_observable_counter if metric.kind == "counter" else meter.create_observable_gauge
            asked(name, [partial(self._observe, metric)], unit, metric.meaning)

    def export_collector(self, collector: Collector) -> Callable[[], None]:
        """Export the metrics of a collector through these instruments until the returned function is called."""
        # A second call with the same collector adds nothing.
        with self._lock:
            self._collectors = (*self._list_others(collector), collector)
        return partial(self._remove_collector, collector)

    def _remove_collector(self, collector: Collector) -> None:
        with self._lock:
            self._collectors = self._list_others(collector)

    def _list_others(self, collector: Collector) -> tuple[Collector, ...]:
        return tuple(each for each in self._collectors if each is not collector)

    def _observe(self, metric: Metric, options: CallbackOptions) -> Iterator[Observation]:
        with self._lock:
            if metric.name not in self._unread_samples:
                self._unread_samples = self._collect_samples()
            samples = self._unread_samples.pop(metric.name)
        series = defaultdict(list)
        for sample in samples:
            series[tuple(sample.labels.items())].append(sample.value)
        for labels, values in series.items():
            yield Observation(merge_values(metric, values), dict(labels))

    def _collect_samples(self) -> dict[str, list[Sample]]:
        found: dict[str, list[Sample]] = defaultdict(list)
        for collector in self._collectors:
            for family in collector.collect():
                found[family.name] += family.samples
        return {metric.name: found[f"{self._prefix}_{_strip_suffix(metric.name)}"] for metric in METRICS}


class HistogramRecorder(Observer):
    """An observer that records handler times, delays and other durations of one worker in OpenTelemetry histograms.

    Each value is recorded as it occurs, because OpenTelemetry has no observable histogram that could be read at each
    export."""

    def __init__(self, histograms: dict[str, Histogram], subscription: str) -> None:
        self._record_run = histograms["handler_seconds"].record
        self._record_lag = histograms["lag_seconds"].record
        self._record_handover = histograms["handover_seconds"].record
        self._record_acknowledged = histograms["sink_acknowledged_seconds"].record
        self._labels = {"subscription": to_label_value(subscription)}

    def delivered(self, turn: Turn) -> None:
        labels, first = self._build_labels(turn.handler), turn.count // 2
        quick = turn.count - len(turn.slow)
        mean = max(0.0, turn.seconds - sum(turn.slow)) / max(1, quick)
        oldest, newest = max(0.0, turn.ended - turn.oldest), max(0.0, turn.ended - turn.newest)
        _record_values(self._record_run, [*turn.slow, *[mean] * quick], labels)
        _record_values(self._record_lag, [*[oldest] * first, *[newest] * (turn.count - first)], labels)

    def parked(
        self, event: DeliveredEvent, handler: str, verdict: Verdict, error: BaseException | None, seconds: float | None
    ) -> None:
        if seconds is not None:
            self._record_run(max(0.0, seconds), self._build_labels(handler))

    def claimed(self, partition: int, epoch: int, pause: float | None) -> None:
        if pause is not None:
            self._record_handover(max(0.0, pause), self._labels)

    def answered(self, handler: str, answer: Answer) -> None:
        _record_values(
            self._record_acknowledged, [max(0.0, answer.seconds)] * answer.acknowledged, self._build_labels(handler)
        )

    def _build_labels(self, handler: str) -> dict[str, str]:
        return {**self._labels, "handler": to_label_value(handler)}


def _record_values(
    record: Callable[[float, dict[str, str]], None], values: Sequence[float], labels: dict[str, str]
) -> None:
    for value in values:
        record(value, labels)


def _strip_suffix(name: str) -> str:
    # Prometheus exporters add the suffix themselves.
    return name.removesuffix("_total")


# A key that stands for the global provider, which may be set later.
_GLOBAL = NoOpMeterProvider()
_known: WeakKeyDictionary[MeterProvider, dict[str, Instruments]] = WeakKeyDictionary()
_making = threading.Lock()


def _find_instruments(provider: MeterProvider | None, prefix: str) -> Instruments:
    # All outboxes of the process share them, because two instruments with one name would be exported side by side.
    with _making:
        of = _known.setdefault(provider or _GLOBAL, {})
        if prefix not in of:
            of[prefix] = Instruments(metrics.get_meter("partbox", VERSION, provider), prefix)
        return of[prefix]
