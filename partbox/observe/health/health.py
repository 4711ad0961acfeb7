"""Liveness and readiness of a node, decided from the state of its supervisors and its databases.

A node is alive unless its own loops are dead: a restart would help then. A backlog, a database that is away or failing
handlers are no reason to restart. It is ready while it holds its lease and every partition has an owner.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from partbox.db.inspect.stats import Cluster, Overview
from partbox.observe.health.database_probe import ProbeResult
from partbox.observe.health.vitals import MonitoredSupervisor, ProcessVitals, SupervisorVitals

LOOP = (30.0, 5)  # seconds, leases: a supervisor's loop that has not turned for the longer of the two is stuck
SILENT = 4  # leases: a supervisor replaces a silent process after three
UNOWNED = 2  # leases
STALE = (1.0, 1)  # seconds, leases: a process that could not read or save for the longer of the two does not work
PATIENCE = 2.0  # seconds that a probe of readiness waits for the databases
FOLDER = "databases"  # of the pages of all databases but the first


@dataclass(frozen=True, slots=True)
class HealthReport:
    """The answer to a health check: `problems` is empty if all is well; `body` has the details."""

    problems: list[str]
    body: dict[str, Any]

    @property
    def status(self) -> int:
        return 503 if self.problems else 200


def deadly(vitals: SupervisorVitals) -> Iterator[str]:
    """Problems that only a restart of this node can solve."""
    limit = max(LOOP[0], LOOP[1] * vitals.lease)
    if not vitals.started:
        return
    if not vitals.running and not vitals.stopping:
        yield f"the supervisor has ended: {vitals.failure or 'its log says why'}"
    elif vitals.running and vitals.stepped > limit:
        yield f"the supervisor's loop has not turned for {vitals.stepped:.0f} s, and no heartbeat is sent meanwhile"
    elif vitals.processes and all(_is_silent(process, vitals.lease) for process in vitals.processes):
        least = min(process.silent for process in vitals.processes)
        yield f"all {len(vitals.processes)} processes have shown no life for {least:.0f} s"


def hindering(vitals: SupervisorVitals) -> Iterator[str]:
    """Problems that keep this node from working now, though waiting may help."""
    if vitals.stopping:
        yield "the node is stopping"
    elif vitals.hindrance is not None:
        yield vitals.hindrance
    elif not vitals.started or not any(process.ready for process in vitals.processes):
        entering = max((process.entering for process in vitals.processes), default=0.0)
        why = f": the lifespan has not yielded for {entering:.0f} s" if entering else ""
        yield f"no process is ready yet{why}"
    elif not any(process.trusted for process in vitals.processes):
        ago = "there was none" if vitals.beaten is None else f"the last was {vitals.beaten:.1f} s ago"
        yield f"no process holds a lease, which a heartbeat renews for {vitals.lease:g} s: {ago}"
    for process in vitals.processes:
        for what, seconds in (("read", process.unread), ("saved", process.unsaved)):
            if process.ready and seconds > max(STALE[0], STALE[1] * vitals.lease):
                yield f"process {process.pid} has not {what} for {seconds:.1f} s: its connection hangs, or is lost"
    if vitals.crash_loop:
        yield f"{vitals.deaths} processes have died within a minute: look at the first of their errors"


def orphaned(count: int, seconds: float, lease: float) -> Iterator[str]:
    """The problem if `count` partitions have had no owner, one of them for `seconds`."""
    if seconds > UNOWNED * lease:
        yield f"{count} partitions have no owner, some of them for {seconds:.0f} s: a process should have claimed them"


class Orphans:
    """Partitions of one subscription without an owner, and since when, as far as overviews show."""

    def __init__(self) -> None:
        self._since: dict[int, tuple[int, float]] = {}

    def update(self, cluster: Cluster, now: float) -> tuple[int, float]:
        """The number of partitions without an owner, and the longest time in seconds. Those of a paused subscription
        do not count. A partition that had an owner between two overviews has another epoch. The same overview again
        changes nothing."""
        living = {each.instance_id for each in cluster.instances}
        free = {} if cluster.paused else {p.partition: p.epoch for p in cluster.partitions if p.owner not in living}
        self._since = {
            number: seen if (seen := self._since.get(number)) and seen[0] == epoch else (epoch, now)
            for number, epoch in free.items()
        }
        return len(free), max((now - since for _, since in self._since.values()), default=0.0)


class Health:
    """The health of one node, in all of its databases. Any thread."""

    def __init__(self, watched: Sequence[MonitoredSupervisor]) -> None:
        self._watched = watched
        self._orphans = [Orphans() for _ in watched]
        self._lock = threading.Lock()

    def alive(self) -> HealthReport:
        """Liveness. Waits for nothing: the backlog is that of the last overview."""
        for each in self._watched:
            each.probe.request()
        vitals = [each.vitals() for each in self._watched]
        problems = [
            self._of(each, said) for each, its in zip(self._watched, vitals, strict=True) for said in deadly(its)
        ]
        return self._answer(problems, vitals, [each.probe.latest for each in self._watched])

    def ready(self) -> HealthReport:
        """Readiness. Waits for the databases, `PATIENCE` at most."""
        asked, until = [each.probe.request() for each in self._watched], time.monotonic() + PATIENCE
        results = [
            each.probe.wait(since, until - time.monotonic()) or each.probe.latest
            for each, since in zip(self._watched, asked, strict=True)
        ]
        vitals = [each.vitals() for each in self._watched]
        with self._lock:
            problems = [
                self._of(each, said)
                for each, orphans, its, result in zip(self._watched, self._orphans, vitals, results, strict=True)
                for said in (*deadly(its), *hindering(its), *_of_database(each, orphans, its, result))
            ]
        return self._answer(problems, vitals, results)

    def _of(self, watched: MonitoredSupervisor, said: str) -> str:
        return f"{watched.database}: {said}" if len(self._watched) > 1 else said

    def _answer(
        self, problems: list[str], vitals: Sequence[SupervisorVitals], results: Sequence[ProbeResult | None]
    ) -> HealthReport:
        several = len(self._watched) > 1
        body = {
            "status": "failing" if problems else "ok",
            "problems": problems,
            "node": self._watched[0].node if self._watched else None,
            "supervisors": [
                ({"database": each.database, "hindrance": its.hindrance} if several else {}) | _told(each, its, result)
                for each, its, result in zip(self._watched, vitals, results, strict=True)
            ],
        }
        return HealthReport(problems, body)


def _of_database(
    watched: MonitoredSupervisor, orphans: Orphans, vitals: SupervisorVitals, result: ProbeResult | None
) -> Iterator[str]:
    if result is None or vitals.hindrance is not None:
        return
    if result.broken:
        yield f"the database is not as it must be: {result.error}"
    if result.overview is None:
        return
    cluster = _cluster(result.overview, watched.subscription)
    if cluster is None:
        yield f"subscription {watched.subscription!r} does not exist any more: stop this worker, or create it again"
        return
    yield from orphaned(*orphans.update(cluster, result.at), vitals.lease)


def _is_silent(process: ProcessVitals, lease: float) -> bool:
    """True if silent, and not for a handler that holds the interpreter: the supervisor ends that one itself."""
    return process.silent > SILENT * lease and not process.vouched and process.handler is None


def _cluster(overview: Overview | None, subscription: str) -> Cluster | None:
    clusters = overview.clusters if overview is not None else ()
    return next((cluster for cluster in clusters if cluster.subscription == subscription), None)


def _told(watched: MonitoredSupervisor, vitals: SupervisorVitals, result: ProbeResult | None) -> dict[str, Any]:
    return {
        "subscription": watched.subscription,
        "lease_seconds": vitals.lease,
        "heartbeat_age_seconds": _rounded(vitals.beaten),
        "processes": {
            "wanted": vitals.wanted,
            "living": len(vitals.processes),
            "ready": sum(process.ready for process in vitals.processes),
            "holding_a_lease": sum(process.trusted for process in vitals.processes),
            "died_within_a_minute": vitals.deaths,
        },
        "database_error": result.error if result is not None else None,
        "backlog": _backlog(watched, result),
    }


def _backlog(watched: MonitoredSupervisor, result: ProbeResult | None) -> dict[str, Any] | None:
    """The backlog as last seen; it never fails a health check."""
    cluster = _cluster(result.overview if result else None, watched.subscription)
    if result is None or cluster is None:
        return None
    return {
        "pending": cluster.pending,
        "exact": cluster.exact,
        "oldest_age_seconds": _rounded(cluster.oldest_age),
        "parked": cluster.parked,
        "partitions_unowned": cluster.unowned,
        "paused": cluster.paused,
        "seen_seconds_ago": _rounded(time.monotonic() - result.at),
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(float(value), 3)


@dataclass(frozen=True, slots=True)
class Sibling:
    """One database. `href`: the link to its page; `trouble`: the reason that this node cannot work for it now."""

    name: str
    href: str
    here: bool
    trouble: str | None


Siblings = Callable[[], Sequence[Sibling]]


def folder(place: int) -> str:
    """The path of the page of the database at this place; the first is at the address itself."""
    return f"{FOLDER}/{place + 1}/" if place else ""


def siblings(watched: Sequence[MonitoredSupervisor], here: int) -> Sequence[Sibling]:
    """The databases as listed on the page of the one at `here`, itself included; empty if it is the only one."""
    if len(watched) < 2:
        return ()
    up = "../../" if here else "./"
    vitals = [each.vitals() for each in watched]
    return [
        Sibling(each.database, f"{up}{folder(place)}", place == here, next(chain(deadly(its), hindering(its)), None))
        for place, (each, its) in enumerate(zip(watched, vitals, strict=True))
    ]
