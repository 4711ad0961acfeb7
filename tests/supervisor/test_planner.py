"""The planner reads members and partitions only where a look cannot tell that no plan is needed."""

from datetime import UTC, datetime

import pytest

from partbox.db.delivery.instances import Watch
from partbox.observe import Observers
from partbox.protocol.intervals import AT_ONCE
from partbox.supervisor import planner
from partbox.supervisor.planner import LASTS, Planner


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


def calm(nodes, shape=1):
    return Watch(datetime.now(UTC), (shape, nodes), nodes, unassigned=False, orphaned=False, late=[])


@pytest.mark.parametrize("nodes", [1, AT_ONCE, 3 * AT_ONCE])
def test_what_needs_no_plan_is_read_again_as_often_by_many_nodes_together_as_by_a_few(now, plans, nodes):
    planner = Planner("partbox", "default", Observers())
    lasts = LASTS * max(1, nodes / AT_ONCE)
    for later, read in ((0, 1), (lasts - 1, 1), (lasts + 1, 2)):
        now[0] = 1000.0 + later
        planner.attend(None, calm(nodes))
        assert len(plans) == read


def test_it_is_read_at_once_when_somebody_joins_or_a_partition_has_no_assignee(now, plans):
    planner = Planner("partbox", "default", Observers())
    planner.attend(None, calm(200))
    planner.attend(None, calm(201, shape=2))
    assert len(plans) == 2
    planner.attend(None, calm(201, shape=2)._replace(unassigned=True))
    assert len(plans) == 3
