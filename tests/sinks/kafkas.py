"""Kafka for tests: librdkafka's mock cluster, or the real one that the variable KAFKA_BOOTSTRAP names."""

import os
from pathlib import Path
from typing import Any

from brokers import Broker, Received, received
from mock_cluster import MockCluster

BOOTSTRAP = "KAFKA_BOOTSTRAP"
PARTITIONS = 4


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
        from confluent_kafka import Consumer, TopicPartition

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
                message = consumer.poll(10)
                assert message is not None
                if message.error():
                    left -= 1
                    continue
                headers = {name: text.decode() for name, text in message.headers() or ()}
                key = message.key()
                found.append(
                    received(message.topic(), headers, "ce_", message.value(), None if key is None else key.decode())
                )
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
    """A cluster that is not ours: topics of our own, no faults."""

    no_faults = f"the cluster of {BOOTSTRAP} is not ours to stop"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        from confluent_kafka.admin import AdminClient

        self.servers = os.environ[BOOTSTRAP]
        self._admin = AdminClient({"bootstrap.servers": self.servers}, logger=Silent())

    def start(self) -> None: ...

    def kill(self) -> None: ...

    def prepare(self, *topics: str) -> None:
        from confluent_kafka.admin import NewTopic

        made = self._admin.create_topics([NewTopic(topic, PARTITIONS) for topic in topics])
        for each in made.values():
            each.result(30)

    def remove(self, *topics: str) -> None:
        known = self._admin.list_topics(timeout=10).topics
        gone = self._admin.delete_topics([topic for topic in topics if topic in known])
        for each in gone.values():
            each.result(30)
