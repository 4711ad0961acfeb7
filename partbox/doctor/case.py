"""The input of the checks, their findings, and decorators that make a check of a pure function."""

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
    """The evidence of one moment, on which the checks judge. `before` holds the numbers of some seconds earlier, or
    None if no second look was needed. `skew` is the number of seconds by which this host's clock is ahead of the
    database's."""

    schema: str
    evidence: Evidence
    limits: Limits
    before: Overview | None = None
    skew: float = 0.0

    @property
    def clusters(self) -> tuple[Cluster, ...]:
        """The subscriptions with their numbers, none if the numbers could not be read."""
        return self.evidence.overview.clusters if self.evidence.overview else ()

    def ago(self, seconds: float | None) -> datetime | None:
        """Return the time that lies `seconds` before the evidence was read, or None if either is unknown."""
        now = self.evidence.overview
        return None if now is None or seconds is None else now.at - timedelta(seconds=seconds)

    def command(self, text: str, subscription: str | None = None, *arguments: str, options: Sequence[str] = ()) -> str:
        """Return a partbox command for this schema, in backticks."""
        return command(text, self.schema, subscription, *arguments, options=options)

    def node(self, process: Instance) -> str:
        """Return the name of a process's node. A host may have several nodes."""
        known = (node_names(cluster.instances) for cluster in self.clusters if process in cluster.instances)
        return next(known, {}).get(process.instance_id, process.node)

    def process(self, process: Instance) -> str:
        """Return a text with the process, its node and the time since its last heartbeat."""
        heartbeat = f"heartbeat {age(process.heartbeat_age)} ago (lease {age(process.lease)})"
        owns = counted(process.partitions, "partition")
        return f"process {process.pid} on {self.node(process)}, {heartbeat}, {owns}"

    def braked(self, subscription: str) -> list[ParkedCounts]:
        """Return the partitions of a subscription that read nothing new because too many records are parked."""
        of_subscription = (each for each in self.evidence.open if each.subscription == subscription)
        return [each for each in of_subscription if each.rows >= self.limits.braked]

    def earlier(self, subscription: str) -> Cluster | None:
        """Return the cluster of a subscription as it was at the first look, or None."""
        found = self.before.clusters if self.before else ()
        return next((each for each in found if each.subscription == subscription), None)


class Severity(StrEnum):
    """The severity of a finding. The members are ordered, the worst first."""

    # Events wait or are lost until somebody acts. The exit code is 1.
    PROBLEM = "problem"

    # Delivery works, but slowly or unsafely, or it will stop one day.
    WARNING = "warning"

    # Information, and parts of the evidence that could not be read.
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Finding:
    """A cause of trouble that was found, with a summary of one sentence, the evidence and the remedies. Remedies have
    their commands in backticks. `cause` is the name of the check, `since` is None if the beginning is unknown, and
    `subscription` is None if the finding concerns all."""

    severity: Severity
    summary: str
    evidence: tuple[str, ...] = ()
    remedy: tuple[str, ...] = ()
    subscription: str | None = None
    cause: str = ""
    since: datetime | None = None


class Symptom(NamedTuple):
    """A finding as a check yields it, without the cause. A `severity` of None stands for the first severity of the
    check. `lasts` is the number of seconds since the trouble began."""

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
    """A check for one cause of trouble. `judge` is None for a cause that raises an error before there is a case.
    `meaning` is the text for the documentation."""

    name: str
    severities: tuple[Severity, ...]
    meaning: str
    judge: CheckFunction | None = None

    def __call__(self, case: Case) -> Iterator[Finding]:
        for summary, evidence, remedy, subscription, severity, lasts in self.judge(case) if self.judge else ():
            since = case.ago(lasts)
            yield Finding(severity or self.severities[0], summary, evidence, remedy, subscription, self.name, since)


def check(name: str, *severities: Severity) -> Callable[[CheckFunction], Check]:
    """Make a check of a function, whose docstring becomes the meaning. The first severity is the default."""
    return lambda judge: Check(name, severities, " ".join((getdoc(judge) or "").split()), judge)


def subscription_check(name: str, *severities: Severity) -> Callable[[ClusterCheck], Check]:
    """Make a check of a function that judges one subscription at a time."""

    def make_check(judge: ClusterCheck) -> Check:
        @wraps(judge)
        def judge_all(case: Case) -> Iterator[Symptom]:
            for cluster in case.clusters:
                for symptom in judge(case, cluster):
                    yield symptom._replace(subscription=cluster.subscription)

        return check(name, *severities)(judge_all)

    return make_check


def healthy(findings: Iterable[Finding]) -> bool:
    """Return True if no finding is a problem."""
    return all(each.severity is not Severity.PROBLEM for each in findings)


def group_by(found: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Group items by a key. Keys and items keep their order."""
    groups: dict[K, list[T]] = {}
    for each in found:
        groups.setdefault(key(each), []).append(each)
    return groups


def working_processes(cluster: Cluster) -> list[Instance]:
    """Return the processes that have a valid lease and are past their lifespan's start."""
    return [each for each in cluster.instances if not each.expired and each.lifespan is None]


def starting_processes(cluster: Cluster) -> list[Instance]:
    """Return the processes that are still in their lifespan, the longest first."""
    found = [(each.lifespan.seconds, each) for each in cluster.instances if each.lifespan and not each.expired]
    return [each for _, each in sorted(found, key=lambda pair: -pair[0])]


def waiting(cluster: Cluster) -> int:
    """Return the number of records that workers have to deliver now or soon."""
    return cluster.pending + sum(cluster.parked.get(state, 0) for state in UNFINISHED_STATES)


def unowned_partitions(cluster: Cluster) -> list[PartitionStats]:
    """Return the partitions without an owner, or with an owner that is no longer an instance."""
    instance_ids: set[UUID] = {each.instance_id for each in cluster.instances}
    return [each for each in cluster.partitions if each.owner not in instance_ids]


def stalled_partitions(cluster: Cluster) -> list[PartitionStats]:
    """Return the partitions with pending records that have made no progress for minutes, or whose owner is idle. A
    partition is left out if its owner has events that wait under a limit."""
    idle_owners = idle_processes(cluster)
    limited = {each.instance_id for each in cluster.instances if _is_limited(each)}
    waiting = (each for each in cluster.partitions if each.pending and each.owner not in limited)
    return [each for each in waiting if each.owner in idle_owners or stalled_seconds(each) > PARTITION_STALL]


def idle_processes(cluster: Cluster) -> set[UUID]:
    """Return the processes that have made no progress in any of their partitions with pending records. A process is
    left out if it reports a handler that runs for long, or events that wait under a limit."""
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
    """Return True if the process has reported in the last seconds that a limit holds back events. A living process
    reports that every two seconds, so an old report proves nothing."""
    return (process.limits_age or 0.0) < REPORT_AGE_LIMIT and any(each.waiting for each in process.limits)


def stalled_seconds(each: PartitionStats) -> float:
    """Return the seconds for which a record of the partition has waited without any progress of the partition."""
    return min(each.oldest_age or 0.0, seconds_quiet(each))


def seconds_quiet(each: PartitionStats) -> float:
    """Return the seconds since the partition was last saved or claimed."""
    return min((age for age in (each.saved_age, each.claimed_age) if age is not None), default=0.0)
