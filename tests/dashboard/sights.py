"""Looks at an outbox, made by hand."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from partbox.db.inspect.stats import Cluster, Instance, Overview, PartitionStats

BEGAN = datetime(2026, 1, 31, 9, tzinfo=UTC)
ADA, BOB, EVE = UUID(int=1), UUID(int=2), UUID(int=3)


def instance(id: UUID, **fields: Any) -> Instance:
    usual: dict[str, Any] = {
        "node": "north",
        "hostname": "north",
        "pid": id.int,
        "version": "1",
        "draining": False,
        "age": 9.0,
        "heartbeat_age": 0.4,
        "lease": 6.0,
        "partitions": 0,
    }
    return Instance(instance_id=id, **usual | fields)


def partition(number: int, owner: UUID | None, epoch: int = 1, **fields: Any) -> PartitionStats:
    usual: dict[str, Any] = {
        "assignee": owner,
        "pending": 0,
        "exact": True,
        "oldest_age": None,
        "claimed_age": 9.0,
        "saved_age": 1.0,
        "suspect": False,
    }
    return PartitionStats(partition=number, owner=owner, epoch=epoch, **usual | fields)


def cluster(
    owners: Sequence[UUID | None] = (ADA,) * 256,
    epochs: Sequence[int] | None = None,
    instances: Sequence[Instance] | None = None,
    **fields: Any,
) -> Cluster:
    usual: dict[str, Any] = {
        "schema": "partbox",
        "subscription": "default",
        "paused": False,
        "parked": {},
        "created": BEGAN,
        "paused_at": None,
        "completed": 0,
        "blocked_keys": 0,
    }
    epochs = epochs or [1] * len(owners)
    return Cluster(
        instances=(instance(ADA), instance(BOB)) if instances is None else tuple(instances),
        partitions=tuple(partition(number, *each) for number, each in enumerate(zip(owners, epochs, strict=True))),
        **usual | fields,
    )


def overview(*clusters: Cluster, seconds: float = 0.0, newest_id: int = 0) -> Overview:
    """As it was so many seconds after the beginning."""
    at = BEGAN + timedelta(seconds=seconds)
    return Overview(schema="partbox", at=at, clusters=clusters or (cluster(),), newest_id=newest_id)
