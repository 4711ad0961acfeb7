"""Liveness and readiness of a node. A node is alive unless its own loops are dead, because only then does a restart
help. A node is ready while it holds its lease and every partition has an owner."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from partbox.db.inspect.stats import Cluster, Overview
from partbox.observe.health.database_probe import ProbeResult
from partbox.observe.health.vitals import MonitoredSupervisor, ProcessVitals, SupervisorVitals

# A loop is stuck, and a connection is stale, after the longer of the two times. A supervisor itself replaces a silent
# process after three leases, so `SILENT` is longer.
LOOP_STUCK = (30.0, 5)
# leases
SILENT = 4
# leases
UNOWNED = 2
# seconds, leases
STALE = (1.0, 1)
# seconds
PROBE_TIMEOUT = 2.0
# The dashboards of all databases except the first are below this URL folder.
FOLDER = "databases"


@dataclass(frozen=True, slots=True)
class HealthReport:
    """The result of a health check: the JSON body of the response, and the problems that make it fail."""

    problems: list[str]
    body: dict[str, Any]

    @property
    def http_status(self) -> int:
        return 503 if self.problems else 200


def list_fatal_problems(vitals: SupervisorVitals) -> Iterator[str]:
    """Yield the problems of a supervisor that only a restart can solve, for the liveness check."""
    # A backlog, an unreachable database or failing handlers are no reason to restart.
    # A supervisor that has not started yet has none.
    limit = max(LOOP_STUCK[0], LOOP_STUCK[1] * vitals.lease)
    if not vitals.has_started:
        return
    if not vitals.is_running and not vitals.is_stopping:
        yield f"the supervisor has ended: {vitals.failure or 'its log says why'}"
    elif vitals.is_running and vitals.loop_age > limit:
        yield f"the supervisor's loop has been stuck for {vitals.loop_age:.0f} s, and sends no heartbeats meanwhile"
    elif vitals.processes and all(_is_silent(process, vitals.lease) for process in vitals.processes):
        least = min(process.silent_seconds for process in vitals.processes)
        yield f"all {len(vitals.processes)} processes have shown no sign of life for {least:.0f} s"


def list_temporary_problems(vitals: SupervisorVitals) -> Iterator[str]:
    """Yield the problems that keep a supervisor from delivering events but may pass, for the readiness check."""
    if vitals.is_stopping:
        yield "the node is stopping"
    elif vitals.hindrance is not None:
        yield vitals.hindrance
    elif not vitals.has_started or not any(process.is_ready for process in vitals.processes):
        entering = max((process.lifespan_seconds for process in vitals.processes), default=0.0)
        why = f": the lifespan has not yielded for {entering:.0f} s" if entering else ""
        yield f"no process is ready yet{why}"
    elif not any(process.is_trusted for process in vitals.processes):
        age = vitals.heartbeat_age
        ago = "there was no heartbeat yet" if age is None else f"the last heartbeat was {age:.1f} s ago"
        yield f"no process holds a lease, which a heartbeat renews for {vitals.lease:g} s: {ago}"
    for process in vitals.processes:
        for what, seconds in (("read", process.unread_seconds), ("saved", process.unsaved_seconds)):
            if process.is_ready and seconds > max(STALE[0], STALE[1] * vitals.lease):
                yield f"process {process.pid} has not {what} for {seconds:.1f} s: its connection hangs, or is lost"
    if vitals.is_crash_looping:
        yield f"{vitals.recent_deaths} processes have died within a minute: look at the first of their errors"


def list_orphan_problems(count: int, seconds: float, lease: float) -> Iterator[str]:
    """Yield the text of a problem if partitions have had no owning process for too long."""
    # Too long means more than `UNOWNED` leases. `count` and `seconds` say how many partitions and for how long.
    if seconds > UNOWNED * lease:
        yield f"{count} partitions have no owner, some of them for {seconds:.0f} s: a process should have claimed them"


class OrphanTracker:
    """A record of how long each partition has had no living worker process as its owner."""

    def __init__(self) -> None:
        self._since: dict[int, tuple[int, float]] = {}

    def update(self, cluster: Cluster, now: float) -> tuple[int, float]:
        """Return the number of partitions without an owner, and for how many seconds the longest has had none."""
        # The new overview is compared with the last one. A changed epoch means that there was an owner in between, and
        # restarts the time. A paused subscription counts none. The same overview may be passed again and changes
        # nothing.
        living = {each.instance_id for each in cluster.instances}
        ownerless = (
            {} if cluster.paused else {p.partition: p.epoch for p in cluster.partitions if p.owner not in living}
        )
        self._since = {
            number: seen if (seen := self._since.get(number)) and seen[0] == epoch else (epoch, now)
            for number, epoch in ownerless.items()
        }
        return len(ownerless), max((now - since for _, since in self._since.values()), default=0.0)


class Health:
    """The liveness and readiness checks of a worker node with all its databases. Any thread may call the methods."""

    def __init__(self, monitored: Sequence[MonitoredSupervisor]) -> None:
        self._monitored = monitored
        self._orphans = [OrphanTracker() for _ in monitored]
        self._lock = threading.Lock()

    def check_liveness(self) -> HealthReport:
        """Return the liveness report, which fails if only a restart of the node helps. Never wait for the database."""
        # A probe is started only so that the body shows the latest backlog.
        for each in self._monitored:
            each.probe.request_result()
        vitals = [each.read_vitals() for each in self._monitored]
        problems = [
            self._prefix_problem(each, problem)
            for each, its in zip(self._monitored, vitals, strict=True)
            for problem in list_fatal_problems(its)
        ]
        return self._build_report(problems, vitals, [each.probe.latest_result for each in self._monitored])

    def check_readiness(self) -> HealthReport:
        """Return the readiness report, which tells whether the node can deliver events now."""
        # Wait at most `PROBE_TIMEOUT` seconds for the answers of all databases together.
        asked, until = [each.probe.request_result() for each in self._monitored], time.monotonic() + PROBE_TIMEOUT
        results = [
            each.probe.wait_for_result(since, until - time.monotonic()) or each.probe.latest_result
            for each, since in zip(self._monitored, asked, strict=True)
        ]
        vitals = [each.read_vitals() for each in self._monitored]
        with self._lock:
            problems = [
                self._prefix_problem(each, problem)
                for each, orphans, its, result in zip(self._monitored, self._orphans, vitals, results, strict=True)
                for problem in (
                    *list_fatal_problems(its),
                    *list_temporary_problems(its),
                    *_list_database_problems(each, orphans, its, result),
                )
            ]
        return self._build_report(problems, vitals, results)

    def _prefix_problem(self, monitored: MonitoredSupervisor, problem: str) -> str:
        return f"{monitored.database}: {problem}" if len(self._monitored) > 1 else problem

    def _build_report(
        self, problems: list[str], vitals: Sequence[SupervisorVitals], results: Sequence[ProbeResult | None]
    ) -> HealthReport:
        several = len(self._monitored) > 1
        body = {
            "status": "failing" if problems else "ok",
            "problems": problems,
            "node": self._monitored[0].node if self._monitored else None,
            "supervisors": [
                ({"database": each.database, "hindrance": its.hindrance} if several else {})
                | _build_supervisor_body(each, its, result)
                for each, its, result in zip(self._monitored, vitals, results, strict=True)
            ],
        }
        return HealthReport(problems, body)


def _list_database_problems(
    monitored: MonitoredSupervisor, orphans: OrphanTracker, vitals: SupervisorVitals, result: ProbeResult | None
) -> Iterator[str]:
    if result is None or vitals.hindrance is not None:
        return
    if result.is_broken:
        yield f"partbox cannot use the database as it is: {result.error}"
    if result.overview is None:
        return
    cluster = _find_cluster(result.overview, monitored.subscription)
    if cluster is None:
        yield f"subscription {monitored.subscription!r} does not exist any more: stop this worker, or create it again"
        return
    yield from list_orphan_problems(*orphans.update(cluster, result.probed_at), vitals.lease)


def _is_silent(process: ProcessVitals, lease: float) -> bool:
    # A process whose handler holds the interpreter does not count, because the supervisor ends such a handler by
    # itself.
    return process.silent_seconds > SILENT * lease and not process.is_vouched and process.handler_seconds is None


def _find_cluster(overview: Overview | None, subscription: str) -> Cluster | None:
    clusters = overview.clusters if overview is not None else ()
    return next((cluster for cluster in clusters if cluster.subscription == subscription), None)


def _build_supervisor_body(
    monitored: MonitoredSupervisor, vitals: SupervisorVitals, result: ProbeResult | None
) -> dict[str, Any]:
    return {
        "subscription": monitored.subscription,
        "lease_seconds": vitals.lease,
        "heartbeat_age_seconds": _round_value(vitals.heartbeat_age),
        "processes": {
            "wanted": vitals.wanted_processes,
            "living": len(vitals.processes),
            "ready": sum(process.is_ready for process in vitals.processes),
            "holding_a_lease": sum(process.is_trusted for process in vitals.processes),
            "died_within_a_minute": vitals.recent_deaths,
        },
        "database_error": result.error if result is not None else None,
        "backlog": _describe_backlog(monitored, result),
    }


def _describe_backlog(monitored: MonitoredSupervisor, result: ProbeResult | None) -> dict[str, Any] | None:
    """Return the counts of waiting events from the last overview, or None if they are unknown."""
    # A backlog never fails a health check.
    cluster = _find_cluster(result.overview if result else None, monitored.subscription)
    if result is None or cluster is None:
        return None
    return {
        "pending": cluster.pending,
        "exact": cluster.exact,
        "oldest_age_seconds": _round_value(cluster.oldest_age),
        "parked": cluster.parked,
        "partitions_unowned": cluster.unowned,
        "paused": cluster.paused,
        "seen_seconds_ago": _round_value(time.monotonic() - result.probed_at),
    }


def _round_value(value: float | None) -> float | None:
    return None if value is None else round(float(value), 3)


@dataclass(frozen=True, slots=True)
class Sibling:
    """A link in the list of a node's dashboards, of which there is one for each database."""

    # `here` is True for the dashboard that shows the link. `trouble` is the first reason why the node cannot work for
    # that database now, or None.

    name: str
    href: str
    here: bool
    trouble: str | None


Siblings = Callable[[], Sequence[Sibling]]


def build_folder(place: int) -> str:
    """Return the URL folder of the dashboard of database number `place`. It is empty for the first database."""
    return f"{FOLDER}/{place + 1}/" if place else ""


def list_siblings(monitored: Sequence[MonitoredSupervisor], here: int) -> Sequence[Sibling]:
    """Return links from dashboard number `here` to the dashboards of all databases of the node."""
    # Return nothing if the node has only one database.
    if len(monitored) < 2:
        return ()
    up = "../../" if here else "./"
    vitals = [each.read_vitals() for each in monitored]
    return [
        Sibling(
            each.database,
            f"{up}{build_folder(place)}",
            place == here,
            next(chain(list_fatal_problems(its), list_temporary_problems(its)), None),
        )
        for place, (each, its) in enumerate(zip(monitored, vitals, strict=True))
    ]
