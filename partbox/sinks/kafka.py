"""Kafka, by librdkafka: `kafka://HOST:PORT[,HOST:PORT…]`, settings of librdkafka as the query.

The producer is idempotent and gapless: librdkafka keeps order per partition, and when it cannot bring one message
there it fails those behind it too. Messages never run out of time in it, for one that does would leave a gap; when the
sink's own time is over the producer is thrown away with all that is in it. So it is when the broker has refused a
message: a producer without gaps sends nothing after that.
"""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import SimpleNamespace
from typing import Any, Final
from urllib.parse import urlsplit

from partbox.errors import DownstreamUnavailable, SettingsError, UnrecoverableError
from partbox.sinks.message import DEFAULT, Message
from partbox.sinks.sink import ANSWER_TIMEOUT, RETRY_LATER, Result, Sink, library
from partbox.text.dsn import query_of
from partbox.text.secrets import masked_url
from partbox.text.wording import hint

KNOWN_SETTINGS: Final = (
    "acks", "batch.num.messages", "batch.size", "broker.address.family", "client.id", "client.rack",
    "compression.codec", "compression.level", "compression.type", "delivery.timeout.ms", "linger.ms",
    "max.in.flight", "message.max.bytes", "message.send.max.retries", "message.timeout.ms", "metadata.max.age.ms",
    "queue.buffering.max.kbytes", "queue.buffering.max.messages", "queue.buffering.max.ms", "reconnect.backoff.max.ms",
    "reconnect.backoff.ms", "request.required.acks", "request.timeout.ms", "retries", "retry.backoff.ms",
    "sasl.kerberos.keytab", "sasl.kerberos.principal", "sasl.kerberos.service.name", "sasl.mechanism",
    "sasl.mechanisms", "sasl.oauthbearer.client.id", "sasl.oauthbearer.client.secret", "sasl.oauthbearer.config",
    "sasl.oauthbearer.method", "sasl.oauthbearer.scope", "sasl.oauthbearer.token.endpoint.url", "sasl.password",
    "sasl.username", "security.protocol", "socket.keepalive.enable", "socket.timeout.ms", "ssl.ca.location",
    "ssl.ca.pem", "ssl.certificate.location", "ssl.certificate.pem", "ssl.cipher.suites",
    "ssl.endpoint.identification.algorithm", "ssl.key.location", "ssl.key.password", "ssl.key.pem",
    "ssl.keystore.location", "ssl.keystore.password", "topic.metadata.refresh.interval.ms", "transactional.id",
)  # fmt: skip
"""Settings of librdkafka that people use, to suggest one for a misspelt name: it does not list its own."""
SILENT_LOGGER: Final = SimpleNamespace(log=lambda *_: None)
"""librdkafka's own log; what matters of it comes as an error."""
POLL_PAUSE: Final = 0.002  # seconds between two questions for what became of messages
REMEDY: Final = "create it, or let the broker do so (auto.create.topics.enable)"


class BatchRefused(ValueError):
    """The broker has refused a batch: which message is to blame shows when each comes alone, as the failed do."""


class BrokerErrors:
    """librdkafka's words on its brokers: the last `trouble`, and `fatal`, the producer is good for nothing any more."""

    def __init__(self) -> None:
        self.trouble = ""
        self.fatal = False

    def __call__(self, error: Any) -> None:
        self.trouble = f"Kafka says {error.name()}: {error.str()}"


