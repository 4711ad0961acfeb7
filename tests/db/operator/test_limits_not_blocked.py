"""An event that waits for its turn may be parked before others of its aggregate, and is no trouble to act on."""

import pytest
from overviews import ADA, NOW, instance
from planted_records import Planter

from partbox import Outbox
from partbox.db.delivery.limits import LimitReport, merge_limits
from partbox.db.inspect.evidence import Evidence, Thresholds, gather_evidence
from partbox.db.inspect.facts import ParkedCounts
from partbox.db.inspect.stats import Cluster, Overview
from partbox.doctor.case import Case
from partbox.doctor.doctor import run_checks
from partbox.doctor.limits import Limits
from partbox.protocol.limit_addresses import describe_wait


@pytest.fixture
def waiting(plant: Planter) -> list[int]:
    """Two aggregates wait for their turn, one with a follower behind it; a third one for an event that fails."""
    heads = [
        plant.park(key, "deferred", blocks=True, attempts=0, due=60, error=describe_wait(("handler", None)), age=90)
        for key in "ab"
    ]
    plant.park("a", "held", blocks=True, attempts=0, error=None)
    return [*heads, plant.park("c", "retrying", blocks=True, attempts=3, due=60)]


def test_an_event_that_waits_for_a_permit_is_not_listed_or_counted_as_blocked(
    waiting: list[int], outbox: Outbox
) -> None:
    (listed,) = outbox.blocked.list()
    (group,) = outbox.blocked.groups()
    assert (listed.aggregate_id, listed.record_id, group.keys) == ("c", waiting[2], 1)
    assert outbox.stats.cluster().blocked_keys == 1
    assert outbox.stats.records()["deferred"] == 2


def test_doctor_does_not_take_events_that_wait_for_permits_for_an_outage(waiting: list[int], plant: Planter) -> None:
    evidence = gather_evidence(plant.conn, "partbox", Thresholds(60.0, 60.0))
    assert evidence.deferred == ()
    assert [key.aggregate_id for _, key in evidence.keys] == ["c"]
    assert "deferred" not in [each.cause for each in run_checks(Case("partbox", evidence, Limits()))]


def test_doctor_reports_braked_deliveries_also_when_a_handler_has_a_limit() -> None:
    def causes(*kept: LimitReport) -> list[str]:
        limits = merge_limits("default", kept, [])
        usual = {"schema": "partbox", "subscription": "default", "paused": False, "parked": {}, "partitions": ()}
        rest = {"completed": 0, "blocked_keys": 0, "created": NOW, "paused_at": None}
        cluster = Cluster(instances=(instance(ADA, limits=kept),), limits=limits, **usual, **rest)
        seen = Evidence(
            overview=Overview("partbox", NOW, (cluster,)), parked_counts=(ParkedCounts("default", 7, 1_000, 999),)
        )
        return [each.cause for each in run_checks(Case("partbox", seen, Limits()))]

    assert "braked" in causes(LimitReport("charge", 1.0))
    assert "braked" in causes(LimitReport("charge", 1.0, None, None, 1_000, 5.0))
