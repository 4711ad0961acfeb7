"""Problems that a single overview of a subscription shows, at once, whereas doctor takes some seconds."""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from shlex import quote

from partbox.dashboard.page_text import cut_text
from partbox.dashboard.problems import BAD, WARN, Problem
from partbox.db.inspect.stats import Cluster
from partbox.text.wording import format_count

UNITS = (("days", 86_400.0), ("hours", 3_600.0), ("minutes", 60.0))
# Leases for which a partition may have no owner while it moves.
LEAD_TIME = 2.0

# Doctor's names of the causes.
CAUSES = frozenset({"no-workers", "paused", "unowned"})


def find_alarms(cluster: Cluster, unowned_for: float, at: datetime) -> Iterator[Problem]:
    """Yield the problems of a subscription that its dashboard shows, such as a lack of worker processes."""
    # `unowned_for` is the number of seconds since every partition had an owner, and `at` is the present time.
    living = [instance for instance in cluster.instances if not instance.expired]
    some = f"{format_count(cluster.pending, 'event')} wait{'s' if cluster.pending == 1 else ''}"
    waits = some if cluster.pending else "none waits"
    nothing = f"nothing is delivered, {'' if cluster.exact else 'about '}{waits}."
    if cluster.paused:
        yield Problem(
            WARN,
            "paused",
            f"Subscription {cut_text(cluster.subscription)} has been paused{_format_pause_age(cluster, at)}: {nothing}",
            ("Resume the subscription when the reason for the pause is gone: the log is kept until then.",),
            actions=("resume",),
            subscription=cluster.subscription,
            since=cluster.paused_at,
        )
    if not living:
        silent = " The earlier processes are silent." if cluster.instances else ""
        quoted = quote(cut_text(cluster.subscription) or cluster.subscription)
        named = "" if cluster.subscription == "default" else f" --subscription {quoted}"
        remedy = f"Start some: `partbox worker MODULE:OUTBOX{named}`"
        last = min((each.heartbeat_age for each in cluster.instances), default=cluster.unfinished_age)
        since = None if last is None else at - timedelta(seconds=last)
        yield Problem(BAD, "no-workers", f"No worker process runs: {nothing}{silent}", (remedy,), since=since)
    elif cluster.unowned and not cluster.paused and unowned_for > LEAD_TIME * max(each.lease for each in living):
        yield Problem(
            WARN,
            "unowned",
            f"{cluster.unowned} of {cluster.sums.partitions} partitions have had no owner for {unowned_for:.0f} s: "
            "their events wait.",
            ("See logs of the supervisor that assigns partitions.",),
            since=at - timedelta(seconds=unowned_for),
        )


def find_remote_problems(cluster: Cluster, found: Iterable[Problem]) -> Iterator[Problem]:
    """Yield a subscription's problems in short form, for the dashboards of other subscriptions."""
    # Nothing is yielded unless some events of the subscription wait.
    if not cluster.pending and not sum(cluster.waiting.values()):
        return
    for each in found:
        text = each.text if each.name == "paused" else f"Subscription {cut_text(cluster.subscription)}: {each.text}"
        actions = (*each.actions, "choose")
        name, of = f"{each.name}-{cluster.subscription}", cluster.subscription
        yield Problem(each.level, name, text, (), (), actions, of, each.since)


def _format_pause_age(cluster: Cluster, at: datetime) -> str:
    if cluster.paused_at is None:
        return ""
    seconds = max(0.0, (at - cluster.paused_at).total_seconds())
    length, unit = next(((seconds / size, unit) for unit, size in UNITS if seconds >= 2 * size), (seconds, "seconds"))
    return f" for {length:.0f} {unit}"
