"""The registry of an application, if it gives one; prometheus-client is loaded only then."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from partbox.events import Event
from partbox.observe.metrics.meter import Meters
from partbox.observe.observer import Observer

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from partbox.observe.metrics.application import ApplicationCollector


class ApplicationRegistry(Observer):
    """The metrics of an outbox in `registry`, which counts what is published as an observer. Not sent to worker
    processes: no registry is shown there."""

    def __init__(self, registry: "CollectorRegistry | None" = None, prefix: str = "") -> None:
        self._application: ApplicationCollector | None = None
        if registry is not None:
            from partbox.observe.metrics.application import application_of

            self._application = application_of(registry, prefix)

    def published(self, events: Sequence[Event]) -> None:
        if self._application is not None:
            self._application.count(len(events))

    def meters(self, subscription: str, handlers: Sequence[str], sinks: Sequence[str]) -> Meters | None:
        """The meters of a worker in this process; None without a registry."""
        return None if self._application is None else self._application.meters(subscription, handlers, sinks)

    def separate(
        self, subscription: str, handlers: Sequence[str], sinks: Sequence[str], *, wanted: bool
    ) -> Meters | None:
        """The meters of a node; None unless `wanted`, or there is a registry."""
        if not wanted and self._application is None:
            return None
        meters = Meters(handlers, sinks)
        if self._application is not None:
            self._application.add(subscription, meters)
        return meters

    def __reduce__(self) -> tuple[Any, ...]:
        return ApplicationRegistry, ()
