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
from partbox.db.inspect.stats import Cluster, Instance, Overview, PartitionStats, RunningHandler
from partbox.doctor.limits import (
    HANDLER_LIMIT,
    PARTITION_STALL,
    PROCESS_STALL,
    REPORT_AGE_LIMIT,
    TIMEOUT_OVERRUN,
    Limits,
)
from partbox.text.wording import find_node_names, format_age, format_command, format_count

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

UNFINISHED_STATES = ("retrying", "deferred", "held", "ready")


@dataclass(frozen=True, slots=True)
class Case:
    """The data about an outbox that the checks of `partbox doctor` examine."""

    # `before` holds the statistics of some seconds earlier, or None if no second look was needed. `clock_skew` is the
    # number of seconds by which this host's clock is ahead of the database's.

    schema: str
    evidence: Evidence
    limits: Limits
    before: Overview | None = None
    clock_skew: float = 0.0

    @property
    def clusters(self) -> tuple[Cluster, ...]:
        """The statistics of each subscription and of its processes and partitions. Empty if they were not read."""
        return self.evidence.overview.clusters if self.evidence.overview else ()

    def compute_time_ago(self, seconds: float | None) -> datetime | None:
        """Return the time that was `seconds` before the outbox was examined, or None if either is unknown."""
        now = self.evidence.overview
        return None if now is None or seconds is None else now.at - timedelta(seconds=seconds)

    def format_command(
        self, text: str, subscription: str | None = None, *arguments: str, options: Sequence[str] = ()
    ) -> str:
        return format_command(text, self.schema, subscription, *arguments, options=options)

    def find_node_name(self, process: Instance) -> str:
        """Return the name of the node (the parent process on a host) to which a worker process belongs."""
        # A host may have several nodes.
        known = (find_node_names(cluster.instances) for cluster in self.clusters if process in cluster.instances)
        return next(known, {}).get(process.instance_id, process.node)

    def describe_process(self, process: Instance) -> str:
        heartbeat = f"heartbeat {format_age(process.heartbeat_age)} ago (lease {format_age(process.lease)})"
        owns = format_count(process.partitions, "partition")
        return f"process {process.pid} on {self.find_node_name(process)}, {heartbeat}, {owns}"

    def list_braked(self, subscription: str) -> list[ParkedCounts]:
        """Return the partitions that stopped reading new events because too many of their old events are unfinished."""
        # The unfinished records are parked, that is, set aside to be delivered later. While a handler could handle
        # events, a partition with such records is read on, so nothing of it waits to be read.
        cluster = next((each for each in self.clusters if each.subscription == subscription), None)
        unread = (
            {each.partition for each in cluster.partitions if each.pending} if cluster and cluster.partitions else None
        )
        of_subscription = (each for each in self.evidence.parked_counts if each.subscription == subscription)
        return [
            each
            for each in of_subscription
            if each.rows >= self.limits.brake_threshold and (unread is None or each.partition in unread)
        ]

    def find_earlier(self, subscription: str) -> Cluster | None:
        """Return the statistics of a subscription that were read some seconds earlier, or None if there are none."""
        # There are none if the outbox was read only once, or if it had no such subscription at the first read.
        found = self.before.clusters if self.before else ()
        return next((each for each in found if each.subscription == subscription), None)


