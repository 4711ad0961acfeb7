"""Checks for missing workers, and for workers that start, crash or make no progress."""

from collections.abc import Iterator

from partbox.db.inspect.stats import Cluster, Instance, PartitionStats
from partbox.doctor.case import (
    Case,
    Severity,
    Symptom,
    count_waiting,
    find_idle_processes,
    list_stalled_partitions,
    list_starting_processes,
    list_working_processes,
    measure_quiet,
    measure_stall,
    subscription_check,
)
from partbox.doctor.limits import LIFESPAN_LIMIT, PARTITION_STALL, PAUSE_LIMIT
from partbox.doctor.phrases import MORE_WORKERS, WORKER_COMMAND
from partbox.text.wording import format_age, format_count, format_names, shorten_text


@subscription_check("no-workers", Severity.PROBLEM)
def no_workers(case: Case, cluster: Cluster) -> Iterator[Symptom]:
    """Report that records wait in a subscription, and no process works on it. None was started, all are down, or the
    processes of a running node cannot begin."""
    if (
        cluster.paused
        or list_working_processes(cluster)
        or list_starting_processes(cluster)
        or not count_waiting(cluster)
    ):
        return
    nodes, elsewhere = case.evidence.nodes, any(list_working_processes(other) for other in case.clusters)
    if nodes and nodes.number and not elsewhere:
        yield Symptom(
            "a node runs, and none of its processes has begun to work; records wait",
            (
                _format_backlog(cluster),
                f"{format_count(nodes.number, 'session')} of nodes in this database, open for {format_age(nodes.age)}",
            ),
            (
                "look at the log of `partbox worker` for the reason: it names what its processes cannot do or wait for",
                f"if that node works for another subscription, {_start_remedy(case, cluster)}",
            ),
            lasts=nodes.age,
        )
        return
    remedy = [_start_remedy(case, cluster)]
    if elsewhere:
        remedy.append(f"or, if nobody needs it: {case.format_command('subscription drop', None, cluster.subscription)}")
    yield Symptom(
        "records wait, and no process delivers them",
        (
            _format_backlog(cluster),
            *(f"its lease is over: {case.describe_process(each)}" for each in cluster.instances[:5]),
        ),
        tuple(remedy),
        lasts=min((each.heartbeat_age for each in cluster.instances), default=None),
    )


def _start_remedy(case: Case, cluster: Cluster) -> str:
    return f"start workers: {case.format_command(WORKER_COMMAND, cluster.subscription)}"


@subscription_check("lifespan", Severity.WARNING, Severity.PROBLEM)
def lifespan(case: Case, cluster: Cluster) -> Iterator[Symptom]:
    """Report that processes have been in their lifespan for over ten seconds, and deliver nothing before it yields. The
    finding is a problem if records wait and no other process works."""
    found = [
        each for each in list_starting_processes(cluster) if each.lifespan and each.lifespan.seconds > LIFESPAN_LIMIT
    ]
    if not found:
        return
    alone = not list_working_processes(cluster) and count_waiting(cluster) > 0 and not cluster.paused
    seconds = [each.lifespan.seconds for each in found if each.lifespan]
    names = format_names(sorted({shorten_text(each.lifespan.lifespan) for each in found if each.lifespan}))
    yield Symptom(
        f"{format_count(len(found), 'process')} in the lifespan {names}"
        + (", no other process works, and records wait" if alone else ", not at work yet"),
        (
            *((_format_backlog(cluster),) if alone else ()),
            *(
                f"process {each.pid} on {case.find_node_name(each)}, for {format_age(for_)}"
                for for_, each in zip(seconds, found, strict=True)
            ),
        ),
        (
            f"see what the lifespan waits for: `py-spy dump --pid {found[0].pid}` on {case.find_node_name(found[0])}; "
            "the node's log names the line of code (`partbox.lifespan_waits`)",
            "set a timeout for each call that the lifespan makes: a failed start is logged and tried again",
        ),
        severity=Severity.PROBLEM if alone else Severity.WARNING,
        lasts=seconds[0],
    )


@subscription_check("paused", Severity.NOTE, Severity.PROBLEM)
def paused(case: Case, cluster: Cluster) -> Iterator[Symptom]:
    """Report that a subscription is paused. The finding is a problem after an hour if records wait, because the
    subscription seems forgotten."""
    if not cluster.paused or cluster.paused_at is None or case.evidence.overview is None:
        return
    since = (case.evidence.overview.at - cluster.paused_at).total_seconds()
    forgotten = since > PAUSE_LIMIT and count_waiting(cluster) > 0
    yield Symptom(
        f"paused {format_age(since)} ago: nothing is delivered"
        + (", and the log keeps every record" if forgotten else ""),
        (_format_backlog(cluster),),
        (
            f"let it go on: {case.format_command('subscription resume', None, cluster.subscription)}",
            f"or, if nobody needs it: {case.format_command('subscription drop', None, cluster.subscription)}",
        ),
        severity=Severity.PROBLEM if forgotten else Severity.NOTE,
        lasts=since,
    )


