"""The one producer that all lists of a Kafka sink share, and what became of each of their messages.

One task asks librdkafka for news while any list waits, for all of them: it does so in the event loop's own thread, for
another thread would wait each time for the interpreter. Whoever waits is woken when the last of its messages has ended.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import SimpleNamespace
from typing import Any, Final

from partbox.errors import DownstreamUnavailable, SettingsError, UnrecoverableError
from partbox.sinks.message import Message
from partbox.sinks.sink import NOT_YET, PATIENCE, Result, library
from partbox.text.wording import hint

USED: Final = (
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
SILENT: Final = SimpleNamespace(log=lambda *_: None)
"""librdkafka's own log; what matters of it comes as an error."""
NEWS: Final = 0.002  # seconds between two questions for what became of messages
REMEDY: Final = "create it, or let the broker do so (auto.create.topics.enable)"


class Refused(ValueError):
    """The broker has refused a batch: which message is to blame shows when each comes alone, as the failed do."""


class Brokers:
    """librdkafka's words on its brokers: the last `trouble`, and `fatal`, the producer is good for nothing any more."""

    def __init__(self) -> None:
        self.trouble = ""
        self.fatal = False

    def __call__(self, error: Any) -> None:
        self.trouble = f"Kafka says {error.name()}: {error.str()}"


class Producer:
    """librdkafka's producer. SettingsError for what it cannot be made of."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.kafka = library("confluent_kafka", "kafka")
        self.brokers = Brokers()
        self._waiting = 0
        self._asking: asyncio.Task[None] | None = None
        try:
            self.made = self.kafka.Producer({**config, "error_cb": self.brokers}, logger=SILENT)
        except self.kafka.KafkaException as error:
            raise SettingsError(f"kafka: {_refusal(error.args[0].str())}") from None

    async def send(self, messages: Sequence[Message]) -> list[Result]:
        sending = Sending(self, messages)
        self._waiting += 1
        try:
            await sending.send()
            if self._asking is None or self._asking.get_loop() is not asyncio.get_running_loop():
                self._asking = asyncio.create_task(self._ask())
            results = await sending.ended()
        finally:
            self._waiting -= 1
        if None in results:
            self.brokers.trouble = ""
        return results

    async def news(self) -> None:
        """Be told what became of messages, and give others their turn."""
        try:
            self.made.poll(0)
        except self.kafka.KafkaException:  # the producer has failed: those who wait are told by what is purged
            self.brokers.fatal = True
            self.made.purge()
        await asyncio.sleep(NEWS)

    async def purge(self) -> None:
        """Throw away what is in it; those who wait for it are told."""
        await asyncio.to_thread(self.made.purge)

    async def _ask(self) -> None:
        try:
            while self._waiting:
                await self.news()
        finally:
            self._asking = None


class Sending:
    """One list on its way."""

    def __init__(self, producer: Producer, messages: Sequence[Message]) -> None:
        self._producer = producer
        self._messages = messages
        self._results: list[Result] = [None] * len(messages)
        self._left = len(messages)
        self._failed: set[str | None] = set()
        self._asked: set[str] = set()
        self._done: asyncio.Future[None] | None = None

    async def send(self) -> None:
        """Give all to librdkafka."""
        produce, told = self._producer.made.produce, self._told
        trouble = self._producer.kafka.KafkaException, BufferError
        for place, message in enumerate(self._messages):
            key = message.key
            if self._failed and key is not None and key in self._failed:
                self._end(place, NOT_YET)
                continue
            headers = message.bound("ce_", "content-type")
            on_delivery = partial(told, place)
            while True:
                try:
                    produce(message.topic, message.value, key, headers=headers, on_delivery=on_delivery)
                except trouble as error:
                    if (first := self._before(place, error)) is None:
                        break
                    await first()
                else:
                    break

    async def ended(self) -> list[Result]:
        if self._left:
            self._done = asyncio.get_running_loop().create_future()
            await self._done
        return self._results

    def _before(self, place: int, error: Exception) -> Callable[[], Awaitable[None]] | None:
        """The step that has to come before the message can be sent; None: it has ended."""
        if isinstance(error, BufferError):  # the producer's queue is full
            return self._producer.news
        message, said = self._messages[place], error.args[0]
        if said.code() == self._producer.kafka.KafkaError._UNKNOWN_TOPIC and message.topic not in self._asked:
            return partial(self._ask, message.topic)
        self._end(place, self._not_taken(message, said))
        self._failed.add(message.key)
        return None

    async def _ask(self, topic: str) -> None:
        """A topic that was missing may be there now: librdkafka would ask for it only after minutes."""
        self._asked.add(topic)
        with suppress(self._producer.kafka.KafkaException):
            await asyncio.to_thread(self._producer.made.list_topics, topic, timeout=PATIENCE)

    def _not_taken(self, message: Message, error: Any) -> Result:
        """librdkafka's own refusal of a message."""
        codes = self._producer.kafka.KafkaError
        if error.code() == codes.MSG_SIZE_TOO_LARGE:
            size = f"{len(message.value):,} bytes"
            return UnrecoverableError(f"Kafka: MSG_SIZE_TOO_LARGE, {size}: raise message.max.bytes, the topic's too")
        if error.code() == codes._FATAL:
            self._producer.brokers.fatal = True
        return result(codes, message.topic, error)

    def _told(self, place: int, error: Any, _: Any) -> None:
        if error is not None:
            codes = self._producer.kafka.KafkaError
            self._results[place] = result(codes, self._messages[place].topic, error)
        self._left -= 1
        if not self._left and self._done is not None and not self._done.done():
            self._done.set_result(None)

    def _end(self, place: int, result: Result) -> None:
        """It was not given to librdkafka."""
        self._results[place] = result
        self._left -= 1


def result(codes: Any, topic: str, error: Any) -> Result:
    """The outcome of a message for which Kafka has this error."""
    said = f"Kafka says {error.name()}: {error.str()}"
    match error.code():
        case codes.MSG_SIZE_TOO_LARGE | codes.INVALID_MSG_SIZE | codes.INVALID_MSG | codes.INVALID_RECORD:
            return Refused(said)
        case codes.UNKNOWN_TOPIC_OR_PART | codes._UNKNOWN_TOPIC | codes._UNKNOWN_PARTITION:
            return LookupError(f"Kafka has no topic {topic!r} ({error.name()}): {REMEDY}")
        case codes.TOPIC_AUTHORIZATION_FAILED | codes.TOPIC_EXCEPTION:
            return PermissionError(f"{said}: {topic!r}")
        case _:
            return DownstreamUnavailable(said)


def _refusal(said: str) -> str:
    """librdkafka's refusal of a configuration, with the setting that may have been meant."""
    named = re.fullmatch(r'No such configuration property: "(.*)"', said)
    near = hint(named[1], USED, "") if named else ""
    return f"{said}: {near}" if near else said
