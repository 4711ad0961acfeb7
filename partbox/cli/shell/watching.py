"""Repeated reads of a subscription's numbers."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import psycopg

from partbox.cli.shell.options import option, parse_duration
from partbox.cli.shell.output import format_error_line
from partbox.db.inspect.stats import Cluster
from partbox.errors import PartboxError

# `status` without --watch answers sooner if the modules for watching are not imported.
if TYPE_CHECKING:
    from partbox.db.inspect.cached_overview import CachedOverview
    from partbox.operations.stats import RateMeter, Rates

MIN_INTERVAL = 0.1  # seconds between two reads

Every = Annotated[str, option("TIME", "Time between two updates, such as 500ms or 5s.")]


@dataclass(frozen=True, slots=True)
class ClusterSample:
    """The statistics of a subscription at one moment, for a view that is updated repeatedly.

    `at` is the time. Rates are known from the second read on. If the last read failed, `problem` is its error in one
    line, and the statistics are older."""

    at: datetime
    cluster: Cluster
    rates: "Rates | None"
    problem: str | None = None


def parse_interval(every: str) -> float:
    given = parse_duration("--every", every)
    if given < MIN_INTERVAL:
        raise PartboxError(f"--every {every!r} is too short: at least 100ms")
    return given


def iter_samples(
    overview_cache: "CachedOverview", subscription: str, wait: Callable[[], bool]
) -> Iterator[ClusterSample]:
    """Yield the newest statistics of a subscription again and again, until `wait()` returns True."""
    # `wait()` is called between two reads.
    # The first sample is yielded at once. An error of the first read is raised. A later error becomes the `problem` of
    # the sample, because a database may come back.
    from partbox.operations.stats import RateMeter

    pace = RateMeter()
    overview_cache.list_partitions(subscription)
    last = _take_sample(overview_cache, subscription, pace)
    yield last
    while not wait():
        try:
            last = _take_sample(overview_cache, subscription, pace)
        except (psycopg.Error, PartboxError) as error:
            last = replace(last, problem=format_error_line(error))
        yield last


def _take_sample(overview_cache: "CachedOverview", subscription: str, pace: "RateMeter") -> ClusterSample:
    overview = overview_cache.read_overview()
    pace.add_overview(overview)
    return ClusterSample(overview.at, overview.cluster(subscription), pace.compute_rates(subscription))
