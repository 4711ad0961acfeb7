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

PATIENCE = 3.0  # seconds that a scrape waits for all databases together
KEPT = 60.0  # seconds for which an overview is shown while a newer one takes longer than `PATIENCE`


class DatabaseCollector(Collector):
    """The metrics of a node's databases, of the node as they see it, and of the look at them. With several databases
    each series has a label `database`. A database that is away takes its gauges with it, and nothing else; a slow one
    shows for a while what was seen last."""

    def __init__(self, prefix: str, watched: Sequence[MonitoredSupervisor]) -> None:
        self._prefix = prefix
        self._watched = watched
        self._extra: families.Labels = ("database",) if len(watched) > 1 else ()
        self._labels: list[families.Labels] = [
            (families.text(each.database),) if self._extra else () for each in watched
        ]

    def describe(self) -> list[Family]:
        """Nothing, so that registering need not collect."""
        return []

    def collect(self) -> Iterator[Family]:
        began = time.monotonic()
        asked = [each.probe.request() for each in self._watched]
        yield from self._beside()
        up, seen = families.family(self._prefix, BY_NAME["database_up"], self._extra), []
        for its, each, since in zip(self._labels, self._watched, asked, strict=True):
            result = _shown(each.probe, each.probe.wait(since, began + PATIENCE - time.monotonic()))
            up.add_metric(its, result is not None and result.up)  # type: ignore[attr-defined]
            if result is not None and result.overview is not None:
                seen.append(families.LabelledOverview(its, result.overview, each.instances()))
        yield from families.of_database(self._prefix, seen, self._extra)
        yield up
        scrape = families.family(self._prefix, BY_NAME["scrape_seconds"])
        scrape.add_metric([], time.monotonic() - began)  # type: ignore[attr-defined]
        yield scrape

    def _beside(self) -> Iterable[Family]:
        """The metrics that are collected while the databases answer."""
        return ()


class NodeCollector(DatabaseCollector):
    """Every metric of METRICS but the publishing application's."""

    def _beside(self) -> Iterable[Family]:
        reads = [
            families.LabelledReading((*its, families.text(each.subscription)), each.meters.reading())
            for its, each in zip(self._labels, self._watched, strict=True)
        ]
        return families.of_processes(self._prefix, reads, self._extra)


def _shown(probe: DatabaseProbe, brought: ProbeResult | None) -> ProbeResult | None:
    """The result to show for a probe that gave `brought` (None: it was late); for a slow database, an overview of the
    last `KEPT` seconds."""
    result = brought or _young(probe.latest)
    return _young(probe.newest) or result if result is not None and result.slow else result


def _young(result: ProbeResult | None) -> ProbeResult | None:
    return result if result is not None and time.monotonic() - result.at < KEPT else None


def registry_of(prefix: str, watched: Sequence[MonitoredSupervisor]) -> CollectorRegistry:
    """A registry of a node's metrics alone."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(NodeCollector(prefix, watched))
    return registry
