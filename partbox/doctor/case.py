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
    """The data about an outbox, read at one moment, that the checks of `partbox doctor` examine. `before` holds the
    statistics of some seconds earlier, or None if no second look was needed. `skew` is the number of seconds by which
    this host's clock is ahead of the database's."""

    schema: str
    evidence: Evidence
    limits: Limits
    before: Overview | None = None
    skew: float = 0.0

    @property
    def clusters(self) -> tuple[Cluster, ...]:
        """The statistics of all subscriptions, with their processes and partitions. Empty if the statistics could not
        be read."""
        return self.evidence.overview.clusters if self.evidence.overview else ()

    def ago(self, seconds: float | None) -> datetime | None:
        """Return the time `seconds` before the outbox was examined. None if that moment or `seconds` is unknown."""
        now = self.evidence.overview
        return None if now is None or seconds is None else now.at - timedelta(seconds=seconds)

    def command(self, text: str, subscription: str | None = None, *arguments: str, options: Sequence[str] = ()) -> str:
        """Return a partbox command line in backticks, with the options that select this schema and the subscription."""
        return command(text, self.schema, subscription, *arguments, options=options)

    def node(self, process: Instance) -> str:
        """Return the name of the node (supervisor) to which a worker process belongs. A host may have several nodes."""
        known = (node_names(cluster.instances) for cluster in self.clusters if process in cluster.instances)
        return next(known, {}).get(process.instance_id, process.node)

    def process(self, process: Instance) -> str:
        """Describe a worker process as text: its pid and node, the time since its last heartbeat, its lease and the
        number of its partitions."""
        heartbeat = f"heartbeat {age(process.heartbeat_age)} ago (lease {age(process.lease)})"
        owns = counted(process.partitions, "partition")
        return f"process {process.pid} on {self.node(process)}, {heartbeat}, {owns}"

    def braked(self, subscription: str) -> list[ParkedCounts]:
        """Return the partitions of a subscription that have stopped reading new events because too many of their
        records are parked (set aside to be delivered later)."""
        of_subscription = (each for each in self.evidence.open if each.subscription == subscription)
        return [each for each in of_subscription if each.rows >= self.limits.braked]

    def earlier(self, subscription: str) -> Cluster | None:
        """Return the statistics of a subscription as they were some seconds earlier, at the first look. None if there
        was only one look, or no such subscription then."""
        found = self.before.clusters if self.before else ()
        return next((each for each in found if each.subscription == subscription), None)


class Severity(StrEnum):
    """The severity of a finding of `partbox doctor`: problem, warning or note. The members are ordered, the worst
    first."""

    # Events wait or are lost until somebody acts. The exit code is 1.
    PROBLEM = "problem"

    # Delivery works, but slowly or unsafely, or it will stop one day.
    WARNING = "warning"

    # Information, and parts of the evidence that could not be read.
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Finding:
    """A cause of trouble that `partbox doctor` has found, with a summary of one sentence, the evidence and the
    remedies. Remedies have their commands in backticks. `cause` is the name of the check, `since` is None if the
    beginning is unknown, and `subscription` is None if the finding concerns all subscriptions."""

    severity: Severity
    summary: str
    evidence: tuple[str, ...] = ()
    remedy: tuple[str, ...] = ()
    subscription: str | None = None
    cause: str = ""
    since: datetime | None = None


class Symptom(NamedTuple):
    """A finding as a check function yields it, before the name of the check is added. A `severity` of None stands for
    the first severity of the check. `lasts` is the number of seconds since the trouble began."""

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
    """A check of `partbox doctor` for one cause of trouble. `judge` is None for a cause that raises an error before any
    data is read. `meaning` is the text for the documentation."""

    name: str
    severities: tuple[Severity, ...]
    meaning: str
    judge: CheckFunction | None = None

    def __call__(self, case: Case) -> Iterator[Finding]:
        for summary, evidence, remedy, subscription, severity, lasts in self.judge(case) if self.judge else ():
            since = case.ago(lasts)
            yield Finding(severity or self.severities[0], summary, evidence, remedy, subscription, self.name, since)


