"""Kafka for tests: librdkafka's mock cluster, Apache Kafka, or the cluster that the variable KAFKA_BOOTSTRAP names."""

import os
import signal
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import pytest
from brokers import BOOT, Broker, Received, received
from confluent_kafka import Consumer, ConsumerGroupState, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from kafka_libraries import OutOfReach
from kafka_nodes import SMALL, Node, Nodes
from mock_cluster import MockCluster
from waiting import eventually

BOOTSTRAP = "KAFKA_BOOTSTRAP"
PARTITIONS = 4
READING = 60.0
"""Seconds without an answer: partitions may be without a leader for a while."""


class Silent:
    """librdkafka's own log."""

    def log(self, *_: Any) -> None: ...


class Kafka(Broker):
    """Reads as any consumer does."""

    largest = 100_000
    words = "MSG_SIZE_TOO_LARGE, 100,002 bytes: raise message.max.bytes"
    lacking = r"Kafka has no topic '{topic}'( \(\w+\))?: create it, or let the broker do so"
    servers: str

    @property
    def url(self) -> str:
        return f"kafka://{self.servers}"

    @property
    def small_url(self) -> str:
        return f"{self.url}?message.max.bytes={self.largest}"

    @property
    def strict_url(self) -> str:
        return f"{self.url}?allow.auto.create.topics=false&topic.metadata.propagation.max.ms=500"

    def all(self, *topics: str) -> list[Received]:
        consumer = Consumer(
            {"bootstrap.servers": self.servers, "group.id": "all", "enable.partition.eof": True}, logger=Silent()
        )
        found = []
        try:
            known = consumer.list_topics(timeout=10).topics
            places = [
                TopicPartition(topic, number, 0)
                for topic in topics
                if topic in known
                for number in known[topic].partitions
            ]
            consumer.assign(places)
            left = len(places)
            while left:
                message = consumer.poll(READING)
                assert message is not None
                if error := message.error():
                    left -= error.code() == KafkaError._PARTITION_EOF  # others say that a broker is away for now
                    continue
                headers = {name: text.decode() for name, text in message.headers() or ()}
                key = message.key()
                key = None if key is None else key.decode()
                each = received(message.topic(), headers, "ce_", message.value(), key)
                found.append(replace(each, partition=message.partition()))
        finally:
            consumer.close()
        return found


class MockKafka(Kafka):
    """Kafka's protocol over TCP, in memory of this process."""

    NEVER = 3_600_000  # milliseconds

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.cluster = MockCluster()
        self.servers = self.cluster.servers

    def start(self) -> None: ...

    def kill(self) -> None: ...

    def prepare(self, *topics: str) -> None:
        for topic in topics:
            self.cluster.create(topic)

    def go(self) -> None:
        self.cluster.go_down()

    def come_back(self) -> None:
        self.cluster.answer_after(0)
        self.cluster.come_up()

    def hold(self) -> None:
        self.cluster.answer_after(self.NEVER)

    def release(self) -> None:
        """What was held is not answered any more: the connections end."""
        self.go()
        self.come_back()

    def slow(self) -> None:
        self.cluster.answer_after(300)

    def quick(self) -> None:
        self.cluster.answer_after(0)


class RealKafka(Kafka):
    """Somewhere in the network, with topics of our own."""

    def prepare(self, *topics: str) -> None:
        self.create({topic: {} for topic in topics})

    def create(self, topics: dict[str, dict[str, str]]) -> None:
        """Make these topics, with their settings."""
        made = self.admin.create_topics([NewTopic(topic, PARTITIONS, config=each) for topic, each in topics.items()])
        for each in made.values():
            each.result(120)

    def remove(self, *topics: str) -> None:
        known = self.admin.list_topics(timeout=10).topics
        if there := [topic for topic in topics if topic in known]:
            for each in self.admin.delete_topics(there).values():
                each.result(120)

    def shares(self, group: str) -> list[int]:
        """The number of partitions that each consumer of the group has; empty while they are being shared out."""
        described = self.admin.describe_consumer_groups([group])[group].result(120)
        if described.state != ConsumerGroupState.STABLE:
            return []
        return [len(member.assignment.topic_partitions) for member in described.members]

    @cached_property
    def admin(self) -> Any:
        return AdminClient({"bootstrap.servers": self.servers, "reconnect.backoff.max.ms": 200}, logger=Silent())


class ForeignKafka(RealKafka):
    """A cluster that is not ours: no faults."""

    no_faults = f"the cluster of {BOOTSTRAP} is not ours to stop"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.servers = os.environ[BOOTSTRAP]

    def start(self) -> None: ...

    def kill(self) -> None: ...


class ApacheKafka(RealKafka):
    """One node of Apache Kafka, which makes topics that are sent to."""

    count: ClassVar[int] = 1
    settings: ClassVar[dict[str, str]] = {}
    java: ClassVar[tuple[str, ...]] = SMALL

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        try:
            self.nodes = Nodes(folder, self.count, self.settings, self.java)
        except OutOfReach as reason:
            pytest.skip(str(reason))
        self.servers = self.nodes.servers

    def start(self) -> None:
        self.nodes.start()
        eventually(self._answers, BOOT)

    def kill(self) -> None:
        self.nodes.stop()

    def ready(self) -> bool:
        return len(self.admin.list_topics(timeout=1).brokers) == self.count

    def _answers(self) -> bool:
        for node in self.nodes.all:
            assert node.runs, node.log
        try:
            return self.ready()
        except Exception:
            return False

    def _signal(self, number: signal.Signals) -> None:
        for node in self.nodes.all:
            node.send(number)


class KafkaCluster(ApacheKafka):
    """Three nodes, which keep three replicas, wait for two of them, and make no topics."""

    count = 3
    settings: ClassVar[dict[str, str]] = {"auto.create.topics.enable": "false"}

    def start(self) -> None:
        super().start()
        eventually(self._in_sync, BOOT)

    def leader(self, topic: str, partition: int = 0) -> Node | None:
        """The node that leads the partition, as the others know; None while nobody says so."""
        with suppress(KafkaException):
            number = self.admin.list_topics(topic, timeout=2).topics[topic].partitions[partition].leader
            return self.nodes.all[number - 1] if number > 0 else None
        return None

    def widen(self, topic: str, partitions: int) -> None:
        """Raise the number of its partitions."""
        for each in self.admin.create_partitions([NewPartitions(topic, partitions)]).values():
            each.result(120)

    def _in_sync(self) -> bool:
        """True if each replica of each partition is."""
        with suppress(KafkaException):
            topics = self.admin.list_topics(timeout=2).topics.values()
            return all(len(each.isrs) == self.count for topic in topics for each in topic.partitions.values())
        return False
