"""The planner reads members and partitions only where a look cannot tell that no plan is needed."""

from datetime import UTC, datetime

import pytest

from partbox.db.delivery.instances import MembershipView
from partbox.observe import Observers
from partbox.protocol.intervals import FULL_SHARE_NODES
from partbox.supervisor import planner
from partbox.supervisor.planner import RECHECK_SECONDS, Planner


@pytest.fixture
def now(monkeypatch):
    """The monotonic clock of the planner."""
    clock = [1000.0]
    monkeypatch.setattr(planner, "time", type("Clock", (), {"monotonic": staticmethod(lambda: clock[0])}))
    return clock


@pytest.fixture
def plans(monkeypatch, now):
    """The times at which it was read whether a plan is needed: none was."""
    made: list[float] = []
    monkeypatch.setattr(Planner, "plan", lambda self, conn: made.append(now[0]) or True)
    return made


def calm(nodes, membership_version=1):
    return MembershipView(
        datetime.now(UTC), (membership_version, nodes), nodes, has_unassigned=False, has_orphaned=False, late_members=[]
    )


@pytest.mark.parametrize("nodes", [1, FULL_SHARE_NODES, 3 * FULL_SHARE_NODES])
def test_many_nodes_together_recheck_an_unchanged_plan_as_often_as_a_few_nodes(now, plans, nodes):
    planner = Planner("partbox", "default", Observers())
    lasts = RECHECK_SECONDS * max(1, nodes / FULL_SHARE_NODES)
    for later, read in ((0, 1), (lasts - 1, 1), (lasts + 1, 2)):
        now[0] = 1000.0 + later
        planner.plan_if_changed(None, calm(nodes))
        assert len(plans) == read


def test_a_plan_is_made_at_once_when_a_process_joins_or_a_partition_has_no_assignee(now, plans):
    planner = Planner("partbox", "default", Observers())
    planner.plan_if_changed(None, calm(200))
    planner.plan_if_changed(None, calm(201, membership_version=2))
    assert len(plans) == 2
    planner.plan_if_changed(None, calm(201, membership_version=2)._replace(has_unassigned=True))
    assert len(plans) == 3
