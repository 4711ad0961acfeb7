"""Metrics in an application's own registry: its published events, and the workers in its process."""

import threading
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from weakref import WeakKeyDictionary

from prometheus_client import CollectorRegistry
from prometheus_client import Metric as Family
from prometheus_client.registry import Collector

from partbox.errors import SettingsError
from partbox.observe.metrics.families import LabelledReading, build_family, build_process_families, to_label_value
from partbox.observe.metrics.meter import Layout, Meters
from partbox.observe.metrics.table import BY_NAME


class ApplicationCollector(Collector):
    """A Prometheus collector of the metrics of all outboxes in one application process.

    There is one for each registry and each prefix of metric names. Series with the same labels are summed."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._lock = threading.Lock()
        self._published_count = 0
        self._meters: list[tuple[str, Meters]] = []
        self._totals: dict[tuple[str, tuple[str, ...], tuple[str, ...]], Meters] = {}

    def count_published(self, events: int) -> None:
        with self._lock:
            self._published_count += events

    def add_meters(self, subscription: str, meters: Meters) -> None:
        """Include the metrics of a worker node in this collector's output."""
        # Once the node has ended, its meters are merged with the meters of earlier nodes, so that only the counts
        # remain.
        meters.on_end = partial(self._merge_ended, subscription, meters)
        with self._lock:
            self._meters.append((subscription, meters))

    def get_shared_meters(self, subscription: str, handlers: Iterable[str], sinks: Iterable[str] = ()) -> Meters:
        """Return the object that holds the metric values of all workers with these handlers and sinks."""
        # Workers with the same names share their meters, so that many short-lived workers leak no memory.
        with self._lock:
            return self._get_totals(subscription, Layout(handlers, sinks))

    def describe(self) -> list[Family]:
        """Return the metric families without values, so that the registry can detect duplicate names."""
        return list(self._build_families(0, []))

    def collect(self) -> Iterator[Family]:
        with self._lock:
            published, meters = self._published_count, list(self._meters)
        return self._build_families(
            published, [LabelledReading((to_label_value(name),), each.take_reading()) for name, each in meters]
        )

    def _get_totals(self, subscription: str, layout: Layout) -> Meters:
        key = subscription, layout.handlers, layout.sinks
        if key not in self._totals:
            self._totals[key] = Meters(layout.handlers, layout.sinks)
            self._meters.append((subscription, self._totals[key]))
        return self._totals[key]

    def _merge_ended(self, subscription: str, ended: Meters) -> None:
        """Add the counts of a worker node that has ended to the totals, and stop showing its other metrics."""
        # The counts are added to those of earlier nodes. A second call does nothing.
        with self._lock:
            if any(meters is ended for _, meters in self._meters):
                self._get_totals(subscription, ended.layout).absorb_counts(ended)
                self._meters = [each for each in self._meters if each[1] is not ended]

    def _build_families(self, published: int, reads: Sequence[LabelledReading]) -> Iterator[Family]:
        made = build_family(self._prefix, BY_NAME["published_total"])
        made.add_metric([], published)  # type: ignore[attr-defined]
        yield made
        yield from build_process_families(self._prefix, reads)


_applications: WeakKeyDictionary[CollectorRegistry, dict[str, ApplicationCollector]] = WeakKeyDictionary()
_registering = threading.Lock()


def get_application_collector(registry: CollectorRegistry, prefix: str) -> ApplicationCollector:
    """Return the collector of partbox's metrics in a Prometheus registry. Raise SettingsError for a name conflict."""
    # The first call registers it. A name conflict means that the registry has metrics of others with the same names.
    if not isinstance(registry, CollectorRegistry):
        raise SettingsError(f"registry = {registry!r} must be a prometheus_client.CollectorRegistry, such as REGISTRY")
    with _registering:
        known = _applications.setdefault(registry, {})
        if prefix not in known:
            made = ApplicationCollector(prefix)
            try:
                registry.register(made)
            except ValueError:
                raise SettingsError(
                    f"the registry already has other metrics whose names begin with {prefix}_: set metrics_prefix"
                ) from None
            known[prefix] = made
        return known[prefix]
