"""Collects the metrics of a node: its processes' meters, and one look at each of its databases."""

import time
from collections.abc import Iterator, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client import Metric as Family
from prometheus_client.registry import Collector

from partbox.observe.families import Labels, Read, family, of_processes, text
from partbox.observe.gauges import Seen, of_database
from partbox.observe.looker import Looker, Sight
from partbox.observe.metrics import BY_NAME
from partbox.observe.node import Watched

PATIENCE = 3.0  # seconds that a scrape waits for the databases, all of them together
KEPT = 60.0  # seconds for which an overview is shown while a newer one takes longer than that


class NodeCollector(Collector):
    """Every metric of METRICS but the publishing application's. With several databases each series is labelled with
    that of its own, with one none is. A database that is away takes its gauges with it, and nothing else; one that is
    slow keeps for a while what was seen last."""

    def __init__(self, prefix: str, watched: Sequence[Watched]) -> None:
        self._prefix = prefix
        self._watched = watched
        self._extra: Labels = ("database",) if len(watched) > 1 else ()

    def describe(self) -> list[Family]:
        """Nothing that registering would have to collect."""
        return []

    def collect(self) -> Iterator[Family]:
        began = time.monotonic()
        asked = [each.looker.begin() for each in self._watched]
        yield from of_processes(self._prefix, [self._read(each) for each in self._watched], self._extra)
        sights = [
            _sight(each.looker, each.looker.wait(since, began + PATIENCE - time.monotonic()))
            for each, since in zip(self._watched, asked, strict=True)
        ]
        yield from of_database(self._prefix, list(self._seen(sights)), self._extra)
        yield self._up(sights)
        yield self._scrape(began)

    def _read(self, watched: Watched) -> Read:
        return Read((*self._labels(watched), text(watched.subscription)), watched.meters.read())

    def _seen(self, sights: Sequence[Sight | None]) -> Iterator[Seen]:
        for each, sight in zip(self._watched, sights, strict=True):
            if sight is not None and sight.overview is not None:
                yield Seen(self._labels(each), sight.overview, each.instances())

    def _up(self, sights: Sequence[Sight | None]) -> Family:
        made = family(self._prefix, BY_NAME["database_up"], self._extra)
        for each, sight in zip(self._watched, sights, strict=True):
            made.add_metric(self._labels(each), sight is not None and sight.up)  # type: ignore[attr-defined]
        return made

    def _scrape(self, began: float) -> Family:
        made = family(self._prefix, BY_NAME["scrape_seconds"])
        made.add_metric([], time.monotonic() - began)  # type: ignore[attr-defined]
        return made

    def _labels(self, watched: Watched) -> Labels:
        return (text(watched.database),) if self._extra else ()


def _sight(looker: Looker, brought: Sight | None) -> Sight | None:
    """What to show after a look that has brought this, or (None) was not over in time: of a database that is slow,
    what it has said within a minute."""
    sight = brought or _young(looker.latest)
    return _young(looker.newest) or sight if sight is not None and sight.slow else sight


def _young(sight: Sight | None) -> Sight | None:
    return sight if sight is not None and time.monotonic() - sight.at < KEPT else None


def registry_of(prefix: str, watched: Sequence[Watched]) -> CollectorRegistry:
    """A registry of a node's metrics alone."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(NodeCollector(prefix, watched))
    return registry
