"""Nobody works, nobody may, or what works makes no progress."""

from collections.abc import Iterator

from partbox.db.stats import Cluster, Partition
from partbox.doctor.case import Case, check, living, waiting
from partbox.doctor.finding import Finding, Severity
from partbox.doctor.limits import PAUSED, SKEW, STALLED
from partbox.doctor.words import WORKER, listed, process
from partbox.rules.wording import age, counted


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
            (_backlog(cluster), *(f"its lease is over: {process(each)}" for each in cluster.instances[:5])),
            tuple(remedy),
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
    return, or what is between the process and the database hangs again and again."""
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
                *(f"owned by {process(each)}" for each in list(owners.values())[:5]),
            ),
            (
                "look at what its handlers wait for: `py-spy dump --pid PID` on its node",
                "give handlers a limit: `handler_timeout`, such as PARTBOX_HANDLER_TIMEOUT=30s",
                "look at its node's /readyz, and for `partbox.connection_hung` in its log: a proxy or pooler may hang",
            ),
            cluster.subscription,
        )


@check("crashes", Severity.WARNING, Severity.PROBLEM)
def crashes(case: Case) -> Iterator[Finding]:
    """Processes died while they worked, and what may have killed them is run with care. A problem when the same record
    was running at several deaths: it ends dead when its attempts are over."""
    for cluster in case.clusters:
        suspect = sum(each.suspect and each.pending > 0 for each in cluster.partitions)
        accused = [each for each in case.evidence.accused if each.subscription == cluster.subscription]
        again = [each for each in accused if each.attempts > 1]
        if not (suspect or accused) or cluster.paused:
            continue
        rows = (
            f"record {each.record_id} ({each.event_type}), attempt {each.attempts}, started {age(each.age)} ago"
            for each in (again or accused)[:5]
        )
        yield Finding(
            Severity.PROBLEM if again else Severity.WARNING,
            "processes die while they work"
            + (f", {counted(len(again), 'record')} each time among what they ran" if again else ""),
            (f"{counted(suspect, 'partition')} freed by a death, with records pending that may have run then", *rows),
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


def _stands(each: Partition) -> bool:
    oldest, saved, claimed = each.oldest_age or 0, each.saved_age, each.claimed_age
    quiet = min((one for one in (saved, claimed) if one is not None), default=0)
    return each.pending > 0 and oldest > STALLED and quiet > STALLED