class Severity(StrEnum):
    """The severity of a problem that `partbox doctor` reports: a problem, a warning or a note.

    The members are ordered, the worst first."""

    # Events wait or are lost until somebody acts. The exit code is 1.
    PROBLEM = "problem"

    # Delivery works, but slowly or unsafely, or it will stop one day.
    WARNING = "warning"

    # Information, and parts of the evidence that could not be read.
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem that `partbox doctor` has found, with its evidence and the remedy."""

    # `summary` is one sentence, and commands in `remedy` are in backticks. `cause` is the name of the check. `since` is
    # None if the beginning is unknown, and `subscription` is None if the finding concerns all subscriptions.

    severity: Severity
    summary: str
    evidence: tuple[str, ...] = ()
    remedy: tuple[str, ...] = ()
    subscription: str | None = None
    cause: str = ""
    since: datetime | None = None


class Symptom(NamedTuple):
    """A problem as a check function of `partbox doctor` yields it, still without the name of the check."""

    # A `severity` of None stands for the first severity of the check. `lasts` is the number of seconds since the
    # trouble began.

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
    """A check of `partbox doctor`, which looks for one kind of problem."""

    # `meaning` is the text for the documentation. `judge` is None for a cause that raises an error before any data is
    # read.

    name: str
    severities: tuple[Severity, ...]
    meaning: str
    judge: CheckFunction | None = None

    def __call__(self, case: Case) -> Iterator[Finding]:
        for summary, evidence, remedy, subscription, severity, lasts in self.judge(case) if self.judge else ():
            since = case.compute_time_ago(lasts)
            yield Finding(severity or self.severities[0], summary, evidence, remedy, subscription, self.name, since)


def check(name: str, *severities: Severity) -> Callable[[CheckFunction], Check]:
    """Return a decorator that turns a function into a check of `partbox doctor` with the given name."""
    # The first of the severities is the default.
    return lambda judge: Check(name, severities, _meaning(judge), judge)


def _meaning(judge: CheckFunction) -> str:
    """Return the meaning of a check for the documentation: its docstring without "Report that"."""
    text = " ".join((getdoc(judge) or "").removeprefix("Report that ").split())
    return text[:1].upper() + text[1:]


def subscription_check(name: str, *severities: Severity) -> Callable[[ClusterCheck], Check]:
    """Return a decorator that turns a function into a check that `partbox doctor` runs for every subscription."""

    def make_check(judge: ClusterCheck) -> Check:
        @wraps(judge)
        def judge_all(case: Case) -> Iterator[Symptom]:
            for cluster in case.clusters:
                for symptom in judge(case, cluster):
                    yield symptom._replace(subscription=cluster.subscription)

        return check(name, *severities)(judge_all)

    return make_check


def is_healthy(findings: Iterable[Finding]) -> bool:
    """Return True if no finding has the severity "problem". Warnings and notes are allowed."""
    return all(each.severity is not Severity.PROBLEM for each in findings)


def group_by(found: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    # Keys and items keep their order.
    groups: dict[K, list[T]] = {}
    for each in found:
        groups.setdefault(key(each), []).append(each)
    return groups


def list_working_processes(cluster: Cluster) -> list[Instance]:
    """Return the live worker processes of a subscription that are ready to deliver events."""
    # Such a process has a valid lease and has completed its start.
    return [each for each in cluster.instances if not each.expired and each.lifespan is None]


def list_hanging_handlers(process: Instance) -> list[RunningHandler]:
    """Return the handlers of a process that have run for too long, and that no timeout will end."""
    # A timeout does not end a handler in a thread: its process is replaced some seconds later.
    return [
        each
        for each in process.running
        if each.seconds > (HANDLER_LIMIT if each.timeout is None else each.timeout + TIMEOUT_OVERRUN)
    ]


def list_starting_processes(cluster: Cluster) -> list[Instance]:
    """Return the live worker processes of a subscription that have not finished their startup, the slowest first."""
    # A live process has a valid lease.
    found = [(each.lifespan.seconds, each) for each in cluster.instances if each.lifespan and not each.expired]
    return [each for _, each in sorted(found, key=lambda pair: -pair[0])]


def count_waiting(cluster: Cluster) -> int:
    """Return the number of a subscription's records that workers should deliver now or soon, retries included."""
    # Pending records count, and parked records (failed or waiting events) in the states of `UNFINISHED_STATES`.
    return cluster.pending + sum(cluster.parked.get(state, 0) for state in UNFINISHED_STATES)


def list_unowned_partitions(cluster: Cluster) -> list[PartitionStats]:
    instance_ids: set[UUID] = {each.instance_id for each in cluster.instances}
    return [each for each in cluster.partitions if each.owner not in instance_ids]


def list_stalled_partitions(cluster: Cluster) -> list[PartitionStats]:
    """Return the partitions with pending records but no progress for minutes."""
    # A partition counts as well if its owner makes no progress in any partition. A partition is left out if its owner
    # has events that wait under a limit.
    idle_owners = find_idle_processes(cluster)
    limited = {each.instance_id for each in cluster.instances if _is_limited(each)}
    waiting = (each for each in cluster.partitions if each.pending and each.owner not in limited)
    return [each for each in waiting if each.owner in idle_owners or measure_stall(each) > PARTITION_STALL]


def find_idle_processes(cluster: Cluster) -> set[UUID]:
    """Return the ids of worker processes that make no progress although their partitions have pending records."""
    # A process is left out if it reports a handler that runs for long, or events that wait under a limit.
    stalled_for: dict[UUID, float] = {}
    for each in cluster.partitions:
        if each.pending and each.owner is not None:
            stalled_for[each.owner] = min(stalled_for.get(each.owner, measure_stall(each)), measure_stall(each))
    limits = {
        each.instance_id: max(PROCESS_STALL[0], PROCESS_STALL[1] * each.lease)
        for each in list_working_processes(cluster)
        if not (each.running or _is_limited(each))
    }
    return {owner for owner, limit in limits.items() if stalled_for.get(owner, 0.0) > limit}


def _is_limited(process: Instance) -> bool:
    # A living process reports every two seconds that a limit on handlers holds back events, so an old report proves
    # nothing.
    waits = any(each.waiting for each in process.limits) or any(each.waiting for each in process.held)
    return waits and (process.limits_age or 0.0) < REPORT_AGE_LIMIT


def measure_stall(each: PartitionStats) -> float:
    """Return the seconds for which a partition has had waiting records but no progress."""
    return min(each.oldest_age or 0.0, measure_quiet(each))


def measure_quiet(each: PartitionStats) -> float:
    """Return the seconds since a partition last saved its position or got a new owner."""
    # The later of the two counts.
    return min((age for age in (each.saved_age, each.claimed_age) if age is not None), default=0.0)
