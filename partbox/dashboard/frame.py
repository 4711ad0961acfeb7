"""One look at the outbox as the page gets it: plain data, with processes by their place in a list."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from partbox.dashboard.alarms import Alarm
from partbox.dashboard.faces import Face
from partbox.dashboard.history import Point
from partbox.dashboard.news import Happening
from partbox.dashboard.texts import cut
from partbox.db.stats import Cluster, Instance, Overview, Partition

NOBODY = -1
GONE = -2  # an owner that is not among the living


def summaries(overview: Overview) -> list[dict[str, Any]]:
    """What the choice of subscriptions says of each."""
    return [
        {
            "name": cluster.subscription,
            "label": cut(cluster.subscription),
            "paused": cluster.paused,
            "pending": cluster.pending,
            "dead": cluster.parked.get("dead", 0),
        }
        for cluster in overview.clusters
    ]


def subscription(
    cluster: Cluster,
    faces: Mapping[UUID, Face],
    alarms: Iterable[Alarm],
    point: Point,
    happenings: Iterable[Happening],
) -> dict[str, Any]:
    """Everything about one subscription; lists of partitions have their values in order."""
    places = {instance.instance_id: place for place, instance in enumerate(cluster.instances)}
    return {
        "name": cluster.subscription,
        "paused": cluster.paused,
        "alarms": [alarm._asdict() for alarm in alarms],
        "instances": [_instance(each, faces[each.instance_id]) for each in cluster.instances],
        **_partitions(cluster.partitions, places),
        "pending": cluster.pending,
        "exact": cluster.exact,
        "lag": cluster.oldest_age,
        "parked": cluster.parked,
        "completed": cluster.completed,
        "blocked_keys": cluster.blocked_keys,
        "unowned": cluster.unowned,
        "point": tuple(point),
        "happenings": [_happening(each) for each in happenings],
    }


def _partitions(partitions: Sequence[Partition], places: Mapping[UUID, int]) -> dict[str, list[Any]]:
    return {
        "owners": [_place(each.owner, places) for each in partitions],
        "assignees": [_place(each.assignee, places) for each in partitions],
        "epochs": [each.epoch for each in partitions],
        "pendings": [each.pending for each in partitions],
        "lags": [None if each.oldest_age is None else round(each.oldest_age, 2) for each in partitions],
        "claimed": [None if each.claimed_age is None else round(each.claimed_age) for each in partitions],
        "suspects": [each.partition for each in partitions if each.suspect],
    }


def _place(instance: UUID | None, places: Mapping[UUID, int]) -> int:
    return NOBODY if instance is None else places.get(instance, GONE)


def _instance(each: Instance, face: Face) -> dict[str, Any]:
    return {
        "id": str(each.instance_id),
        "letter": face.letter,
        "slot": face.slot,
        "node": cut(each.node, 60),
        "hostname": cut(each.hostname, 60),
        "pid": each.pid,
        "version": cut(each.version, 30),
        "state": "silent" if each.expired else "draining" if each.draining else "working",
        "age": round(each.age),
        "heartbeat": round(each.heartbeat_age, 1),
        "lease": each.lease,
        "partitions": each.partitions,
    }


def _happening(each: Happening) -> dict[str, Any]:
    return {"number": each.number, "at": each.at.isoformat(), "kind": each.kind, "text": each.text}
