"""Ownership of partitions: processes that died, and partitions that nobody takes."""

from collections.abc import Iterator
from uuid import UUID

from partbox.db.inspect.stats import Cluster, PartitionStats
from partbox.doctor.case import Case, Severity, Symptom, grouped, living, ownerless, subscription_check, waiting
from partbox.doctor.limits import GONE_LEASES
from partbox.doctor.words import WORKER
from partbox.text.wording import counted, several

Stuck = dict[UUID | None, list[PartitionStats]]  # by assignee


@subscription_check("expired-process", Severity.WARNING, Severity.PROBLEM)
def expired_process(case: Case, cluster: Cluster) -> Iterator[Symptom]:
    """A process has sent no heartbeat for longer than its lease: it or its node died, froze or lost the database.
    Others take its partitions over within two leases; a problem where nobody does."""
    expired = [each for each in cluster.instances if each.expired]
    if not expired or (not living(cluster) and waiting(cluster) and not cluster.paused):
        return
    left = any(each.heartbeat_age > GONE_LEASES * each.lease and each.partitions for each in expired)
    yield Symptom(
        f"{counted(len(expired), 'process')} without a heartbeat for longer than the lease",
        tuple(case.process(each) for each in expired[:5]),
        (
            "look at that node: does it run, is it stopped, does it reach the database?",
            f"start its worker again: {case.command(WORKER, cluster.subscription)}; any node that works on the "
            "subscription takes over what the process held",
        ),
        severity=Severity.PROBLEM if left else Severity.WARNING,
        lasts=max(each.heartbeat_age for each in expired),
    )


@subscription_check("unowned", Severity.PROBLEM)
def unowned(case: Case, cluster: Cluster) -> Iterator[Symptom]:
    """Partitions have no owner for seconds, though processes live: their records wait. It names who was to take
    them."""
    earlier, alive = case.earlier(cluster.subscription), living(cluster)
    then = {each.partition: each.epoch for each in ownerless(earlier)} if earlier else {}
    # Nobody has claimed them between the two looks.
    stuck = [each for each in ownerless(cluster) if then.get(each.partition) == each.epoch]
    if not stuck or cluster.paused or not alive:
        return
    by_assignee = grouped(stuck, lambda each: each.assignee)
    yield Symptom(
        f"{counted(len(stuck), 'partition')} without an owner, though workers live: {counted(len(alive), 'process')}",
        tuple(_whose(case, cluster, by_assignee)),
        tuple(_taking(case, cluster, by_assignee)),
    )


def _whose(case: Case, cluster: Cluster, stuck: Stuck) -> Iterator[str]:
    """Why, by who was to take them."""
    there = {each.instance_id: each for each in cluster.instances}
    for assignee, partitions in stuck.items():
        numbers = several([str(each.partition) for each in partitions], 8)
        which = f"{counted(len(partitions), 'partition')} ({numbers})"
        if assignee is None:
            yield f"{which}: no node has planned them"
        elif assignee in there:
            yield f"{which}: not claimed by their assignee, {case.process(there[assignee])}"
        else:
            yield f"{which}: their assignee is gone, and no node has planned them anew"
    pending = sum(each.pending for partitions in stuck.values() for each in partitions)
    yield f"{counted(pending, 'record')} pending in them"


def _taking(case: Case, cluster: Cluster, stuck: Stuck) -> Iterator[str]:
    there = {each.instance_id: each for each in cluster.instances}
    for each in [there[one] for one in stuck if one in there][:3]:
        kill = f"`kill {each.pid}` on {case.node(each)}"
        yield f"look at the log of process {each.pid}, then let its node replace it: {kill}"
    if any(one not in there for one in stuck):
        nodes = sorted({case.node(each) for each in living(cluster)})
        yield f"planning is the supervisor's: look at the log of `partbox worker` on {several(nodes)}, or restart it"
