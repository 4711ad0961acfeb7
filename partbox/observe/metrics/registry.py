"""The places beside `/metrics` where the metrics of an outbox are shown: a registry, and displays of any kind.

prometheus-client is loaded only if there is one.
"""

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
    """An observer that shows all metrics of a process at a place of its own, under names that begin with `prefix`."""

    def show(self, prefix: str, collector: "Collector") -> Callable[[], None]:
        """Show what the collector collects, until the function that is returned is called."""
        raise NotImplementedError

    def recorder(self, prefix: str, subscription: str) -> Observer:
        """The observer of a worker in this process for what no collector has."""
        raise NotImplementedError


def displays(observers: Iterable[Observer]) -> list[Display]:
    return [each for each in observers if isinstance(each, Display)]


def with_recorders(
    observers: Sequence[Observer], meter: Meter | None, prefix: str, subscription: str
) -> list[Observer]:
    """The observers of a worker or a supervisor, and those that count for its metrics."""
    more = [] if meter is None else [MetricsRecorder(meter)]
    return [*observers, *more, *(each.recorder(prefix, subscription) for each in displays(observers))]


class ApplicationRegistry(Observer):
    """The metrics of an outbox in `registry` and on displays, which counts what is published as an observer. Not sent
    to worker processes: no registry is shown there."""

    def __init__(self, registry: "CollectorRegistry | None" = None, prefix: str = "") -> None:
        self._prefix = prefix
        self._application: ApplicationCollector | None = None
        if registry is not None:
            from partbox.observe.metrics.application import application_collector

            self._application = application_collector(registry, prefix)

    def show_on(self, display: Display) -> None:
        """Show them there too."""
        if self._application is None:
            from partbox.observe.metrics.application import ApplicationCollector

            self._application = ApplicationCollector(self._prefix)
        display.show(self._prefix, self._application)

    def published(self, events: Sequence[Event]) -> None:
        if self._application is not None:
            self._application.count(len(events))

    def meters(self, subscription: str, handlers: Sequence[str], sinks: Sequence[str]) -> Meters | None:
        """The meters of a worker in this process; None if they are shown nowhere."""
        return None if self._application is None else self._application.meters(subscription, handlers, sinks)

    def separate(
        self, subscription: str, handlers: Sequence[str], sinks: Sequence[str], *, wanted: bool
    ) -> Meters | None:
        """The meters of a node; None unless `wanted`, or they are shown here."""
        if not wanted and self._application is None:
            return None
        meters = Meters(handlers, sinks)
        if self._application is not None:
            self._application.add(subscription, meters)
        return meters

    def __reduce__(self) -> tuple[Any, ...]:
        return ApplicationRegistry, ()
