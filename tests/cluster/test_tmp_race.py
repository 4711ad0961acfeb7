"""A node whose clock is a day wrong, beside one whose clock is right: only the database's clock counts."""

import pytest
from ledger import publishing
from waiting import eventually

from partbox import Event
from partbox.chaos import clock

DAY = 86_400.0
HALF = DAY / 2
OLD = 5
"""Records that are past `retain_done`, by the database's clock."""
MANY = 100
"""Aggregates: each of two nodes has some of them."""


class Skewed:
    """A node `right`, and a node `wrong` with a calendar of its own."""

    def __init__(self, cluster, patch):
        self.cluster, self.conn = cluster, cluster.owners.conn
        self.clock = clock.Clock(cluster.folder / "clock")
        self.clock.set(DAY)
        self.right = cluster.node("right", lease=30, heartbeat=0.3)
        with patch.context() as surroundings:
            for name, value in self.clock.surroundings.items():
                surroundings.setenv(name, value)
            ahead = {"lease": 30, "heartbeat": 0.3, "purge_interval": 1, "retain_done": HALF}
            self.wrong = cluster.node("wrong", fresh=True, **ahead)
        cluster.balanced(2)

    def owners(self):
        return {number: (row.owner, row.epoch) for number, row in self.cluster.owners.rows().items()}

    def deliver(self):
        """Publish for all aggregates, and wait until that is handled."""
        events = set(self.cluster.ledger.publish_now(self.cluster.ledger.names[:MANY]))
        eventually(lambda: events <= self.cluster.journal.ended(), 40, moves=lambda: len(self.cluster.journal.ended()))

    def later(self, seconds, count=MANY):
        """Publish events that are due in so many seconds; their ids."""
        events = [
            Event("Step", {"seq": 1}, aggregate_type="Later", aggregate_id=f"{seconds}-{number}", deliver_after=seconds)
            for number in range(count)
        ]
        with self.conn.transaction():
            return {str(id) for id in self.cluster.ledger.outbox.publish_many(self.conn, events)}

    def scheduled(self):
        return self.conn.execute("select count(*) from partbox.parked where state = 'scheduled'").fetchone()[0]

    def offsets(self):
        """How far each delivery's calendar was ahead, by its node."""
        found = {}
        for one in self.cluster.journal.deliveries():
            found.setdefault(one.pid in self.wrong.family(), []).append(one.wall - one.start)
        return found


@pytest.fixture
def skewed(cluster, monkeypatch):
    if lacking := clock.lacking(cluster.folder):
        pytest.skip(lacking)
    return Skewed(cluster, monkeypatch)


def test_a_node_a_day_ahead_takes_nothing_over_and_loses_nothing_however_its_clock_is_set(skewed):
    before = skewed.owners()
    with publishing(skewed.cluster.ledger):
        for offset in (DAY, 0.0, DAY, -DAY):
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


def test_a_node_a_day_ahead_delivers_no_delayed_event_early_and_purges_what_is_due_alone(skewed):
    soon, tomorrow = skewed.later(0.5), skewed.later(HALF)
    eventually(lambda: soon <= skewed.cluster.journal.ended(), 40)
    skewed.deliver()
    old = skewed.conn.execute(
        "update partbox.record set created_at = created_at - interval '13 hours'"
        " where id in (select id from partbox.record order by id limit %s) returning id",
        [OLD],
    ).fetchall()
    __import__("time").sleep(3)
    published = skewed.conn.execute("select count(*) from partbox.record").fetchone()[0]
    gone = "select not exists (select from partbox.record where id = any(%s))"
    eventually(lambda: skewed.conn.execute(gone, [[id for (id,) in old]]).fetchone()[0], 40)
    skewed.deliver()
    assert skewed.conn.execute("select count(*) from partbox.record").fetchone()[0] == published - OLD + MANY
    assert skewed.scheduled() == len(tomorrow)
    assert not tomorrow & skewed.cluster.journal.started()
    assert max(skewed.offsets()[True]) - min(skewed.offsets()[False]) > HALF
