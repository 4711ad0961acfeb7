"""Kafka, by librdkafka: `kafka://HOST:PORT[,HOST:PORT…]`, settings of librdkafka as the query.

The producer is idempotent and gapless: librdkafka keeps order per partition, and when it cannot bring one message
there it fails those behind it too. Messages never run out of time in it, for one that does would leave a gap; when the
sink's own time is over the producer is thrown away with all that is in it. So it is when the broker has refused a
message: a producer without gaps sends nothing after that.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from partbox.errors import SettingsError, UnrecoverableError
from partbox.sinks.kafka_producer import REMEDY, Producer, Refused
from partbox.sinks.message import DEFAULT, Message
from partbox.sinks.sink import PATIENCE, Result, Sink, library
from partbox.text.dsn import query_of
from partbox.text.secrets import masked_url

OURS: Final = {
    "enable.idempotence": True,
    "enable.gapless.guarantee": True,
    "message.timeout.ms": 0,
    "partitioner": "murmur2_random",  # the Java clients' own, so that both put a key in the same partition
}
USUAL: Final = {
    "linger.ms": 5,
    "client.id": "partbox",
    "topic.metadata.propagation.max.ms": 10_000,  # for a topic that is missing: less than the sink's own time
}
ASK = 0.1  # seconds between two questions for a topic


class KafkaSink(Sink):
    """Sends to Kafka; `servers` as HOST:PORT, commas between; `config` of librdkafka besides.

    The key of a message is the aggregate id. CloudEvents attributes are headers, as the Kafka binding says: `ce_id` …
    """

    gapless = True
    max_size = 1_000

    def __init__(
        self, servers: str, topic: str = DEFAULT, *, config: Mapping[str, Any] | None = None, **options: Any
    ) -> None:
        super().__init__(topic, **options)
        for name in {*OURS} & {*(config or {})}:
            raise SettingsError(f"kafka: {name} cannot be set: the order per aggregate depends on {OURS[name]!r}")
        self._config = {**USUAL, **(config or {}), **OURS, "bootstrap.servers": servers}
        self._open: Producer | None = None

    @classmethod
    def from_url(cls, url: str, topic: str) -> "KafkaSink":
        parts = urlsplit(url)
        if not parts.netloc or parts.path not in ("", "/"):
            raise SettingsError(
                f"{masked_url(url)!r} names no servers: write kafka://HOST:9092, commas between several"
            )
        if "@" in parts.netloc:
            raise SettingsError("kafka: a user stands in the query: kafka://HOST:9092?sasl.username=…&sasl.password=…")
        return cls(parts.netloc, topic, config=query_of(url))

    def check(self) -> None:
        """SettingsError if the library is missing, or refuses the configuration, or the broker has no such topic."""
        producer, topic = Producer(self._config).made, self.topic.fixed
        if topic is not None and self._lacks(producer, topic):
            raise SettingsError(f"Kafka has no topic {topic!r}: {REMEDY}")
        producer.purge()

    async def send(self, messages: Sequence[Message]) -> Sequence[Result]:
        """All in flight at once; returns when each was acknowledged or has failed."""
        if self._open is None:
            self._open = Producer(self._config)
        producer = self._open
        results = await producer.send(messages)
        if producer.brokers.fatal and self._open is producer:
            await self.close()
        if len(results) == 1 and isinstance(results[0], Refused):
            return [await self._alone(messages)]
        return results

    @property
    def trouble(self) -> str:
        return "" if self._open is None else self._open.brokers.trouble

    async def close(self) -> None:
        """Throw away what is in the producer, whose callers are told."""
        producer, self._open = self._open, None
        if producer is not None:
            await producer.purge()

    async def _alone(self, messages: Sequence[Message]) -> Result:
        """By a producer of its own: in the batch that was refused there may have been messages of other lists."""
        producer = Producer(self._config)
        try:
            (result,) = await producer.send(messages)
        finally:
            await producer.purge()
        return UnrecoverableError(str(result)) if isinstance(result, Refused) else result

    def _lacks(self, producer: Any, topic: str) -> bool:
        """True if the broker says so, and goes on to: one that makes topics takes a moment for it."""
        kafka = library("confluent_kafka", "kafka")
        until: float | None = None
        while until is None or time.monotonic() < until:
            try:
                error = producer.list_topics(topic, timeout=PATIENCE).topics[topic].error
            except kafka.KafkaException:
                return False
            if error is None or error.code() != kafka.KafkaError.UNKNOWN_TOPIC_OR_PART:
                return False
            until = until or time.monotonic() + PATIENCE / 2
            time.sleep(ASK)
        return True
