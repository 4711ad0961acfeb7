"""The case that is judged, its findings, and the form of a check: a pure function from a case to findings."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import wraps
from inspect import getdoc
from typing import NamedTuple, TypeVar
from uuid import UUID

from partbox.db.inspect.evidence import Evidence
from partbox.db.inspect.facts import ParkedCounts
from partbox.db.inspect.stats import Cluster, Instance, Overview, PartitionStats
from partbox.doctor.limits import PARTITION_STALL, PROCESS_STALL, REPORT_AGE_LIMIT, Limits
from partbox.text.wording import age, command, counted, node_names

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

UNFINISHED_STATES = ("retrying", "deferred", "held", "ready")


@dataclass(frozen=True, slots=True)
class Case:
    """The evidence of one moment. `before`: the numbers some seconds earlier, None if one look was enough.

    `skew`: seconds that this host's clock is ahead of the database's.
    """

    schema: str
    evidence: Evidence
    limits: Limits
    before: Overview | None = None
    skew: float = 0.0

    @property
    def clusters(self) -> tuple[Cluster, ...]:
        return self.evidence.overview.clusters if self.evidence.overview else ()

    def ago(self, seconds: float | None) -> datetime | None:
        """The time so long before its moment; None if either is unknown."""
        now = self.evidence.overview
        return None if now is None or seconds is None else now.at - timedelta(seconds=seconds)

    def command(self, text: str, subscription: str | None = None, *arguments: str, options: Sequence[str] = ()) -> str:
        """A command of ours for this schema, in backticks."""
        return command(text, self.schema, subscription, *arguments, options=options)

    def node(self, process: Instance) -> str:
        """The name of its node, which a host may have several of."""
        known = (node_names(cluster.instances) for cluster in self.clusters if process in cluster.instances)
        return next(known, {}).get(process.instance_id, process.node)

    def process(self, process: Instance) -> str:
        """The process's name, and the time of its last heartbeat."""
        heartbeat = f"heartbeat {age(process.heartbeat_age)} ago (lease {age(process.lease)})"
        owns = counted(process.partitions, "partition")
        return f"process {process.pid} on {self.node(process)}, {heartbeat}, {owns}"

    def braked(self, subscription: str) -> list[ParkedCounts]:
        """The partitions of a subscription that read nothing new, because too many of their records are parked."""
        of_subscription = (each for each in self.evidence.open if each.subscription == subscription)
        return [each for each in of_subscription if each.rows >= self.limits.braked]

    def earlier(self, subscription: str) -> Cluster | None:
        """The cluster as it was at the first look."""
        found = self.before.clusters if self.before else ()
        return next((each for each in found if each.subscription == subscription), None)


class Severity(StrEnum):
    """The severity of a finding, the worst first."""

    PROBLEM = "problem"
    """Events wait or are lost until somebody does something: the exit code is 1."""

    WARNING = "warning"
    """Delivery works, but slower than it could, not safely, or it will stop one day."""

    NOTE = "note"
    """Worth knowing; also what could not be looked at."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong: in one sentence, what shows it, and what to do, commands in backticks.

    `cause` is the name of the check that found it. It has been so `since` then, None if unknown. The texts are plain
    and may hold what events and errors say.
    """

    severity: Severity
    summary: str
    evidence: tuple[str, ...] = ()
    remedy: tuple[str, ...] = ()
    subscription: str | None = None
    cause: str = ""
    since: datetime | None = None


class Symptom(NamedTuple):
    """What a check has seen: a finding but for its cause, and its severity unless that is not the check's first one. It
    has been so for `lasts` seconds."""

    summary: str
    evidence: tuple[str, ...] = ()
    remedy: tuple[str, ...] = ()
    subscription: str | None = None
    severity: Severity | None = None
    lasts: float | None = None


CheckFunction = Callable[[Case], Iterable[Symptom]]
ClusterCheck = Callable[[Case, Cluster], Iterable[Symptom]]


@dataclass(frozen=True, slots=True)
class Check:
    """A known cause of trouble; `judge` is None for what is met before there is a case."""

    name: str
    severities: tuple[Severity, ...]
    meaning: str
    judge: CheckFunction | None = None

    def __call__(self, case: Case) -> Iterator[Finding]:
        for summary, evidence, remedy, subscription, severity, lasts in self.judge(case) if self.judge else ():
            since = case.ago(lasts)
            yield Finding(severity or self.severities[0], summary, evidence, remedy, subscription, self.name, since)


