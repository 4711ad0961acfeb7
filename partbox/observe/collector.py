"""Collects the metrics of a node: the meters of its processes, and one probe of each of its databases."""

import time
from collections.abc import Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client import Metric as Family
from prometheus_client.registry import Collector

from partbox.observe.health.database_probe import DatabaseProbe, ProbeResult
from partbox.observe.health.vitals import MonitoredSupervisor
from partbox.observe.metrics import families
from partbox.observe.metrics.table import BY_NAME

PROBE_TIMEOUT = 3.0  # seconds that a scrape waits for all databases together
MAX_STALE = 60.0  # seconds for which an overview is shown while a newer one takes longer than `PROBE_TIMEOUT`


class DatabaseCollector(Collector):
    """The metrics of a node's databases, of the node as they see it, and of the look at them. With several databases
    each series has a label `database`. A database that is away takes its gauges with it, and nothing else; a slow one
    shows for a while what was seen last."""

    def __init__(self, prefix: str, monitored: Sequence[MonitoredSupervisor]) -> None:
        self._prefix = prefix
        self._monitored = monitored
        self._extra: families.Labels = ("database",) if len(monitored) > 1 else ()
        self._labels: list[families.Labels] = [
            (families.label_value(each.database),) if self._extra else () for each in monitored
        ]

    def describe(self) -> list[Family]:
        """Nothing, so that registering need not collect."""
        return []

    def collect(self) -> Iterator[Family]:
        began = time.monotonic()
        asked = [each.probe.request() for each in self._monitored]
        yield from self._collect_meanwhile()
        up, overviews = families.family(self._prefix, BY_NAME["database_up"], self._extra), []
        for labels, each, since in zip(self._labels, self._monitored, asked, strict=True):
            result = _usable_result(each.probe, each.probe.wait(since, began + PROBE_TIMEOUT - time.monotonic()))
            up.add_metric(labels, result is not None and result.up)  # type: ignore[attr-defined]
            if result is not None and result.overview is not None:
                overviews.append(families.LabelledOverview(labels, result.overview, each.instances()))
        yield from families.database_families(self._prefix, overviews, self._extra)
        yield up
        scrape = families.family(self._prefix, BY_NAME["scrape_seconds"])
        scrape.add_metric([], time.monotonic() - began)  # type: ignore[attr-defined]
        yield scrape

    def _collect_meanwhile(self) -> Iterable[Family]:
        """The metrics that are collected while the databases answer."""
        return ()


class NodeCollector(DatabaseCollector):
    """Every metric of METRICS but the publishing application's."""

    def _collect_meanwhile(self) -> Iterable[Family]:
        readings = [
            families.LabelledReading((*labels, families.label_value(each.subscription)), each.meters.reading())
            for labels, each in zip(self._labels, self._monitored, strict=True)
        ]
        return families.process_families(self._prefix, readings, self._extra)


def _usable_result(probe: DatabaseProbe, fetched: ProbeResult | None) -> ProbeResult | None:
    """The result to show for a probe that gave `fetched` (None: it was late); for a slow database, an overview of the
    last `MAX_STALE` seconds."""
    result = fetched or _if_recent(probe.latest)
    return _if_recent(probe.latest_overview) or result if result is not None and result.slow else result


def _if_recent(result: ProbeResult | None) -> ProbeResult | None:
    return result if result is not None and time.monotonic() - result.at < MAX_STALE else None


def build_registry(prefix: str, monitored: Sequence[MonitoredSupervisor]) -> CollectorRegistry:
    """A registry of a node's metrics alone."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(NodeCollector(prefix, monitored))
    return registry
