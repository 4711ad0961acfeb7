"""Places beside `/metrics` where an outbox shows its metrics: a Prometheus registry, and displays of other kinds.
prometheus-client is loaded only if there is such a place."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from partbox.events import Event
from partbox.observe.metrics.meter import Meter, Meters, MetricsRecorder
from partbox.observe.observer import Observer

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.registry import Collector

    from partbox.observe.metrics.application import ApplicationCollector


class Display(Observer):
    """An observer that exports all metrics of a process by its own means, such as OpenTelemetry."""

    def export_collector(self, prefix: str, collector: "Collector") -> Callable[[], None]:
        """Export a collector's metrics, whose names begin with `prefix`, until the returned function is called."""
        raise NotImplementedError

    def build_recorder(self, prefix: str, subscription: str) -> Observer:
        """Return an observer of a worker in this process for metrics that no collector has, such as histograms."""
        raise NotImplementedError


def list_displays(observers: Iterable[Observer]) -> list[Display]:
    return [each for each in observers if isinstance(each, Display)]


def add_recorders(observers: Sequence[Observer], meter: Meter | None, prefix: str, subscription: str) -> list[Observer]:
    """Return the observers of a worker or supervisor, plus the observers that record its metrics."""
    more = [] if meter is None else [MetricsRecorder(meter)]
    return [*observers, *more, *(each.build_recorder(prefix, subscription) for each in list_displays(observers))]


class ApplicationRegistry(Observer):
    """The link between an outbox's metrics and a Prometheus registry or other exporters. As an observer, it counts the
    published events. Worker processes get an empty copy, because no registry is shown there."""

    def __init__(self, registry: "CollectorRegistry | None" = None, prefix: str = "") -> None:
        self._prefix = prefix
        self._collector: ApplicationCollector | None = None
        if registry is not None:
            from partbox.observe.metrics.application import get_application_collector

            self._collector = get_application_collector(registry, prefix)

    def show_on(self, display: Display) -> None:
        """Export the metrics of this application through one more exporter."""
        if self._collector is None:
            from partbox.observe.metrics.application import ApplicationCollector

            self._collector = ApplicationCollector(self._prefix)
        display.export_collector(self._prefix, self._collector)

    def published(self, events: Sequence[Event]) -> None:
        if self._collector is not None:
            self._collector.count_published(len(events))

    def get_shared_meters(self, subscription: str, handlers: Sequence[str], sinks: Sequence[str]) -> Meters | None:
        """Return the metric values for a worker in this process, or None if no metrics are exported."""
        return None if self._collector is None else self._collector.get_shared_meters(subscription, handlers, sinks)

    def build_node_meters(
        self, subscription: str, handlers: Sequence[str], sinks: Sequence[str], *, wanted: bool
    ) -> Meters | None:
        """Return new metric values for a node, or None if they are neither `wanted` nor shown here."""
        if not wanted and self._collector is None:
            return None
        meters = Meters(handlers, sinks)
        if self._collector is not None:
            self._collector.add_meters(subscription, meters)
        return meters

    def __reduce__(self) -> tuple[Any, ...]:
        return ApplicationRegistry, ()
