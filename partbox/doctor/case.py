"""What is judged, and the form of a judgement: a check is a pure function from a case to findings."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from inspect import getdoc
from uuid import UUID

from partbox.db.evidence import Evidence
from partbox.db.stats import Cluster, Instance, Overview, Partition
from partbox.doctor import words
from partbox.doctor.finding import Finding, Severity
from partbox.doctor.limits import Limits

UNFINISHED = ("retrying", "deferred", "held", "ready")


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

    def command(self, text: str, subscription: str | None = None, *arguments: str, options: Sequence[str] = ()) -> str:
        """A command of ours for this schema, in backticks."""
        return words.command(text, self.schema, subscription, *arguments, options=options)

    def earlier(self, subscription: str) -> Cluster | None:
        """The cluster as it was at the first look."""
        found = self.before.clusters if self.before else ()
        return next((each for each in found if each.subscription == subscription), None)


Judge = Callable[[Case], Iterable[Finding]]


@dataclass(frozen=True, slots=True)
class Check:
    """A known cause of trouble; `judge` is None for what is met before there is a case."""

    name: str
    severities: tuple[Severity, ...]
    meaning: str
    judge: Judge | None = None

    def __call__(self, case: Case) -> Iterator[Finding]:
        for finding in self.judge(case) if self.judge else ():
            yield replace(finding, cause=self.name)


def check(name: str, *severities: Severity) -> Callable[[Judge], Check]:
    """A check of this name, whose findings have one of these severities; its meaning is the docstring."""
    return lambda judge: Check(name, severities, " ".join((getdoc(judge) or "").split()), judge)


def living(cluster: Cluster) -> list[Instance]:
    return [each for each in cluster.instances if not each.expired]


def waiting(cluster: Cluster) -> int:
    """Records that a worker has to do with, now or soon."""
    return cluster.pending + sum(cluster.parked.get(state, 0) for state in UNFINISHED)


def ownerless(cluster: Cluster) -> list[Partition]:
    """Partitions without an owner, or whose owner is gone."""
    there: set[UUID] = {each.instance_id for each in cluster.instances}
    return [each for each in cluster.partitions if each.owner not in there]