def check(name: str, *severities: Severity) -> Callable[[CheckFunction], Check]:
    """Decorate a function as a check of `partbox doctor`. Its docstring becomes the meaning in the documentation. The
    first of the severities is the default."""
    return lambda judge: Check(name, severities, " ".join((getdoc(judge) or "").split()), judge)


def subscription_check(name: str, *severities: Severity) -> Callable[[ClusterCheck], Check]:
    """Decorate a function that examines one subscription as a check of `partbox doctor`, which calls it for every
    subscription."""

    def make_check(judge: ClusterCheck) -> Check:
        @wraps(judge)
        def judge_all(case: Case) -> Iterator[Symptom]:
            for cluster in case.clusters:
                for symptom in judge(case, cluster):
                    yield symptom._replace(subscription=cluster.subscription)

        return check(name, *severities)(judge_all)

    return make_check


def healthy(findings: Iterable[Finding]) -> bool:
    """Return True if none of the findings has the severity "problem". Warnings and notes are allowed."""
    return all(each.severity is not Severity.PROBLEM for each in findings)


def group_by(found: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Group items by the key that the function `key` returns. Keys and items keep their order."""
    groups: dict[K, list[T]] = {}
    for each in found:
        groups.setdefault(key(each), []).append(each)
    return groups


def working_processes(cluster: Cluster) -> list[Instance]:
    """Return the worker processes of a subscription that have a valid lease and have completed their start, so that
    they can deliver events."""
    return [each for each in cluster.instances if not each.expired and each.lifespan is None]


def starting_processes(cluster: Cluster) -> list[Instance]:
    """Return the worker processes of a subscription that have a valid lease and are still starting up, the longest
    first."""
    found = [(each.lifespan.seconds, each) for each in cluster.instances if each.lifespan and not each.expired]
    return [each for _, each in sorted(found, key=lambda pair: -pair[0])]


def waiting(cluster: Cluster) -> int:
    """Return the number of a subscription's records that workers have to deliver now or soon: pending ones, and parked
    ones that are not finished."""
    return cluster.pending + sum(cluster.parked.get(state, 0) for state in UNFINISHED_STATES)


def unowned_partitions(cluster: Cluster) -> list[PartitionStats]:
    """Return the partitions that no worker process owns, or whose owner is no longer registered."""
    instance_ids: set[UUID] = {each.instance_id for each in cluster.instances}
    return [each for each in cluster.partitions if each.owner not in instance_ids]


def stalled_partitions(cluster: Cluster) -> list[PartitionStats]:
    """Return the partitions with pending records that have made no progress for minutes, or whose owner makes none in
    any partition. A partition is left out if its owner has events that wait under a limit."""
    idle_owners = idle_processes(cluster)
    limited = {each.instance_id for each in cluster.instances if _is_limited(each)}
    waiting = (each for each in cluster.partitions if each.pending and each.owner not in limited)
    return [each for each in waiting if each.owner in idle_owners or stalled_seconds(each) > PARTITION_STALL]


def idle_processes(cluster: Cluster) -> set[UUID]:
    """Return the ids of the worker processes that have made no progress in any of their partitions with pending
    records. A process is left out if it reports a handler that runs for long, or events that wait under a limit."""
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
    """Return True if a process has reported in the last seconds that a limit on handlers holds back events. A living
    process reports that every two seconds, so an old report proves nothing."""
    return (process.limits_age or 0.0) < REPORT_AGE_LIMIT and any(each.waiting for each in process.limits)


def stalled_seconds(each: PartitionStats) -> float:
    """Return the seconds for which a partition has had a waiting record and made no progress."""
    return min(each.oldest_age or 0.0, seconds_quiet(each))


def seconds_quiet(each: PartitionStats) -> float:
    """Return the seconds since a partition last showed activity: since its position was saved, or since a process took
    it over, whichever is later."""
    return min((age for age in (each.saved_age, each.claimed_age) if age is not None), default=0.0)
