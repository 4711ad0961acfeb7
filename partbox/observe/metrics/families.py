"""Readings of meters as Prometheus metric families."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from prometheus_client import Metric as Family
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.utils import floatToGoString

from partbox.observe.metrics.meter import MEASURED, OTHER, MeterReading, width
from partbox.observe.metrics.table import BY_NAME, Metric

Labels = tuple[str, ...]
Values = dict[Labels, list[float]]


class LabelledReading(NamedTuple):
    """A reading of the processes of one subscription; `labels` are the label values of every series."""

    labels: Labels
    reading: MeterReading


def family(prefix: str, metric: Metric, extra: Labels = ()) -> Family:
    """The metric without values. `extra`: names of the labels that come before its own."""
    name, labels = f"{prefix}_{metric.name}", [*extra, *metric.labels]
    match metric.kind:
        case "counter":
            return CounterMetricFamily(name, metric.meaning, labels=labels)
        case "histogram":
            return HistogramMetricFamily(name, metric.meaning, labels=labels)
        case _:
            return GaugeMetricFamily(name, metric.meaning, labels=labels)


def of_processes(prefix: str, reads: Sequence[LabelledReading], extra: Labels = ()) -> Iterator[Family]:
    """The metrics of processes. Readings with the same labels are summed."""
    for metric in MEASURED:
        made = family(prefix, metric, extra)
        for labels, cells in sorted(_gathered(metric, reads).items()):
            if metric.buckets:
                bounds = [*map(floatToGoString, metric.buckets), "+Inf"]
                buckets = list(zip(bounds, accumulate(cells[:-1]), strict=True))
                made.add_metric(labels, buckets, cells[-1])  # type: ignore[attr-defined]
            else:
                made.add_metric(labels, cells[0])  # type: ignore[attr-defined]
        yield made
    living = family(prefix, BY_NAME["processes"], extra)
    for labels in sorted({read.labels for read in reads}):
        count = sum(len(read.reading.living) for read in reads if read.labels == labels)
        living.add_metric(labels, count)  # type: ignore[attr-defined]
    yield living


def text(value: str) -> str:
    """A label value that can be encoded: an application's names may hold what UTF-8 cannot."""
    return value.encode(errors="backslashreplace").decode()


def _gathered(metric: Metric, reads: Sequence[LabelledReading]) -> Values:
    found: Values = {}
    for labels, reading in reads:
        for value in reading.layout.values(metric):
            cells = _cells(metric, reading, value)
            if value == OTHER and not any(cells):
                continue
            whole = (*labels, *([text(value)] if value else []))
            before = found.get(whole)
            found[whole] = (
                cells if before is None else [_merged(metric, pair) for pair in zip(before, cells, strict=True)]
            )
    return found


def _cells(metric: Metric, reading: MeterReading, value: str) -> list[float]:
    at = reading.layout.at(metric.name, value)
    if metric.kind != "gauge":
        return list(reading.counted[at : at + width(metric)])
    return [_merged(metric, [cells[at] for cells in reading.living])]


def _merged(metric: Metric, values: Iterable[float]) -> float:
    return max(values, default=0.0) if metric.greatest else sum(values)
