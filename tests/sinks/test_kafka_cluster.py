"""Three nodes of Apache Kafka, two replicas of which must be in sync, while nodes are killed and topics change."""

import re
import signal
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

import pytest
from arrivals import arrived, check, publish, states
from waiting import eventually

from partbox import Outbox
from partbox.sinks.kafka import KafkaSink

pytestmark = [pytest.mark.soak, pytest.mark.parametrize("kind", ["kafka-cluster"], indirect=True)]

PATIENCE = 120.0
"""Seconds in which nothing goes on."""
LAST_ERRORS = "select distinct last_error from partbox.parked where last_error is not null"
KEYS = 400
AT_ONCE = 2_000


@pytest.fixture
def outbox(dsn, place) -> Outbox:
    return relaying(dsn, place)


def relaying(dsn, place, **config: object) -> Outbox:
    """Everything goes to the place, by a producer that soon sees what has changed there."""
    quick = {"topic.metadata.refresh.interval.ms": 500, "topic.metadata.propagation.max.ms": 500}
    outbox = Outbox(dsn, retry="fixed:0.1")
    sink = KafkaSink(place.broker.servers, place.template, timeout=10.0, config=quick | config)
    outbox.register(sink, "*", max_attempts=None)
    return outbox


@pytest.fixture(autouse=True)
def _whole(broker) -> Iterator[None]:
    """Nodes that a test has ended run again after it."""
    yield
    broker.start()


def all_arrive(place, number: int) -> None:
    eventually(lambda: arrived(place) >= number, PATIENCE, moves=lambda: arrived(place))


def parts(events: int) -> Iterator[range]:
    return (range(begin, begin + AT_ONCE) for begin in range(0, events, AT_ONCE))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "restarted"])
def test_a_leader_that_ends_under_load_loses_no_event_and_keeps_the_order(outbox, conn, place, number):
    with outbox.worker() as worker:
        for part in parts(3 * AT_ONCE):
            publish(outbox, conn, part, keys=KEYS)
            eventually(lambda part=part: arrived(place) > part.start)
            eventually(lambda: place.broker.leader(place.topics[0])).kill(number)
            all_arrive(place, part.stop)
            place.broker.start()
        assert worker.wait_until_empty(PATIENCE)
    check(place.all(), range(3 * AT_ONCE))


def test_events_that_are_sent_while_two_of_three_brokers_are_down_wait_and_arrive(outbox, conn, place):
    publish(outbox, conn, range(AT_ONCE), keys=KEYS)
    with outbox.worker() as worker:
        eventually(lambda: arrived(place) > 0)
        for node in place.broker.nodes.all[:2]:
            node.kill()
        publish(outbox, conn, range(AT_ONCE, 2 * AT_ONCE), keys=KEYS)
        eventually(lambda: states(conn), PATIENCE)
        assert "dead" not in states(conn)
        place.broker.start()
        all_arrive(place, 2 * AT_ONCE)
        assert worker.wait_until_empty(PATIENCE)
    check(place.all(), range(2 * AT_ONCE))
    assert states(conn) == set()


def test_a_topic_that_brokers_do_not_create_is_named_and_gets_its_events_once_it_is_created(dsn, conn, nowhere):
    outbox = relaying(dsn, nowhere)
    publish(outbox, conn, range(200))
    with outbox.worker() as worker:
        lacking = nowhere.broker.lacking.format(topic=re.escape(nowhere.topics[0]))
        eventually(lambda: any(re.search(lacking, error) for (error,) in conn.execute(LAST_ERRORS)), PATIENCE)
        nowhere.prepare()
        all_arrive(nowhere, 200)
        assert worker.wait_until_empty(PATIENCE)
    check(nowhere.all(), range(200))


def test_a_message_too_large_for_its_topic_is_dead_with_kafkas_error_and_holds_up_nothing(dsn, conn, nowhere):
    outbox = relaying(dsn, nowhere)
    nowhere.broker.create({nowhere.topics[0]: {"max.message.bytes": "3000"}})  # of a batch, too
    poison = dict.fromkeys((7, 21), "x" * 3000)
    publish(outbox, conn, range(300), poison)
    with outbox.worker() as worker:
        all_arrive(nowhere, 298)
        assert worker.wait_until_empty(PATIENCE)
    check(nowhere.all(), [number for number in range(300) if number not in poison])
    dead = outbox.dead.list()
    assert len(dead) == 2
    assert all("MSG_SIZE_TOO_LARGE: Broker: Message size too large" in each.error for each in dead)


def test_adding_partitions_under_load_loses_nothing_and_each_keeps_the_order_of_its_keys(outbox, conn, place):
    topic, number = place.topics[0], 0
    with outbox.worker() as worker:
        while len({each.partition for each in place.all()}) < 12:
            publish(outbox, conn, range(number, number := number + AT_ONCE), keys=KEYS)
            all_arrive(place, number)
            if number == AT_ONCE:
                place.broker.widen(topic, 12)
        assert worker.wait_until_empty(PATIENCE)
    found = place.all()
    assert {each.value for each in found} == {b'{"n":%d}' % number for number in range(number)}
    places = defaultdict(list)
    for each in found:
        places[each.key, each.partition].append(int(each.value[5:-1]))
    assert all(one < two for numbers in places.values() for one, two in pairwise(dict.fromkeys(numbers)))
