"""Repeated observation of a subscription."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import psycopg

from partbox.cli.shell.options import length, option
from partbox.cli.shell.output import in_one_line
from partbox.db.inspect.stats import Cluster
from partbox.errors import PartboxError

if TYPE_CHECKING:  # `status` without --watch needs none of it, and is to answer at once
    from partbox.db.inspect.cached_overview import CachedOverview
    from partbox.operations.stats import Pace, Rates

LEAST = 0.1  # seconds between two observations

Every = Annotated[str, option("TIME", "Time between two updates, such as 500ms or 5s.")]


@dataclass(frozen=True, slots=True)
class Sighting:
    """A subscription as it was at `at`; `rates` from the second observation on.

    `complaint`: the error of the last observation, in one line; the rest is then from the one before.
    """

    at: datetime
    cluster: Cluster
    rates: "Rates | None"
    complaint: str | None = None


def interval(every: str) -> float:
    """Seconds of `--every`."""
    given = length("--every", every)
    if given < LEAST:
        raise PartboxError(f"--every {every!r} is too often: at least 100ms")
    return given


def sightings(glance: "CachedOverview", subscription: str, wait: Callable[[], bool]) -> Iterator[Sighting]:
    """Yield a sighting at once, and one after each `wait()` until that returns True.

    An error of the first observation is raised; a later one becomes a complaint, for a database may come back.
    """
    from partbox.operations.stats import Pace

    pace = Pace()
    glance.list_partitions(subscription)
    last = _look(glance, subscription, pace)
    yield last
    while not wait():
        try:
            last = _look(glance, subscription, pace)
        except (psycopg.Error, PartboxError) as error:
            last = replace(last, complaint=in_one_line(error))
        yield last


def _look(glance: "CachedOverview", subscription: str, pace: "Pace") -> Sighting:
    overview = glance.overview()
    pace.observe(overview)
    return Sighting(overview.at, overview.cluster(subscription), pace.rates(subscription))
