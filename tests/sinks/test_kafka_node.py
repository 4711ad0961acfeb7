"""One node of Apache Kafka that refuses: its disk is full, a password is wrong, a user may not write."""

import re
from collections.abc import Iterator

import pytest
from arrivals import arrived, check, publish, states
from brokers import HOST
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)  # fmt: skip
from kafka_nodes import PASSWORD, USER
from kafkas import ApacheKafka
from small_disk import small_disk
from waiting import eventually

from partbox import Outbox
from partbox.sinks import sink_of
from partbox.sinks.kafka import KafkaSink

pytestmark = pytest.mark.soak
on_one_node = pytest.mark.parametrize("kind", ["apache-kafka"], indirect=True)

PATIENCE = 120.0
LAST_ERRORS = "select distinct last_error from partbox.parked where last_error is not null"


def relaying(dsn, sink) -> Outbox:
    outbox = Outbox(dsn, retry="fixed:0.1")
    outbox.register(sink, "*", max_attempts=None)
    return outbox


def as_user(place, password: str) -> KafkaSink:
    config = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": USER}
    (node,) = place.broker.nodes.all
    servers = f"{HOST}:{node.sasl}"
    return KafkaSink(servers, place.template, timeout=3.0, config=config | {"sasl.password": password})


def await_error(conn, words: str) -> None:
    """Wait until events wait because of it, none of them dead."""
    eventually(lambda: any(re.search(words, error) for (error,) in conn.execute(LAST_ERRORS)), PATIENCE)
    assert "dead" not in states(conn)


@on_one_node
def test_events_that_are_sent_with_a_wrong_password_wait_for_the_right_one(dsn, conn, place):
    publish(Outbox(dsn), conn, range(100))
    with relaying(dsn, as_user(place, "wrong")).worker():
        await_error(conn, "Kafka says _AUTHENTICATION: .*Authentication failed")
    assert arrived(place) == 0
    with relaying(dsn, as_user(place, PASSWORD)).worker():
        eventually(lambda: arrived(place) == 100, PATIENCE, moves=lambda: arrived(place))
    check(place.all(), range(100))


@on_one_node
def test_events_wait_until_the_kafka_user_may_write_to_the_topic(dsn, conn, place):
    topic, user, rest = place.topics[0], f"User:{USER}", ("*", AclOperation.WRITE, AclPermissionType.DENY)
    of_topic = (ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, user, *rest)
    for done in place.broker.admin.create_acls([AclBinding(*of_topic)]).values():
        done.result(120)
    publish(Outbox(dsn), conn, range(100))
    with relaying(dsn, as_user(place, PASSWORD)).worker():
        await_error(conn, f"Kafka says TOPIC_AUTHORIZATION_FAILED: .*'{topic}'")
        for done in place.broker.admin.delete_acls([AclBindingFilter(*of_topic)]).values():
            done.result(120)
        eventually(lambda: arrived(place) == 100, PATIENCE, moves=lambda: arrived(place))
    check(place.all(), range(100))


@pytest.fixture
def on_small_disk() -> Iterator[tuple[ApacheKafka, object]]:
    with small_disk(64) as disk:
        kafka = ApacheKafka(disk.folder)
        try:
            kafka.start()
            yield kafka, disk
        finally:
            kafka.kill()


def test_events_wait_until_a_full_log_directory_of_kafka_has_room(dsn, conn, on_small_disk):
    kafka, disk = on_small_disk
    kafka.prepare("orders")
    sink = sink_of(kafka.url, "orders")
    sink._timeout = 5.0
    outbox = relaying(dsn, sink)
    publish(outbox, conn, range(100))

    def arrive(number: int) -> None:
        eventually(lambda: len({each.id for each in kafka.all("orders")}) == number, PATIENCE)

    with outbox.worker():
        arrive(100)
        disk.fill()
        publish(outbox, conn, range(100, 2_000))
        await_error(conn, "Kafka says ")
        disk.make_room()
        kafka.kill()
        kafka.start()
        arrive(2_000)
    check(kafka.all("orders"), range(2_000))
