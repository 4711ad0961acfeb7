"""RabbitMQ alone blocks the connections of publishers when its memory runs short."""

import time

import psutil
import pytest
from arrivals import Flight, arrived, check, publish, states
from waiting import eventually

from partbox import Outbox
from partbox.sinks import sink_of

BLOCKED = "select count(*) from partbox.parked where last_error like '%RabbitMQ blocks publishers%'"


@pytest.fixture(params=["rabbitmq"])
def kind(request):
    return request.param


@pytest.fixture
def alarm(broker):
    """Raises its memory alarm, which is over after the test."""
    try:
        yield broker.alarm
    finally:
        broker.alarm(False)


def connections(broker):
    """The local ports of the connections of this process."""
    process = psutil.Process()
    found = process.net_connections() if hasattr(process, "net_connections") else process.connections()  # before 6.0
    return [each.laddr.port for each in found if each.raddr and each.raddr.port == broker.port]


@pytest.mark.thorough
def test_an_alarm_that_blocks_publishers_is_an_outage_that_ends_no_connection(dsn, conn, place, alarm, monkeypatch):
    broker, sink = place.broker, sink_of(place.broker.url, place.template)
    sink._timeout, in_flight = 1.0, Flight(sink, monkeypatch)
    outbox = Outbox(dsn, retry="fixed:0.1")
    outbox.register(sink, "*", max_attempts=None)
    publish(outbox, conn, range(20))
    with outbox.worker():
        eventually(lambda: arrived(place) == 20)
        before = connections(broker)
        alarm(True)
        publish(outbox, conn, range(20, 60))
        eventually(lambda: conn.execute(BLOCKED).fetchone() > (0,))
        in_flight.expect()  # one is tried now and then
        in_flight.wait()
        assert connections(broker) == before
        stopping = time.monotonic()
    assert time.monotonic() - stopping < 60  # a blocked connection answers nobody who closes it
    with outbox.worker() as worker:
        eventually(lambda: connections(broker))
        alarm(False)
        eventually(lambda: arrived(place) == 60)
        assert worker.wait_until_empty(120)
    check(place.all(), range(60))
    assert "dead" not in states(conn)
