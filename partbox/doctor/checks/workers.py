"""Nobody works, somebody works no more, or works on the wrong thing."""

from collections.abc import Iterator
from uuid import UUID

from partbox.db.stats import Cluster, Instance, Partition
from partbox.doctor.case import Case, check, living, ownerless, waiting
from partbox.doctor.finding import Finding, Severity
from partbox.doctor.limits import GONE_LEASES, PAUSED, SKEW, STALLED
from partbox.doctor.words import listed
from partbox.rules.wording import age, counted

WORKER = "worker MODULE:OUTBOX"


@check("no-workers", Severity.PROBLEM)
def no_workers(case: Case) -> Iterator[Finding]:
    """Records wait in a subscription, and no process works on it: none was started, or all are down."""
    for cluster in case.clusters:
        if cluster.paused or living(cluster) or not waiting(cluster):
            continue
        remedy = [f"start workers: {case.command(WORKER, cluster.subscription)}"]
        if any(living(other) for other in case.clusters):
            remedy.append(f"or, if nobody needs it: {case.command('subscription drop', None, cluster.subscription)}")
        yield Finding(
            Severity.PROBLEM,
            "no process works on it, and records wait",
            (_backlog(cluster), *(f"its lease is over: {_who(each)}" for each in cluster.instances[:5])),
            tuple(remedy),
            cluster.subscription,
        )


@check("expired-process", Severity.WARNING, Severity.PROBLEM)
def expired_process(case: Case) -> Iterator[Finding]:
    """A process has sent no heartbeat for longer than its lease: it or its node died, froze or lost the database.
    Others take its partitions over within two leases; a problem where nobody does."""
    for cluster in case.clusters:
        expired = [each for each in cluster.instances if each.expired]
        if not expired or (not living(cluster) and waiting(cluster) and not cluster.paused):
            continue
        left = any(each.heartbeat_age > GONE_LEASES * each.lease and each.partitions for each in expired)
        yield Finding(
            Severity.PROBLEM if left else Severity.WARNING,
            f"{_processes(expired)} without a heartbeat for longer than the lease",
            tuple(_who(each) for each in expired[:5]),
            (
                "look at that node: does it run, is it stopped, does it reach the database?",
                f"start its worker again: {case.command(WORKER, cluster.subscription)}; any node that works on the "
                "subscription takes over what the process held",
            ),
            cluster.subscription,
        )


@check("unowned", Severity.PROBLEM)
def unowned(case: Case) -> Iterator[Finding]:
    """Partitions have no owner for seconds, though processes live: their records wait. It names who was to take
    them."""
    for cluster in case.clusters:
        stuck = _stuck(case, cluster)
        if not stuck or cluster.paused or not living(cluster):
            continue
        yield Finding(
            Severity.PROBLEM,
            f"{counted(len(stuck), 'partition')} without an owner, though workers live: {_processes(living(cluster))}",
            tuple(_whose(cluster, stuck)),
            tuple(_taking(case, cluster, stuck)),
            cluster.subscription,
        )


@check("paused", Severity.NOTE, Severity.PROBLEM)
def paused(case: Case) -> Iterator[Finding]:
    """A subscription is paused; a problem when that was over an hour ago and records wait, for it looks forgotten."""
    for cluster in case.clusters:
        if not cluster.paused or cluster.paused_at is None or case.evidence.overview is None:
            continue
        since = (case.evidence.overview.at - cluster.paused_at).total_seconds()
        forgotten = since > PAUSED and waiting(cluster) > 0
        yield Finding(
            Severity.PROBLEM if forgotten else Severity.NOTE,
            f"paused {age(since)} ago: nothing is delivered" + (", and the log keeps all of it" if forgotten else ""),
            (_backlog(cluster),),
            (
                f"let it go on: {case.command('subscription resume', None, cluster.subscription)}",
                f"or, if nobody needs it: {case.command('subscription drop', None, cluster.subscription)}",
            ),
            cluster.subscription,
        )


@check("stalled", Severity.PROBLEM)
def stalled(case: Case) -> Iterator[Finding]:
    """A living process has saved no progress in a partition for minutes though records wait there: a handler does not
    return."""
    for cluster in case.clusters:
        alive = {each.instance_id: each for each in living(cluster)}
        still = [each for each in cluster.partitions if each.owner in alive and _stands(each)]
        if not still:
            continue
        owners = {each.owner: alive[each.owner] for each in still if each.owner}
        yield Finding(
            Severity.PROBLEM,
            f"{counted(len(still), 'partition')} without progress though records wait",
            (
                f"partitions {listed([str(each.partition) for each in still], 8)}, the oldest record published "
                f"{age(max(each.oldest_age or 0 for each in still))} ago",
                *(f"owned by {_who(each)}" for each in list(owners.values())[:5]),
            ),
            (
                "look at what its handlers wait for: `py-spy dump --pid PID` on its node",
                "give handlers a limit: `handler_timeout`, such as PARTBOX_HANDLER_TIMEOUT=30s",
            ),
            cluster.subscription,
        )


