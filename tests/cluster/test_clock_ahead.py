"""A node whose clock is a day wrong, beside one whose clock is right: only the database's clock counts."""

from collections import defaultdict

import pytest
from forked_commands import Forks
from ledger import publishing
from waiting import eventually

from partbox import Event
from partbox_lab.chaos import clock

DAY = 86_400.0
HALF = DAY / 2
OLD = 5
"""Records that are past `retain_done`, by the database's clock."""
MANY = 100
"""Aggregates: each of two nodes has some of them."""


class Skewed:
    """A node `right`, and a node `wrong` with a calendar of its own."""

    def __init__(self, cluster, calendar, forks, patch):
        self.cluster, self.conn, self.clock = cluster, cluster.owners.conn, calendar
        self.clock.set(DAY)
        self.right = cluster.node("right", lease=30, heartbeat=0.3)
        with patch.context() as surroundings:
            for name, value in calendar.surroundings.items():
                surroundings.setenv(name, value)
            ahead = {"lease": 30, "heartbeat": 0.3, "purge_interval": 1, "retain_done": HALF}
            self.wrong = cluster.node("wrong", forks=forks, **ahead)
        cluster.balanced(2)

    def owners(self):
        return {number: (row.owner, row.epoch) for number, row in self.cluster.owners.rows().items()}

    def deliver(self):
        """Publish for all aggregates, and wait until that is handled."""
        self.handled(set(self.cluster.ledger.publish_now(self.cluster.ledger.names[:MANY])))

    def handled(self, events):
        eventually(lambda: events <= self.cluster.journal.ended(), 40, moves=lambda: len(self.cluster.journal.ended()))

    def later(self, seconds):
        """Publish events that are due in so many seconds; their ids."""
        events = [
            Event("Step", {"seq": 1}, aggregate_type="Later", aggregate_id=f"{seconds}-{number}", deliver_after=seconds)
            for number in range(MANY)
        ]
        with self.conn.transaction():
            return {str(id) for id in self.cluster.ledger.outbox.publish_many(self.conn, events)}

    def due(self):
        """Make what is delayed due, in the lock order of every writer."""
        with self.conn.transaction():
            self.conn.execute("select from partbox.partition order by subscription, partition for no key update")
            self.conn.execute("update partbox.parked set due_at = clock_timestamp() where due_at is not null")
            self.conn.execute("update partbox.partition set parked_version = parked_version + 1")

    def passed(self):
        """Some records that the saved cursors have passed: a purge may take those, if they are old."""
        found = self.conn.execute(
            "select r.id from partbox.record r join partbox.partition p on p.partition = r.partition"
            " where r.id <= least(p.floor_id, p.last_id) and r.id not in (select record_id from partbox.parked)"
            " order by r.id limit %s",
            [OLD],
        ).fetchall()
        return [id for (id,) in found] if len(found) == OLD else None

    def left(self):
        return {id for (id,) in self.conn.execute("select id from partbox.record")}

    def scheduled(self):
        return self.conn.execute("select count(*) from partbox.parked where state = 'scheduled'").fetchone()[0]

    def offsets(self):
        """How far each delivery's calendar was ahead, by its node."""
        found = defaultdict(list)
        for one in self.cluster.journal.deliveries():
            found[one.pid in self.wrong.family()].append(one.wall - one.start)
        return found


@pytest.fixture(scope="module")
def calendar(tmp_path_factory):
    folder = tmp_path_factory.mktemp("calendar")
    if lacking := clock.lacking(folder):
        pytest.skip(lacking)
    return clock.Clock(folder / "clock")


@pytest.fixture(scope="module")
def clocked(calendar):
    """Forks whose calendar is that file: an interpreter that starts under libfaketime is slow to."""
    with pytest.MonkeyPatch.context() as surroundings:
        for name, value in calendar.surroundings.items():
            surroundings.setenv(name, value)
        forks = Forks()
    yield forks
    forks.close()


@pytest.fixture
def skewed(cluster, calendar, clocked, monkeypatch):
    return Skewed(cluster, calendar, clocked, monkeypatch)


@pytest.mark.thorough
def test_a_node_with_a_clock_a_day_ahead_takes_nothing_over_and_loses_nothing(skewed):
    before = skewed.owners()
    with publishing(skewed.cluster.ledger):
        for offset in (DAY, 0.0, -DAY):
            skewed.clock.set(offset)
            skewed.deliver()
    skewed.cluster.delivered()
    assert skewed.owners() == before
    verdict = skewed.cluster.verdict()
    assert not verdict.wrong()
    assert not verdict.repeats
    right, wrong = (skewed.offsets()[which] for which in (False, True))
    assert max(wrong) - min(right) > HALF, "the calendar was ahead"
    assert min(wrong) - min(right) < -HALF, "and behind"
    assert max(right) - min(right) < HALF
    for node in (skewed.right, skewed.wrong):
        assert "buried" not in node.log


def test_a_node_with_a_clock_a_day_ahead_delivers_every_delayed_event_and_none_early(skewed):
    soon, tomorrow = skewed.later(0.5), skewed.later(HALF)
    skewed.handled(soon)
    skewed.deliver()
    eventually(lambda: skewed.scheduled() == MANY)
    assert not tomorrow & skewed.cluster.journal.started()
    skewed.due()
    skewed.handled(tomorrow)
    assert max(skewed.offsets()[True]) - min(skewed.offsets()[False]) > HALF


@pytest.mark.thorough
def test_a_node_with_a_clock_a_day_ahead_purges_only_records_that_are_due(skewed):
    # Whoever draws an xid while a page is read may leave its floor below its records; a later page's is above them, and
    # is saved with what it brings, or after a minute.
    old = eventually(lambda: skewed.deliver() or skewed.passed())
    published = skewed.left()
    skewed.conn.execute(
        "update partbox.record set created_at = created_at - interval '13 hours' where id = any(%s)", [old]
    )
    eventually(lambda: not skewed.left() & set(old))
    skewed.deliver()
    assert published - skewed.left() == set(old)