class Producer:
    """The one producer that all lists of a sink share. SettingsError for what it cannot be made of.

    One task asks librdkafka for news while any list waits, for all of them: it does so in the event loop's own thread,
    for another thread would wait each time for the interpreter. Whoever waits is woken when the last of its messages
    has ended.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.kafka = library("confluent_kafka", "kafka")
        self.broker_errors = BrokerErrors()
        self._waiting = 0
        self._polling: asyncio.Task[None] | None = None
        try:
            self.client = self.kafka.Producer({**config, "error_cb": self.broker_errors}, logger=SILENT_LOGGER)
        except self.kafka.KafkaException as error:
            raise SettingsError(f"kafka: {_config_refusal(error.args[0].str())}") from None

    async def send(self, messages: Sequence[Message]) -> list[Result]:
        delivery = BatchDelivery(self, messages)
        self._waiting += 1
        try:
            await delivery.send()
            if self._polling is None or self._polling.get_loop() is not asyncio.get_running_loop():
                self._polling = asyncio.create_task(self._ask())
            results = await delivery.wait_results()
        finally:
            self._waiting -= 1
        if None in results:
            self.broker_errors.trouble = ""
        return results

    async def poll_reports(self) -> None:
        """Be told what became of messages, and give others their turn."""
        try:
            self.client.poll(0)
        except self.kafka.KafkaException:  # the producer has failed: those who wait are told by what is purged
            self.broker_errors.fatal = True
            self.client.purge()
        await asyncio.sleep(POLL_PAUSE)

    async def purge(self) -> None:
        """Throw away what is in it; those who wait for it are told."""
        await asyncio.to_thread(self.client.purge)

    async def _ask(self) -> None:
        try:
            while self._waiting:
                await self.poll_reports()
        finally:
            self._polling = None


class BatchDelivery:
    """One list on its way."""

    def __init__(self, producer: Producer, messages: Sequence[Message]) -> None:
        self._producer = producer
        self._messages = messages
        self._results: list[Result] = [None] * len(messages)
        self._pending = len(messages)
        self._failed: set[str | None] = set()
        self._asked_topics: set[str] = set()
        self._done: asyncio.Future[None] | None = None

    async def send(self) -> None:
        """Give all to librdkafka."""
        produce, on_delivery_of = self._producer.client.produce, self._on_delivery
        trouble = self._producer.kafka.KafkaException, BufferError
        for place, message in enumerate(self._messages):
            key = message.key
            if self._failed and key is not None and key in self._failed:
                self._end(place, RETRY_LATER)
                continue
            headers = message.bound("ce_", "content-type")
            on_delivery = partial(on_delivery_of, place)
            while True:
                try:
                    produce(message.topic, message.value, key, headers=headers, on_delivery=on_delivery)
                except trouble as error:
                    if (step := self._next_step(place, error)) is None:
                        break
                    await step()
                else:
                    break

    async def wait_results(self) -> list[Result]:
        if self._pending:
            self._done = asyncio.get_running_loop().create_future()
            await self._done
        return self._results

    def _next_step(self, place: int, error: Exception) -> Callable[[], Awaitable[None]] | None:
        """The step that has to come before the message can be sent; None: it has ended."""
        if isinstance(error, BufferError):  # the producer's queue is full
            return self._producer.poll_reports
        message, said = self._messages[place], error.args[0]
        if said.code() == self._producer.kafka.KafkaError._UNKNOWN_TOPIC and message.topic not in self._asked_topics:
            return partial(self._ask, message.topic)
        self._end(place, self._local_refusal(message, said))
        self._failed.add(message.key)
        return None

    async def _ask(self, topic: str) -> None:
        """A topic that was missing may be there now: librdkafka would ask for it only after minutes."""
        self._asked_topics.add(topic)
        with suppress(self._producer.kafka.KafkaException):
            await asyncio.to_thread(self._producer.client.list_topics, topic, timeout=ANSWER_TIMEOUT)

    def _local_refusal(self, message: Message, error: Any) -> Result:
        """librdkafka's own refusal of a message."""
        codes = self._producer.kafka.KafkaError
        if error.code() == codes.MSG_SIZE_TOO_LARGE:
            size = f"{len(message.value):,} bytes"
            return UnrecoverableError(f"Kafka: MSG_SIZE_TOO_LARGE, {size}: raise message.max.bytes, the topic's too")
        if error.code() == codes._FATAL:
            self._producer.broker_errors.fatal = True
        return result(codes, message.topic, error)

    def _on_delivery(self, place: int, error: Any, _: Any) -> None:
        if error is not None:
            codes = self._producer.kafka.KafkaError
            self._results[place] = result(codes, self._messages[place].topic, error)
        self._pending -= 1
        if not self._pending and self._done is not None and not self._done.done():
            self._done.set_result(None)

    def _end(self, place: int, result: Result) -> None:
        """The message was not given to librdkafka."""
        self._results[place] = result
        self._pending -= 1