@check("crashes", Severity.WARNING, Severity.PROBLEM)
def crashes(case: Case) -> Iterator[Finding]:
    """Processes died while they worked, and what may have killed them is run with care. A problem when the same record
    was running at several deaths: it ends dead when its attempts are over."""
    for cluster in case.clusters:
        suspect = sum(each.suspect for each in cluster.partitions)
        accused = [each for each in case.evidence.accused if each.subscription == cluster.subscription]
        again = [each for each in accused if each.attempts > 1]
        if not (suspect or again) or cluster.paused or not living(cluster):
            continue
        rows = (
            f"record {each.record_id} ({each.event_type}), attempt {each.attempts}, started {age(each.age)} ago"
            for each in (again or accused)[:5]
        )
        yield Finding(
            Severity.PROBLEM if again else Severity.WARNING,
            "processes die while they work"
            + (f", {counted(len(again), 'record')} each time among what they ran" if again else ""),
            (f"{counted(suspect, 'partition')} freed by a death and not yet past what ran then", *rows),
            (
                "look at the node's log, and at the kernel's for processes killed out of memory: `dmesg | grep -i oom`",
                f"records that ended dead of it: {case.command('dead list', cluster.subscription)}",
            ),
            cluster.subscription,
        )


@check("mixed-versions", Severity.WARNING)
def mixed_versions(case: Case) -> Iterator[Finding]:
    """The processes of a subscription run different versions of partbox: right in a rolling deploy, not for long."""
    for cluster in case.clusters:
        nodes: dict[str, set[str]] = {}
        for each in living(cluster):
            nodes.setdefault(each.version, set()).add(each.node)
        if len(nodes) > 1:
            yield Finding(
                Severity.WARNING,
                f"workers of {len(nodes)} versions",
                tuple(f"version {version} on {listed(sorted(names))}" for version, names in sorted(nodes.items())),
                ("upgrade the nodes that are behind",),
                cluster.subscription,
            )


@check("clock-skew", Severity.WARNING)
def clock_skew(case: Case) -> Iterator[Finding]:
    """The clock of the host that doctor runs on differs from the database's. Leases and due times follow the database's
    clock alone; `occurred_at` and log lines of that host are off."""
    if abs(case.skew) >= SKEW:
        yield Finding(
            Severity.WARNING,
            f"this host's clock is {age(abs(case.skew))} {'ahead of' if case.skew > 0 else 'behind'} the database's",
            (),
            ("let both follow a time server: `timedatectl set-ntp true`",),
        )


def _backlog(cluster: Cluster) -> str:
    parked = waiting(cluster) - cluster.pending
    oldest = f", the oldest published {age(cluster.oldest_age)} ago" if cluster.pending else ""
    about = "" if cluster.exact else "about "
    return f"{about}{counted(cluster.pending, 'record')} pending{oldest}; {parked:,} parked"


def _who(each: Instance) -> str:
    return (
        f"process {each.pid} on {each.node}, heartbeat {age(each.heartbeat_age)} ago (lease {age(each.lease)}), "
        f"{counted(each.partitions, 'partition')}"
    )


def _processes(instances: list[Instance]) -> str:
    return f"{len(instances):,} process{'es' if len(instances) > 1 else ''}"


def _stands(each: Partition) -> bool:
    oldest, saved, claimed = each.oldest_age or 0, each.saved_age, each.claimed_age
    quiet = min((one for one in (saved, claimed) if one is not None), default=0)
    return each.pending > 0 and oldest > STALLED and quiet > STALLED


def _stuck(case: Case, cluster: Cluster) -> list[Partition]:
    """Those without an owner at both looks, whom nobody has claimed in between."""
    earlier = case.earlier(cluster.subscription)
    then = {each.partition: each.epoch for each in ownerless(earlier)} if earlier else {}
    return [each for each in ownerless(cluster) if then.get(each.partition) == each.epoch]


def _groups(stuck: list[Partition]) -> dict[UUID | None, list[str]]:
    groups: dict[UUID | None, list[str]] = {}
    for each in stuck:
        groups.setdefault(each.assignee, []).append(str(each.partition))
    return groups


def _whose(cluster: Cluster, stuck: list[Partition]) -> Iterator[str]:
    """Why, by who was to take them."""
    there = {each.instance_id: each for each in cluster.instances}
    for assignee, numbers in _groups(stuck).items():
        which = f"{counted(len(numbers), 'partition')} ({listed(numbers, 8)})"
        if assignee is None:
            yield f"{which}: no node has planned them"
        elif assignee in there:
            yield f"{which}: not claimed by their assignee, {_who(there[assignee])}"
        else:
            yield f"{which}: their assignee is gone, and no node has planned them anew"
    waiting_there = sum(each.pending for each in stuck)
    yield f"{counted(waiting_there, 'record')} pending in them"


def _taking(case: Case, cluster: Cluster, stuck: list[Partition]) -> Iterator[str]:
    there = {each.instance_id: each for each in cluster.instances}
    assignees = _groups(stuck)
    for each in [there[one] for one in assignees if one in there][:3]:
        yield f"look at the log of process {each.pid}, then let its node replace it: `kill {each.pid}` on {each.node}"
    if any(one not in there for one in assignees):
        nodes = sorted({each.node for each in living(cluster)})
        yield f"planning is the supervisor's: look at the log of `partbox worker` on {listed(nodes)}, or restart it"