def check(name: str, *severities: Severity) -> Callable[[CheckFunction], Check]:
    """A check of this name, whose findings have one of these severities; its meaning is the docstring."""
    return lambda judge: Check(name, severities, " ".join((getdoc(judge) or "").split()), judge)


def subscription_check(name: str, *severities: Severity) -> Callable[[ClusterCheck], Check]:
    """A check that judges each subscription by itself."""

    def make_check(judge: ClusterCheck) -> Check:
        @wraps(judge)
        def judge_all(case: Case) -> Iterator[Symptom]:
            for cluster in case.clusters:
                for symptom in judge(case, cluster):
                    yield symptom._replace(subscription=cluster.subscription)

        return check(name, *severities)(judge_all)

    return make_check


def healthy(findings: Iterable[Finding]) -> bool:
    """True if nobody needs to act."""
    return all(each.severity is not Severity.PROBLEM for each in findings)


def group_by(found: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """The items by key; keys and items keep the order in which they come."""
    groups: dict[K, list[T]] = {}
    for each in found:
        groups.setdefault(key(each), []).append(each)
    return groups


def working_processes(cluster: Cluster) -> list[Instance]:
    """Return the processes that work."""
    return [each for each in cluster.instances if not each.expired and each.lifespan is None]


def starting_processes(cluster: Cluster) -> list[Instance]:
    """Return the processes that are in their lifespan, the longest first."""
    found = [(each.lifespan.seconds, each) for each in cluster.instances if each.lifespan and not each.expired]
    return [each for _, each in sorted(found, key=lambda pair: -pair[0])]


def waiting(cluster: Cluster) -> int:
    """Records that a worker has to do with, now or soon."""
    return cluster.pending + sum(cluster.parked.get(state, 0) for state in UNFINISHED_STATES)


def unowned_partitions(cluster: Cluster) -> list[PartitionStats]:
    """Partitions without an owner, or whose owner is gone."""
    instance_ids: set[UUID] = {each.instance_id for each in cluster.instances}
    return [each for each in cluster.partitions if each.owner not in instance_ids]


def stalled_partitions(cluster: Cluster) -> list[PartitionStats]:
    """Partitions with records that have waited for minutes in which nothing became of any record there; for less where
    the owner is idle. Those do not count whose owner has events that wait for their turn under a limit."""
    idle_owners = idle_processes(cluster)
    limited = {each.instance_id for each in cluster.instances if _is_limited(each)}
    waiting = (each for each in cluster.partitions if each.pending and each.owner not in limited)
    return [each for each in waiting if each.owner in idle_owners or stalled_seconds(each) > PARTITION_STALL]


def idle_processes(cluster: Cluster) -> set[UUID]:
    """Processes that have neither read nor saved any of what waits in their partitions."""
    stalled_for: dict[UUID, float] = {}
    for each in cluster.partitions:
        if each.pending and each.owner is not None:
            stalled_for[each.owner] = min(stalled_for.get(each.owner, stalled_seconds(each)), stalled_seconds(each))
    limits = {
        each.instance_id: max(PROCESS_STALL[0], PROCESS_STALL[1] * each.lease)
        for each in working_processes(cluster)
        if not (each.running or _is_limited(each))
    }
    return {owner for owner, limit in limits.items() if stalled_for.get(owner, 0.0) > limit}


def _is_limited(process: Instance) -> bool:
    """True if a limit holds back events of the process, as one says every two seconds that does not hang."""
    return (process.limits_age or 0.0) < REPORT_AGE_LIMIT and any(each.waiting for each in process.limits)


def stalled_seconds(each: PartitionStats) -> float:
    """Seconds in which a record of the partition has waited, and nothing became of any."""
    return min(each.oldest_age or 0.0, seconds_quiet(each))


def seconds_quiet(each: PartitionStats) -> float:
    """Seconds since something became of a record of the partition, or it was claimed."""
    return min((age for age in (each.saved_age, each.claimed_age) if age is not None), default=0.0)
