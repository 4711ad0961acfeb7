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

    def show(self, prefix: str, collector: "Collector") -> Callable[[], None]:
        """Export a collector's metrics, whose names begin with `prefix`, until the returned function is called."""
        raise NotImplementedError

    def recorder(self, prefix: str, subscription: str) -> Observer:
        """Return an observer of a worker in this process for metrics that no collector has, such as histograms."""
        raise NotImplementedError


def displays(observers: Iterable[Observer]) -> list[Display]:
    return [each for each in observers if isinstance(each, Display)]


def with_recorders(
    observers: Sequence[Observer], meter: Meter | None, prefix: str, subscription: str
) -> list[Observer]:
    """Return the observers of a worker or supervisor, plus the observers that record its metrics."""
    more = [] if meter is None else [MetricsRecorder(meter)]
    return [*observers, *more, *(each.recorder(prefix, subscription) for each in displays(observers))]


class ApplicationRegistry(Observer):
    """The link between an outbox's metrics and a Prometheus registry or other exporters. As an observer, it counts the
    published events. Worker processes get an empty copy, because no registry is shown there."""

    def __init__(self, registry: "CollectorRegistry | None" = None, prefix: str = "") -> None:
        self._prefix = prefix
        self._application: ApplicationCollector | None = None
        if registry is not None:
            from partbox.observe.metrics.application import application_collector

            self._application = application_collector(registry, prefix)

    def show_on(self, display: Display) -> None:
        """Export the metrics of this application through one more exporter."""
        if self._application is None:
            from partbox.observe.metrics.application import ApplicationCollector

            self._application = ApplicationCollector(self._prefix)
        display.show(self._prefix, self._application)

    def published(self, events: Sequence[Event]) -> None:
        if self._application is not None:
            self._application.count(len(events))

    def meters(self, subscription: str, handlers: Sequence[str], sinks: Sequence[str]) -> Meters | None:
        """Return the metric values for a worker in this process, or None if no metrics are exported."""
        return None if self._application is None else self._application.meters(subscription, handlers, sinks)

    def separate(
        self, subscription: str, handlers: Sequence[str], sinks: Sequence[str], *, wanted: bool
    ) -> Meters | None:
        """Return new metric values for a node, or None if they are neither `wanted` nor shown here."""
        if not wanted and self._application is None:
            return None
        meters = Meters(handlers, sinks)
        if self._application is not None:
            self._application.add(subscription, meters)
        return meters

    def __reduce__(self) -> tuple[Any, ...]:
        return ApplicationRegistry, ()
