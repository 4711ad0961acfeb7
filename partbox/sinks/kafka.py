"""Kafka sink, by librdkafka: `kafka://HOST:PORT[,HOST:PORT…]`, with settings of librdkafka as the query.

The producer is gapless: if librdkafka cannot deliver a message, it fails the messages behind it too. Messages never
time out inside librdkafka, because an expired message would leave a gap. Instead the producer is discarded when the
sink's own timeout is over. It is also discarded when the broker has refused a message, because a gapless producer sends
nothing after that."""

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
from partbox.text.secrets import mask_url
from partbox.text.wording import format_hint

# Common settings of librdkafka, to suggest one for a misspelt name. librdkafka does not list its own.
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
# Drops librdkafka's own log. Everything that matters in it comes as an error.
SILENT_LOGGER: Final = SimpleNamespace(log=lambda *_: None)
# Seconds between two polls for delivery reports.
POLL_PAUSE: Final = 0.002
REMEDY: Final = "create it, or let the broker do so (auto.create.topics.enable)"


class BatchRefused(ValueError):
    """An error for each message of a batch that the Kafka broker refused as a whole.

    The retry sends each message alone, which shows the message to blame."""


class BrokerErrors:
    """A callback that remembers the last error that the Kafka client reported about the brokers.

    `trouble` is the text of the error from librdkafka. `fatal` means that the producer is of no use any more."""

    def __init__(self) -> None:
        self.trouble = ""
        self.fatal = False

    def __call__(self, error: Any) -> None:
        self.trouble = f"Kafka says {error.name()}: {error.str()}"


