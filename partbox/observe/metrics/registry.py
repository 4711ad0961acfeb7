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
    """The base class of observers that export all metrics of a process to another system, such as OpenTelemetry."""

    def export_collector(self, prefix: str, collector: "Collector") -> Callable[[], None]:
        """Export a collector's metrics, whose names begin with `prefix`, until the returned function is called."""
        raise NotImplementedError

    def build_recorder(self, prefix: str, subscription: str) -> Observer:
        """Return an observer that records metrics of a worker in this process that no collector exports, such as
        histograms."""
        raise NotImplementedError


def list_displays(observers: Iterable[Observer]) -> list[Display]:
    return [each for each in observers if isinstance(each, Display)]


def add_recorders(observers: Sequence[Observer], meter: Meter | None, prefix: str, subscription: str) -> list[Observer]:
    """Return the observers of a worker or supervisor, plus the observers that record its metrics."""
    more = [] if meter is None else [MetricsRecorder(meter)]
    return [*observers, *more, *(each.build_recorder(prefix, subscription) for each in list_displays(observers))]


class ApplicationRegistry(Observer):
    """An observer that counts published events and shows an application's metrics in a Prometheus registry or
    elsewhere.

    Other places are exporters such as OpenTelemetry. Worker processes get an empty copy, because no registry is shown
    there."""

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
        """Return the object that holds the metric values of workers in this process, or None if no metrics are
        exported."""
        return None if self._collector is None else self._collector.get_shared_meters(subscription, handlers, sinks)

    def build_node_meters(
        self, subscription: str, handlers: Sequence[str], sinks: Sequence[str], *, wanted: bool
    ) -> Meters | None:
        """Return a new object for the metric values of a worker node, or None if nobody reads them."""
        # They are read if they are `wanted`, or if this application's metrics are exported.
        if not wanted and self._collector is None:
            return None
        meters = Meters(handlers, sinks)
        if self._collector is not None:
            self._collector.add_meters(subscription, meters)
        return meters

    def __reduce__(self) -> tuple[Any, ...]:
        return ApplicationRegistry, ()
