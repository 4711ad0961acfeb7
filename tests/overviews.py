"""Overviews and vitals made by hand."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from partbox.db.delivery.limits import LimitReport, merge_limits
from partbox.db.inspect.stats import Cluster, Instance, Overview, PartitionStats
from partbox.observe.health.database_probe import DatabaseProbe
from partbox.observe.health.vitals import MonitoredSupervisor, ProcessVitals, SupervisorVitals
from partbox.observe.metrics.meter import Meters

NOW = datetime(2026, 1, 31, 9, tzinfo=UTC)
FOUND = {"problem": 1, "warning": 0, "note": 2}  # by doctor
ADA, BOB, GONE = UUID(int=1), UUID(int=2), UUID(int=3)


def instance(id: UUID, node: str = "one", pid: int = 1, **fields: Any) -> Instance:
    usual = {"hostname": node, "version": "0", "draining": False, "age": 9.0, "heartbeat_age": 0.5, "lease": 6.0}
    return Instance(instance_id=id, node=node, pid=pid, **{**usual, "partitions": 0, **fields})


def partition(number: int, owner: UUID | None = ADA, **fields: Any) -> PartitionStats:
    usual = {"assignee": owner, "epoch": 7, "pending": 0, "exact": True, "oldest_age": None}
    rest = {"claimed_age": None, "saved_age": None, "suspect": False}
    return PartitionStats(partition=number, owner=owner, **{**usual, **rest, **fields})


def cluster(partitions: Sequence[PartitionStats] = (), instances: Sequence[Instance] = (), **fields: Any) -> Cluster:
    usual: dict[str, Any] = {"subscription": "default", "paused": False, "parked": {}, "created": NOW}
    rest = {"paused_at": None, "completed": 0, "blocked_keys": 0}
    return Cluster(
        schema="partbox",
        instances=tuple(instances) or (instance(ADA), instance(BOB, "two", 2)),
        partitions=tuple(partitions) or tuple(map(partition, range(256))),
        **{**usual, **rest, **fields},
    )


def overview(*clusters: Cluster) -> Overview:
    return Overview(schema="partbox", at=NOW, clusters=clusters or (cluster(),))


def limited() -> Overview:
    """A subscription with everything that has metrics, a handler with a limit too."""
    return overview(cluster(limits=merge_limits("default", [LimitReport("confirm", 100.0, 5, None, 7, 2.5)], [])))


def process(**fields: Any) -> ProcessVitals:
    usual = {"pid": 4711, "is_ready": True, "silent_seconds": 0.1, "is_vouched": True, "is_trusted": True}
    return ProcessVitals(**{"handler_seconds": None, "instance": ADA, **usual, **fields})


def vitals(*processes: ProcessVitals, **fields: Any) -> SupervisorVitals:
    usual: dict[str, Any] = {"has_started": True, "is_running": True, "is_stopping": False, "is_crash_looping": False}
    rest = {"failure": None, "lease": 6.0, "loop_age": 0.1, "heartbeat_age": 0.5}
    counts = {"wanted_processes": 1, "recent_deaths": 0}
    return SupervisorVitals(processes=processes or (process(),), **{**usual, **rest, **counts, **fields})


def watched(
    look: Any = overview, its: Any = vitals, *, database: str = "", meters: Meters | None = None
) -> MonitoredSupervisor:
    return MonitoredSupervisor(
        database, "one", "default", meters or Meters(["confirm"], ["bus"]), DatabaseProbe(look), its, FOUND.copy
    )