class Producer:
    """A Kafka producer that all batches of a sink share.

    While a batch waits, one task polls for delivery reports in the event loop's own thread. Raise SettingsError for a
    wrong configuration."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.kafka = library("confluent_kafka", "kafka")
        self.broker_errors = BrokerErrors()
        self._waiting_batches = 0
        self._polling: asyncio.Task[None] | None = None
        try:
            self.client = self.kafka.Producer({**config, "error_cb": self.broker_errors}, logger=SILENT_LOGGER)
        except self.kafka.KafkaException as error:
            raise SettingsError(f"kafka: {_format_config_refusal(error.args[0].str())}") from None

    async def send(self, messages: Sequence[Message]) -> list[Result]:
        """Send messages to Kafka, wait for the delivery reports, and return a result for each, in order."""
        # The task that polls runs in this thread, because another thread would wait for the interpreter. A batch is
        # woken when its last message has a result.
        delivery = BatchDelivery(self, messages)
        self._waiting_batches += 1
        try:
            await delivery.send()
            # One task polls for all sends. A task of an earlier event loop is dead.
            if self._polling is None or self._polling.get_loop() is not asyncio.get_running_loop():
                self._polling = asyncio.create_task(self._poll_while_waiting())
            results = await delivery.wait_results()
        finally:
            self._waiting_batches -= 1
        if None in results:
            self.broker_errors.trouble = ""
        return results

    async def poll_reports(self) -> None:
        """Process the new Kafka delivery reports once, then yield to other tasks."""
        # The poll calls librdkafka's callbacks.
        try:
            self.client.poll(0)
        # The producer has failed. The purge gives each waiting message its report.
        except self.kafka.KafkaException:
            self.broker_errors.fatal = True
            self.client.purge()
        await asyncio.sleep(POLL_PAUSE)

    async def purge(self) -> None:
        """Discard all messages that are still in the producer, and report them as failed to the waiting batches."""
        await asyncio.to_thread(self.client.purge)

    async def _poll_while_waiting(self) -> None:
        try:
            while self._waiting_batches:
                await self.poll_reports()
        finally:
            self._polling = None


class BatchDelivery:
    """The delivery of one batch of messages to Kafka, with the results so far."""

    def __init__(self, producer: Producer, messages: Sequence[Message]) -> None:
        self._producer = producer
        self._messages = messages
        self._results: list[Result] = [None] * len(messages)
        self._pending_count = len(messages)
        self._failed_keys: set[str | None] = set()
        self._asked_topics: set[str] = set()
        self._done_future: asyncio.Future[None] | None = None

    async def send(self) -> None:
        """Pass all messages of the batch to the Kafka client library, in order for each key."""
        # The library is librdkafka. Once a message is refused locally, later messages of its key are put off, so that
        # they do not overtake it.
        produce, on_delivery_of = self._producer.client.produce, self._on_delivery
        trouble = self._producer.kafka.KafkaException, BufferError
        for place, message in enumerate(self._messages):
            key = message.key
            if self._failed_keys and key is not None and key in self._failed_keys:
                self._end_message(place, RETRY_LATER)
                continue
            headers = message.bound("ce_", "content-type")
            on_delivery = partial(on_delivery_of, place)
            while True:
                try:
                    produce(message.topic, message.value, key, headers=headers, on_delivery=on_delivery)
                except trouble as error:
                    if (step := self._find_next_step(place, error)) is None:
                        break
                    await step()
                else:
                    break

    async def wait_results(self) -> list[Result]:
        if self._pending_count:
            self._done_future = asyncio.get_running_loop().create_future()
            await self._done_future
        return self._results

    def _find_next_step(self, place: int, error: Exception) -> Callable[[], Awaitable[None]] | None:
        """Decide whether to retry a message that the Kafka client refused. Return None if the error is now its
        result."""
        # Otherwise return a step to await before the message is tried again.
        # The producer's queue is full.
        if isinstance(error, BufferError):
            return self._producer.poll_reports
        message, said = self._messages[place], error.args[0]
        if said.code() == self._producer.kafka.KafkaError._UNKNOWN_TOPIC and message.topic not in self._asked_topics:
            return partial(self._ask_topic, message.topic)
        self._end_message(place, self._build_local_refusal(message, said))
        self._failed_keys.add(message.key)
        return None

    async def _ask_topic(self, topic: str) -> None:
        """Ask the Kafka broker again about a topic that was missing."""
        # librdkafka would ask again only after minutes.
        self._asked_topics.add(topic)
        with suppress(self._producer.kafka.KafkaException):
            await asyncio.to_thread(self._producer.client.list_topics, topic, timeout=ANSWER_TIMEOUT)

    def _build_local_refusal(self, message: Message, error: Any) -> Result:
        codes = self._producer.kafka.KafkaError
        if error.code() == codes.MSG_SIZE_TOO_LARGE:
            size = f"{len(message.value):,} bytes"
            return UnrecoverableError(
                f"Kafka: MSG_SIZE_TOO_LARGE, {size}: raise message.max.bytes, and the topic's max.message.bytes"
            )
        if error.code() == codes._FATAL:
            self._producer.broker_errors.fatal = True
        return result(codes, message.topic, error)

    def _on_delivery(self, place: int, error: Any, _: Any) -> None:
        # Called by `poll` in the event loop's thread.
        if error is not None:
            codes = self._producer.kafka.KafkaError
            self._results[place] = result(codes, self._messages[place].topic, error)
        self._pending_count -= 1
        if not self._pending_count and self._done_future is not None and not self._done_future.done():
            self._done_future.set_result(None)

    def _end_message(self, place: int, result: Result) -> None:
        self._results[place] = result
        self._pending_count -= 1


def result(codes: Any, topic: str, error: Any) -> Result:
    """Convert a Kafka error into an exception whose type tells whether sending the message again helps."""
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


def _format_config_refusal(said: str) -> str:
    """Return the reason why a Kafka setting was refused, with a suggestion if its name looks misspelt."""
    # The reason is the text of librdkafka.
    named = re.fullmatch(r'No such configuration property: "(.*)"', said)
    near = format_hint(named[1], KNOWN_SETTINGS, "") if named else ""
    return f"{said}: {near}" if near else said


# The order per aggregate depends on the first three settings. The partitioner is that of the Java clients, so that both
# put a key into the same partition. Users cannot set any of them.
FIXED_CONFIG: Final = {
    "enable.idempotence": True,
    "enable.gapless.guarantee": True,
    "message.timeout.ms": 0,
    "partitioner": "murmur2_random",
}
# The propagation time of a missing topic must be less than the sink's timeout.
DEFAULT_CONFIG: Final = {
    "linger.ms": 5,
    "client.id": "partbox",
    "topic.metadata.propagation.max.ms": 10_000,
}
TOPIC_PAUSE = 0.1  # seconds between two questions for a topic


class KafkaSink(Sink):
    """A sink that sends events to Kafka, with the aggregate id as key.

    `servers` is HOST:PORT, with commas between several, and `config` has more settings of librdkafka. CloudEvents
    attributes are headers with the names of the Kafka binding: `ce_id` and so on."""

    gapless = True
    max_size = 1_000

    def __init__(
        self, servers: str, topic: str = DEFAULT, *, config: Mapping[str, Any] | None = None, **options: Any
    ) -> None:
        super().__init__(topic, **options)
        for name in {*FIXED_CONFIG} & {*(config or {})}:
            raise SettingsError(
                f"kafka: {name} cannot be set: the order per aggregate depends on the value {FIXED_CONFIG[name]!r}"
            )
        self._config = {**DEFAULT_CONFIG, **(config or {}), **FIXED_CONFIG, "bootstrap.servers": servers}
        self._open: Producer | None = None

    @classmethod
    def from_url(cls, url: str, topic: str) -> "KafkaSink":
        # The query may have any setting of librdkafka but the fixed ones.
        parts = urlsplit(url)
        if not parts.netloc or parts.path not in ("", "/"):
            raise SettingsError(f"{mask_url(url)!r} names no servers: write kafka://HOST:9092, commas between several")
        if "@" in parts.netloc:
            raise SettingsError("kafka: a user belongs in the query: kafka://HOST:9092?sasl.username=…&sasl.password=…")
        return cls(parts.netloc, topic, config=query_of(url))

    def check(self) -> None:
        """Raise SettingsError if the client library or a fixed topic is missing, or if a setting is wrong."""
        producer, topic = Producer(self._config).client, self.topic.fixed
        if topic is not None and self._lacks_topic(producer, topic):
            raise SettingsError(f"Kafka has no topic {topic!r}: {REMEDY}")
        producer.purge()

    async def send(self, messages: Sequence[Message]) -> Sequence[Result]:
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
        """Discard the messages that are still in the producer, and report them to their senders as failed."""
        producer, self._open = self._open, None
        if producer is not None:
            await producer.purge()

    async def _send_alone(self, messages: Sequence[Message]) -> Result:
        """Send a message again by a new Kafka producer, after a batch that contained the message was refused."""
        # The refused batch may have contained messages of other calls of `send`.
        producer = Producer(self._config)
        try:
            (result,) = await producer.send(messages)
        finally:
            await producer.purge()
        return UnrecoverableError(str(result)) if isinstance(result, BatchRefused) else result

    def _lacks_topic(self, producer: Any, topic: str) -> bool:
        """Return True if the Kafka broker keeps saying that a topic does not exist."""
        # A broker that creates topics automatically needs a moment to do so.
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