def result(codes: Any, topic: str, error: Any) -> Result:
    """The outcome of a message for which Kafka has this error."""
    said = f"Kafka says {error.name()}: {error.str()}"
    match error.code():
        case codes.MSG_SIZE_TOO_LARGE | codes.INVALID_MSG_SIZE | codes.INVALID_MSG | codes.INVALID_RECORD:
            return BatchRefused(said)
        case codes.UNKNOWN_TOPIC_OR_PART | codes._UNKNOWN_TOPIC | codes._UNKNOWN_PARTITION:
            return LookupError(f"Kafka has no topic {topic!r} ({error.name()}): {REMEDY}")
        case codes.TOPIC_AUTHORIZATION_FAILED | codes.TOPIC_EXCEPTION:
            return PermissionError(f"{said}: {topic!r}")
        case _:
            return DownstreamUnavailable(said)


def _config_refusal(said: str) -> str:
    """librdkafka's refusal of a configuration, with the setting that may have been meant."""
    named = re.fullmatch(r'No such configuration property: "(.*)"', said)
    near = hint(named[1], KNOWN_SETTINGS, "") if named else ""
    return f"{said}: {near}" if near else said


FIXED_CONFIG: Final = {
    "enable.idempotence": True,
    "enable.gapless.guarantee": True,
    "message.timeout.ms": 0,
    "partitioner": "murmur2_random",  # the Java clients' own, so that both put a key in the same partition
}
DEFAULT_CONFIG: Final = {
    "linger.ms": 5,
    "client.id": "partbox",
    "topic.metadata.propagation.max.ms": 10_000,  # for a topic that is missing: less than the sink's own time
}
TOPIC_PAUSE = 0.1  # seconds between two questions for a topic


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
        for name in {*FIXED_CONFIG} & {*(config or {})}:
            raise SettingsError(
                f"kafka: {name} cannot be set: the order per aggregate depends on {FIXED_CONFIG[name]!r}"
            )
        self._config = {**DEFAULT_CONFIG, **(config or {}), **FIXED_CONFIG, "bootstrap.servers": servers}
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
        producer, topic = Producer(self._config).client, self.topic.fixed
        if topic is not None and self._lacks_topic(producer, topic):
            raise SettingsError(f"Kafka has no topic {topic!r}: {REMEDY}")
        producer.purge()

    async def send(self, messages: Sequence[Message]) -> Sequence[Result]:
        """All in flight at once; returns when each was acknowledged or has failed."""
        if self._open is None:
            self._open = Producer(self._config)
        producer = self._open
        results = await producer.send(messages)
        if producer.broker_errors.fatal and self._open is producer:
            await self.close()
        if len(results) == 1 and isinstance(results[0], BatchRefused):
            return [await self._send_alone(messages)]
        return results

    @property
    def trouble(self) -> str:
        return "" if self._open is None else self._open.broker_errors.trouble

    async def close(self) -> None:
        """Throw away what is in the producer, whose callers are told."""
        producer, self._open = self._open, None
        if producer is not None:
            await producer.purge()

    async def _send_alone(self, messages: Sequence[Message]) -> Result:
        """By a producer of its own: in the batch that was refused there may have been messages of other lists."""
        producer = Producer(self._config)
        try:
            (result,) = await producer.send(messages)
        finally:
            await producer.purge()
        return UnrecoverableError(str(result)) if isinstance(result, BatchRefused) else result

    def _lacks_topic(self, producer: Any, topic: str) -> bool:
        """True if the broker says so, and goes on to: one that makes topics takes a moment for it."""
        kafka = library("confluent_kafka", "kafka")
        deadline: float | None = None
        while deadline is None or time.monotonic() < deadline:
            try:
                error = producer.list_topics(topic, timeout=ANSWER_TIMEOUT).topics[topic].error
            except kafka.KafkaException:
                return False
            if error is None or error.code() != kafka.KafkaError.UNKNOWN_TOPIC_OR_PART:
                return False
            deadline = deadline or time.monotonic() + ANSWER_TIMEOUT / 2
            time.sleep(TOPIC_PAUSE)
        return True
