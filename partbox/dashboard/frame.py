"""One overview as plain data for the page, with processes named by their positions in a list."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from partbox.dashboard.history import ChartPoint
from partbox.dashboard.page_text import build_plain, cut_text
from partbox.db.delivery.limits import HandlerLimit
from partbox.db.delivery.traffic import SinkTraffic
from partbox.db.inspect.stats import Cluster, Instance, Overview, PartitionStats
from partbox.operations.stats import NewsItem
from partbox.terminal.roster import COLOURS, ProcessBadge, Roster
from partbox.text.wording import find_node_names

NOBODY = -1
# Stands for an owner that is not among the living processes.
GONE = -2
MOST_SINKS = 20
# Only the limits under which most events wait.
MOST_LIMITS = 50
MOST_CHOICES = 100
# Only the handlers that run the longest.
MOST_RUNNING = 20

# Returns the labels of living processes.
ProcessLabels = Callable[[Iterable[Instance]], dict[UUID, ProcessBadge]]


def make_process_labels() -> ProcessLabels:
    """Return a function that gives each process a letter and a colour of its own for display."""
    # A process gets them when the function first sees it.
    roster = Roster()

    def labels(instances: Iterable[Instance]) -> dict[UUID, ProcessBadge]:
        roster.add_processes([each.instance_id for each in instances])
        return from_roster(roster)(instances)

    return labels


def from_roster(roster: Roster) -> ProcessLabels:
    """Return a function that looks up the letters and colours of processes in `roster`."""
    # Another view has assigned the letters and colours.
    # A process without a label is shown as unknown.
    return lambda instances: {each.instance_id: roster.find_badge(each.instance_id) for each in instances}


def list_selector_entries(overview: Overview, shown: str) -> dict[str, Any]:
    """Return the entries of the dashboard's subscription selector, and the number of all subscriptions."""
    # If there are too many subscriptions, those with the most waiting or dead events are kept.

    def rank(cluster: Cluster) -> tuple[bool, int]:
        return cluster.subscription != shown, -(cluster.pending + sum(cluster.parked.values()))

    chosen = sorted(sorted(overview.clusters, key=rank)[:MOST_CHOICES], key=lambda each: each.subscription)
    return {"subscriptions": [_build_entry(each) for each in chosen], "subscription_count": len(overview.clusters)}


def _build_entry(each: Cluster) -> dict[str, Any]:
    name, dead = each.subscription, each.parked.get("dead", 0)
    return build_plain(each, "paused", "pending", name=name, label=cut_text(name), dead=dead)


def build_subscription(
    cluster: Cluster, labels: Mapping[UUID, ProcessBadge], point: ChartPoint, happenings: Iterable[NewsItem]
) -> dict[str, Any]:
    """Return all data that the dashboard shows about one subscription, as plain data for JSON."""
    # Lists about partitions have their values in order of the partitions.
    names = find_node_names(cluster.instances)
    places = {None: NOBODY} | {instance.instance_id: place for place, instance in enumerate(cluster.instances)}
    counts = ("paused", "pending", "exact", "parked", "completed", "blocked_keys", "unowned")
    return build_plain(cluster, *counts) | {
        "name": cluster.subscription,
        "lag": cluster.unfinished_age,
        "instances": [
            _build_instance(each, names[each.instance_id], labels[each.instance_id]) for each in cluster.instances
        ],
        "nodes": len(set(names.values())),
        "running": _list_running(cluster.instances),
        "limits": [_build_limit(each) for each in sorted(cluster.limits, key=lambda each: -each.waiting)[:MOST_LIMITS]],
        "sinks": [_build_sink(each) for each in cluster.sinks[:MOST_SINKS]],
        **_list_partitions(cluster.partitions or _list_empty_partitions(cluster), places),
        "point": tuple(point),
        "happenings": [build_plain(each, "at", "kind", text=each.text) for each in happenings],
    }


def _list_partitions(partitions: Sequence[PartitionStats], places: Mapping[UUID | None, int]) -> dict[str, list[Any]]:
    return {
        "owners": [places.get(each.owner, GONE) for each in partitions],
        "assignees": [places.get(each.assignee, GONE) for each in partitions],
        "epochs": [each.epoch for each in partitions],
        "pendings": [each.pending for each in partitions],
        "lags": [None if each.unfinished_age is None else round(each.unfinished_age, 2) for each in partitions],
        "claimed": [None if each.claimed_age is None else round(each.claimed_age) for each in partitions],
        "suspects": [each.partition for each in partitions if each.suspect],
    }


def _list_empty_partitions(cluster: Cluster) -> list[PartitionStats]:
    # Empty partitions are shown until the next overview lists the real ones.
    return [
        PartitionStats(each, None, None, 0, 0, True, None, None, None, False) for each in range(cluster.sums.partitions)
    ]


def _list_running(instances: Sequence[Instance]) -> dict[str, Any]:
    # The longest handlers are listed, with the positions of their processes in the list of processes.
    found = [(place, run) for place, each in enumerate(instances) for run in each.running]
    found.sort(key=lambda each: -each[1].seconds)
    count = len(found) + sum(each.running_more for each in instances)
    names = ("handler", "event_type", "aggregate_type", "aggregate_id")
    handlers = [
        build_plain(run, *names, place=place, record=run.record_id, seconds=round(run.seconds))
        for place, run in found[:MOST_RUNNING]
    ]
    return {"count": count, "handlers": handlers}


def _build_sink(each: SinkTraffic) -> dict[str, Any]:
    failing = None if each.failing is None else round(each.failing)
    return build_plain(each, "sent", "in_flight", "mean", "retries", "error", name=cut_text(each.sink), failing=failing)


def _build_limit(each: HandlerLimit) -> dict[str, Any]:
    names = ("name", "kind", "handler", "value", "by", "waiting", "waited", "open_for")
    return build_plain(each, *names, label=cut_text(each.name)) | {
        "rate": each.rate_text,
        "at_once": each.at_once_text,
        "values": [build_plain(worst, "value", "waiting") for worst in each.values],
        "change": each.change and build_plain(each.change, "changed_at", "changed_by"),
    }


def _build_instance(each: Instance, node: str, label: ProcessBadge) -> dict[str, Any]:
    return build_plain(each, "pid", "lease", "partitions") | {
        "letter": label.letter,
        "slot": COLOURS.index(label.colour) if label.colour in COLOURS else len(COLOURS) - 1,
        "node": cut_text(node, 60),
        "hostname": cut_text(each.hostname, 60),
        "state": "silent" if each.expired else each.state,
        "same_host": each.hostname == each.node,
        "heartbeat": round(each.heartbeat_age, 1),
    }
