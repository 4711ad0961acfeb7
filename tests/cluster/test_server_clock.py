"""A server whose clock is set a day ahead, and back, under a cluster: nobody is taken for dead, and nothing is lost."""

import time

import pytest
from ledger import publishing
from waiting import eventually

from partbox import Event
from partbox_lab.chaos import clock

DAY = 86_400.0


@pytest.fixture
def calendar(own_server, folder):
    """The calendar of the server: a file that its user can read."""
    folder.mkdir()
    folder.chmod(0o755)
    if lacking := clock.lacking(folder):
        pytest.skip(lacking)
    made = clock.Clock(folder / "clock")
    server = own_server.server
    server.stop()
    with pytest.MonkeyPatch.context() as surroundings:
        for name, value in made.surroundings.items():
            surroundings.setenv(name, value)
        server.start()
    return made


def seconds_ahead(conn):
    return conn.execute("select extract(epoch from clock_timestamp())::float8").fetchone()[0] - time.time()


@pytest.mark.thorough
def test_a_servers_clock_that_is_set_a_day_ahead_and_back_buries_nobody_and_loses_nothing(
    calendar, own_server, new_cluster
):
    cluster = new_cluster(own_server.dsn)
    nodes = [cluster.node(name, lease=30, heartbeat=0.3) for name in ("one", "other")]
    cluster.balanced(2)
    before = {number: (row.owner, row.epoch) for number, row in cluster.owners.rows().items()}
    with cluster.owners.conn.transaction():
        later = Event("Step", {"seq": 1}, aggregate_type="Later", aggregate_id="later", deliver_after=DAY / 2)
        delayed = {str(id) for id in cluster.ledger.outbox.publish_many(cluster.owners.conn, [later])}
    cluster.ledger.publish_now(cluster.ledger.names[:100])
    eventually(lambda: len(cluster.journal.ended()) == 100)
    assert not cluster.journal.started() & delayed
    with publishing(cluster.ledger):
        for offset in (DAY, -DAY):
            calendar.set(offset)
            assert abs(seconds_ahead(cluster.owners.conn) - offset) < DAY / 2
            events = set(cluster.ledger.publish_now(cluster.ledger.names[:100]))
            eventually(lambda events=events: events <= cluster.journal.ended())
            eventually(lambda: delayed <= cluster.journal.ended())
    cluster.delivered()
    assert not cluster.verdict().wrong()
    assert not cluster.verdict().repeats
    assert before == {number: (row.owner, row.epoch) for number, row in cluster.owners.rows().items()}
    for node in nodes:
        assert "buried" not in node.log
