"""Checks for processes that died, and for partitions that no process takes."""

from collections.abc import Iterator
from uuid import UUID

from partbox.db.inspect.stats import Cluster, PartitionStats
from partbox.doctor.case import (
    Case,
    Severity,
    Symptom,
    count_waiting,
    group_by,
    list_unowned_partitions,
    list_working_processes,
    subscription_check,
)
from partbox.doctor.limits import GONE_LEASES
from partbox.doctor.phrases import WORKER_COMMAND
from partbox.text.wording import format_count, format_names

ByAssignee = dict[UUID | None, list[PartitionStats]]


@subscription_check("expired-process", Severity.WARNING, Severity.PROBLEM)
def expired_process(case: Case, cluster: Cluster) -> Iterator[Symptom]:
    """Report that a process has sent no heartbeat for longer than its lease. The process or its node died, froze or
    lost the database. Other processes take over its partitions within two leases. The finding is a problem if none
    does."""
    expired = [each for each in cluster.instances if each.expired]
    if not expired or (not list_working_processes(cluster) and count_waiting(cluster) and not cluster.paused):
        return
    left = any(each.heartbeat_age > GONE_LEASES * each.lease and each.partitions for each in expired)
    yield Symptom(
        f"{format_count(len(expired), 'process')} without a heartbeat for longer than the lease",
        tuple(case.describe_process(each) for each in expired[:5]),
        (
            "look at that node: does it run, is it stopped, does it reach the database?",
            f"start its worker again: {case.format_command(WORKER_COMMAND, cluster.subscription)}; any node "
            "that works on the "
            "subscription takes over the partitions of the process",
        ),
        severity=Severity.PROBLEM if left else Severity.WARNING,
        lasts=max(each.heartbeat_age for each in expired),
    )


@subscription_check("unowned", Severity.PROBLEM)
def unowned(case: Case, cluster: Cluster) -> Iterator[Symptom]:
    """Report that partitions have had no owner for seconds, though processes live. The records there wait. The
    assignees that should take them are listed."""
    earlier, alive = case.find_earlier(cluster.subscription), list_working_processes(cluster)
    then = {each.partition: each.epoch for each in list_unowned_partitions(earlier)} if earlier else {}
    # No process has claimed the partition between the two looks, since its epoch is the same.
    unclaimed = [each for each in list_unowned_partitions(cluster) if then.get(each.partition) == each.epoch]
    if not unclaimed or cluster.paused or not alive:
        return
    by_assignee = group_by(unclaimed, lambda each: each.assignee)
    yield Symptom(
        f"{format_count(len(unclaimed), 'partition')} without an owner, though workers live: "
        f"{format_count(len(alive), 'process')}",
        tuple(_explain_unowned(case, cluster, by_assignee)),
        tuple(_list_remedies(case, cluster, by_assignee)),
    )


def _explain_unowned(case: Case, cluster: Cluster, unclaimed: ByAssignee) -> Iterator[str]:
    there = {each.instance_id: each for each in cluster.instances}
    for assignee, partitions in unclaimed.items():
        numbers = format_names([str(each.partition) for each in partitions], 8)
        which = f"{format_count(len(partitions), 'partition')} ({numbers})"
        if assignee is None:
            yield f"{which}: no node has assigned them"
        elif assignee in there:
            yield f"{which}: not claimed by their assignee, {case.describe_process(there[assignee])}"
        else:
            yield f"{which}: their assignee is gone, and no node has reassigned them"
    pending = sum(each.pending for partitions in unclaimed.values() for each in partitions)
    yield f"{format_count(pending, 'record')} pending in them"


def _list_remedies(case: Case, cluster: Cluster, unclaimed: ByAssignee) -> Iterator[str]:
    there = {each.instance_id: each for each in cluster.instances}
    for each in [there[one] for one in unclaimed if one in there][:3]:
        kill = f"`kill {each.pid}` on {case.find_node_name(each)}"
        yield f"look at the log of process {each.pid}, then let its node replace it: {kill}"
    if any(one not in there for one in unclaimed):
        nodes = sorted({case.find_node_name(each) for each in list_working_processes(cluster)})
        yield (
            f"supervisors assign partitions: look at the log of `partbox worker` on {format_names(nodes)}, "
            "or restart it"
        )
