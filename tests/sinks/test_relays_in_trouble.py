"""Nodes of processes that send much to a broker, while a process is killed and the broker is, too."""

import threading

import pytest
from arrivals import check, publish
from relays import Relay
from waiting import eventually

from partbox import Outbox

FAST = {"lease": 2, "heartbeat": 0.3}
PATIENCE = 120.0
"""Seconds in which nothing goes on."""
OF_EACH = 40
"""Events of each key."""
NOTICED = "select count(*) from partbox.parked where last_error like '%DownstreamUnavailable%'"


@pytest.fixture
def relays(dsn, place, tmp_path):
    """Starts nodes that send to the place."""
    started: list[Relay] = []

    def start(name: str) -> Relay:
        options = ("--to", place.broker.url, "--topic", place.template, "--processes", "2")
        started.append(Relay(name, tmp_path, *options, dsn=dsn, **FAST))
        return started[-1]

    yield start
    for each in started:
        each.end()


@pytest.mark.soak
@pytest.mark.usefixtures("faults")
def test_nothing_is_lost_or_out_of_order_when_both_a_process_and_the_broker_are_killed(dsn, conn, place, relays):
    outbox, events = Outbox(dsn), place.broker.many
    keys, quarter = events // OF_EACH, events // 4
    parts = iter(range(begin, begin + quarter) for begin in range(0, events, quarter))

    def more() -> None:
        publish(outbox, conn, next(parts), keys=keys)

    def left() -> int:
        place.broker.keep_up(*place.topics)
        cluster = outbox.stats.cluster("relay")
        return cluster.pending + sum(cluster.parked.values())

    def fewer_than(count: int) -> None:
        eventually(lambda: left() < count, PATIENCE, 0.05, moves=left)

    more()
    one, other = relays("one"), relays("other")
    eventually(lambda: {"relay"} <= {each.name for each in outbox.subscriptions.list()})
    eventually(lambda: one.workers() and other.workers())
    fewer_than(quarter * 3 // 4)
    one.kill_one()
    more()
    fewer_than(quarter)
    place.broker.hold()
    threading.Event().wait(0.3)  # what comes in is done or not, and nobody is told
    place.broker.go()
    try:
        more()
        eventually(lambda: conn.execute(NOTICED).fetchone() > (0,), PATIENCE)
    finally:
        place.broker.come_back()
    more()
    fewer_than(1)
    assert outbox.stats.cluster("relay").parked.get("dead", 0) == 0
    assert [one.stop(), other.stop()] == [0, 0], one.log + other.log
    check(place.all(), range(events))
