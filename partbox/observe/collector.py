"""Prometheus collectors for the metrics of a node's supervisors and of their databases."""

import time
from collections.abc import Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client import Metric as Family
from prometheus_client.registry import Collector

from partbox.observe.health.database_probe import DatabaseProbe, ProbeResult
from partbox.observe.health.vitals import MonitoredSupervisor
from partbox.observe.metrics import families
from partbox.observe.metrics.table import BY_NAME

PROBE_TIMEOUT = 3.0  # seconds, for all databases together
MAX_STALE = 60.0  # seconds


class DatabaseCollector(Collector):
    """A Prometheus collector that reads the backlog of events and other metrics from the databases at each scrape.

    With several databases, each series has a label `database`, and a database that does not answer loses only its own
    gauges."""

    def __init__(self, prefix: str, monitored: Sequence[MonitoredSupervisor]) -> None:
        self._prefix = prefix
        self._monitored = monitored
        self._extra: families.Labels = ("database",) if len(monitored) > 1 else ()
        self._labels: list[families.Labels] = [
            (families.to_label_value(each.database),) if self._extra else () for each in monitored
        ]

    def describe(self) -> list[Family]:
        """Return no metric families, so that registering the collector does not query the database."""
        return []

    def collect(self) -> Iterator[Family]:
        # The probes of all databases run at the same time, and the scrape waits at most `PROBE_TIMEOUT` seconds for all
        # of them together. A database that answers too late is shown with its latest result, if that is younger than
        # `MAX_STALE` seconds.
        began = time.monotonic()
        asked = [each.probe.request_result() for each in self._monitored]
        yield from self._collect_meanwhile()
        up, overviews = families.build_family(self._prefix, BY_NAME["database_up"], self._extra), []
        for labels, each, since in zip(self._labels, self._monitored, asked, strict=True):
            result = _find_usable_result(
                each.probe, each.probe.wait_for_result(since, began + PROBE_TIMEOUT - time.monotonic())
            )
            up.add_metric(labels, result is not None and result.is_up)  # type: ignore[attr-defined]
            if result is not None and result.overview is not None:
                overviews.append(families.LabelledOverview(labels, result.overview, each.list_instances()))
        yield from families.build_database_families(self._prefix, overviews, self._extra)
        yield self._build_problems()
        yield up
        scrape = families.build_family(self._prefix, BY_NAME["scrape_seconds"])
        scrape.add_metric([], time.monotonic() - began)  # type: ignore[attr-defined]
        yield scrape

    def _build_problems(self) -> Family:
        made = families.build_family(self._prefix, BY_NAME["doctor_problems"], self._extra)
        for labels, each in zip(self._labels, self._monitored, strict=True):
            for severity, count in (each.count_problems() or {}).items():
                made.add_metric([*labels, severity], count)  # type: ignore[attr-defined]
        return made

    def _collect_meanwhile(self) -> Iterable[Family]:
        return ()


class NodeCollector(DatabaseCollector):
    """A Prometheus collector of a worker node's metrics, from its processes and its databases.

    Only the metrics of the publishing application are not included."""

    def _collect_meanwhile(self) -> Iterable[Family]:
        # The probes of the databases still run.
        readings = [
            families.LabelledReading((*labels, families.to_label_value(each.subscription)), each.meters.take_reading())
            for labels, each in zip(self._labels, self._monitored, strict=True)
        ]
        return families.build_process_families(self._prefix, readings, self._extra)


def _find_usable_result(probe: DatabaseProbe, fetched: ProbeResult | None) -> ProbeResult | None:
    """Return the newest result of a database query that is fresh enough to show in metrics, or None."""
    # The fetched result is preferred to a recent older one. If the probe was cut off because the database is slow, the
    # last overview is used as long as it is recent.
    result = fetched or _drop_stale(probe.latest_result)
    return _drop_stale(probe.latest_overview_result) or result if result is not None and result.is_slow else result


def _drop_stale(result: ProbeResult | None) -> ProbeResult | None:
    return result if result is not None and time.monotonic() - result.probed_at < MAX_STALE else None


def build_registry(prefix: str, monitored: Sequence[MonitoredSupervisor]) -> CollectorRegistry:
    """Return a Prometheus registry that shows the metrics of all supervisors on this node."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(NodeCollector(prefix, monitored))
    return registry