@subscription_check("stalled", Severity.PROBLEM, Severity.WARNING)
def stalled(case: Case, cluster: Cluster) -> Iterator[Symptom]:
    """Report that records wait, and their owner has neither read nor saved for four leases or 20 s.

    The owner reports no handler that runs for long: a handler holds the interpreter, the process cannot connect again,
    or the path to the database hangs again and again. The finding is a warning if the owner makes progress in other
    partitions, but not in one for minutes: it has more work than it can do."""
    owners = {each.instance_id: each for each in list_working_processes(cluster) if not each.running}
    stalled_now = [each for each in _list_still_stalled(case, cluster) if each.owner in owners]
    progressing = {each.owner for each in cluster.partitions if each.pending and measure_quiet(each) <= PARTITION_STALL}
    progressing -= find_idle_processes(cluster)
    for slow in (False, True):
        found = [each for each in stalled_now if (each.owner in progressing) == slow]
        if found:
            held_up = {each.owner: owners[each.owner] for each in found if each.owner}
            yield _build_stalled_symptom(case, cluster, found, list(held_up.values()), slow=slow)


def _list_still_stalled(case: Case, cluster: Cluster) -> list[PartitionStats]:
    # The partitions were stalled at both looks. Braked partitions have a check of their own.
    braked = {each.partition for each in case.list_braked(cluster.subscription)}
    earlier = case.find_earlier(cluster.subscription)
    then = {(each.partition, each.epoch, each.last_id) for each in list_stalled_partitions(earlier or cluster)}
    found = [each for each in list_stalled_partitions(cluster) if (each.partition, each.epoch, each.last_id) in then]
    return [each for each in found if each.partition not in braked]


def _build_stalled_symptom(
    case: Case, cluster: Cluster, found: list[PartitionStats], owners: list[Instance], *, slow: bool
) -> Symptom:
    what = (
        "without progress while their process works on other partitions"
        if slow
        else "whose owner neither reads nor saves"
    )
    where = (
        f"partitions {format_names([str(each.partition) for each in found], 8)}: "
        f"{format_count(sum(each.pending for each in found), 'record')} pending, the oldest published "
        f"{format_age(max(each.oldest_age or 0 for each in found))} ago, no progress for "
        f"{format_age(min(map(measure_quiet, found)))}"
    )
    remedy = (
        ("find out what handlers spend their time on", MORE_WORKERS)
        if slow
        else (
            f"look at what the process does: `py-spy dump --pid {owners[0].pid}` on {case.find_node_name(owners[0])}",
            "look at its node's /readyz, and for `partbox.connection_lost` and `connection_hung` in the node's log: "
            "the process may find no free connection or file descriptor, or a proxy or pooler hangs",
            "give handlers a limit: `handler_timeout`, such as PARTBOX_HANDLER_TIMEOUT=30s",
        )
    )
    return Symptom(
        f"{format_count(len(found), 'partition')} {what}",
        (where, *(f"owned by {case.describe_process(each)}" for each in owners[:5])),
        remedy,
        cluster.subscription,
        severity=Severity.WARNING if slow else Severity.PROBLEM,
        lasts=max(map(measure_stall, found)),
    )


@subscription_check("crashes", Severity.WARNING, Severity.PROBLEM)
def crashes(case: Case, cluster: Cluster) -> Iterator[Symptom]:
    """Report that processes died while they worked. Records that may have killed them are run with care. The finding is
    a problem if the same record was running at several deaths; it becomes dead when its attempts are over."""
    suspect = sum(each.suspect and each.pending > 0 for each in cluster.partitions)
    suspect_records = [each for each in case.evidence.suspect_records if each.subscription == cluster.subscription]
    again = [each for each in suspect_records if each.attempts > 1]
    if not (suspect or suspect_records) or cluster.paused:
        return
    rows = (
        f"record {each.record_id} ({each.event_type}), attempt {each.attempts}, started {format_age(each.age)} ago"
        for each in (again or suspect_records)[:5]
    )
    yield Symptom(
        "processes die while they work"
        + (f", with {format_count(len(again), 'record')} running at several deaths" if again else ""),
        (
            f"{format_count(suspect, 'partition')} freed when a process died, with pending records that may have run "
            "then",
            *rows,
        ),
        (
            "look at the node's log, and at the kernel's log for out-of-memory kills: `dmesg | grep -i oom`",
            f"records that became dead this way: {case.format_command('dead list', cluster.subscription)}",
        ),
        severity=Severity.PROBLEM if again else Severity.WARNING,
    )


@subscription_check("mixed-versions", Severity.WARNING)
def mixed_versions(case: Case, cluster: Cluster) -> Iterator[Symptom]:
    """Report that the processes of a subscription run different versions of partbox. That is normal during a rolling
    deploy, but not for long."""
    nodes: dict[str, set[str]] = {}
    for each in list_working_processes(cluster):
        nodes.setdefault(each.version, set()).add(case.find_node_name(each))
    if len(nodes) > 1:
        yield Symptom(
            f"workers of {len(nodes)} versions",
            tuple(f"version {version} on {format_names(sorted(names))}" for version, names in sorted(nodes.items())),
            ("upgrade the nodes that are behind",),
        )


def _format_backlog(cluster: Cluster) -> str:
    parked = count_waiting(cluster) - cluster.pending
    oldest = f", the oldest published {format_age(cluster.oldest_age)} ago" if cluster.pending else ""
    about = "" if cluster.exact else "about "
    return f"{about}{format_count(cluster.pending, 'record')} pending{oldest}; {parked:,} parked"
