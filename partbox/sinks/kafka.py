"""Kafka, by librdkafka: `kafka://HOST:PORT[,HOST:PORT…]`, settings of librdkafka as the query.

The producer is idempotent and gapless: librdkafka keeps order per partition, and when it cannot bring one message
there it fails those behind it too. Messages never run out of time in it, for one that does would leave a gap; when the
sink's own time is over the producer is thrown away with all that is in it. So it is when the broker has refused a
message: a producer without gaps sends nothing after that.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from partbox.errors import DownstreamUnavailable, SettingsError, UnrecoverableError
from partbox.rules.secrets import masked_url
from partbox.sinks.extra import library
from partbox.sinks.message import Message
from partbox.sinks.sink import NOT_YET, Result, Sink
from partbox.sinks.starting import PATIENCE
from partbox.sinks.topic import DEFAULT

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
LOOK = 0.002  # seconds between two looks at what became of messages
ASK = 0.1  # seconds between two questions for a topic
REMEDY: Final = "create it, or let the broker do so (auto.create.topics.enable)"


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
        self._open: Any = None

    @classmethod
    def from_url(cls, url: str, topic: str) -> "KafkaSink":
        """The sink of the URL; SettingsError."""
        parts = urlsplit(url)
        if not parts.netloc or parts.path not in ("", "/"):
            raise SettingsError(
                f"{masked_url(url)!r} names no servers: write kafka://HOST:9092, commas between several"
            )
        if "@" in parts.netloc:
            raise SettingsError("kafka: a user stands in the query: kafka://HOST:9092?sasl.username=…&sasl.password=…")
        return cls(parts.netloc, topic, config=dict(parse_qsl(parts.query)))

    def check(self) -> None:
        """SettingsError if the library is missing, or refuses the configuration, or the broker has no such topic."""
        producer, topic = self._made(), self.topic.fixed
        if topic is not None and self._lacks(producer, topic):
            raise SettingsError(f"Kafka has no topic {topic!r}: {REMEDY}")
        producer.purge()

    async def send(self, messages: Sequence[Message]) -> Sequence[Result]:
        """All in flight at once; returns when each was acknowledged or has failed."""
        if self._open is None:
            self._open = self._made()
        sending = _Sending(self._open, messages)
        results = await sending.results()
        if sending.fatal and self._open is sending.producer:
            await self.close()
        if len(results) == 1 and isinstance(results[0], Refused):
            return [await self._alone(messages)]
        return results

    async def close(self) -> None:
        """Throw away what is in the producer, whose callers are told."""
        producer, self._open = self._open, None
        if producer is not None:
            await asyncio.to_thread(producer.purge)

    async def _alone(self, messages: Sequence[Message]) -> Result:
        """By a producer of its own: in the batch that was refused there may have been messages of other lists."""
        sending = _Sending(self._made(), messages)
        try:
            (result,) = await sending.results()
        finally:
            await asyncio.to_thread(sending.producer.purge)
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

    def _made(self) -> Any:
        kafka = library("confluent_kafka", "kafka")
        try:
            return kafka.Producer(self._config, logger=_Silent())
        except kafka.KafkaException as error:
            raise SettingsError(f"kafka: {error.args[0].str()}") from None


class Refused(ValueError):
    """The broker has refused a batch: which message is to blame shows when each comes alone, as the failed do."""


class _Sending:
    """One list on its way. `fatal`: the producer is good for nothing any more."""

    def __init__(self, producer: Any, messages: Sequence[Message]) -> None:
        self._kafka = library("confluent_kafka", "kafka")
        self.producer = producer
        self.fatal = False
        self._messages = messages
        self._results: list[Result] = [None] * len(messages)
        self._left = len(messages)
        self._failed: set[str | None] = set()
        self._asked: set[str] = set()

    async def results(self) -> list[Result]:
        """Send, and wait for all."""
        for place, message in enumerate(self._messages):
            while (first := self._produce(place, message)) is not None:
                await first()
        while self._left:
            await self._look()
        return self._results

    def _produce(self, place: int, message: Message) -> Callable[[], Awaitable[None]] | None:
        """The step that has to come before the message can be sent, or None."""
        key = message.key
        if key is not None and key in self._failed:
            self._end(place, NOT_YET)
            return None
        headers = message.bound("ce_", "content-type")
        try:
            self.producer.produce(
                message.topic, message.value, key, headers=headers, on_delivery=partial(self._told, place)
            )
        except BufferError:  # the producer's queue is full
            return self._look
        except self._kafka.KafkaException as error:
            if self._may_be_there_now(message.topic, error.args[0]):
                return partial(self._ask, message.topic)
            self._end(place, self._not_taken(message, error.args[0]))
            self._failed.add(key)
        return None

    async def _look(self) -> None:
        """Be told what became of messages, of all lists; by this thread, for another would wait for it each time."""
        try:
            self.producer.poll(0)
        except self._kafka.KafkaException:  # told to one of those who wait, so the others are told by this
            self.fatal = True
            self.producer.purge()
        await asyncio.sleep(LOOK)

    def _may_be_there_now(self, topic: str, error: Any) -> bool:
        """A topic that was missing is asked for once in a list: librdkafka would do so only after minutes."""
        return error.code() == self._kafka.KafkaError._UNKNOWN_TOPIC and topic not in self._asked

    async def _ask(self, topic: str) -> None:
        self._asked.add(topic)
        with suppress(self._kafka.KafkaException):
            await asyncio.to_thread(self.producer.list_topics, topic, timeout=PATIENCE)

    def _not_taken(self, message: Message, error: Any) -> Result:
        """librdkafka's own refusal of a message."""
        if error.code() == self._kafka.KafkaError.MSG_SIZE_TOO_LARGE:
            size = f"{len(message.value):,} bytes"
            return UnrecoverableError(f"Kafka: MSG_SIZE_TOO_LARGE, {size}: raise message.max.bytes, the topic's too")
        self.fatal = self.fatal or error.code() == self._kafka.KafkaError._FATAL
        return self._result(message, error)

    def _told(self, place: int, error: Any, _: Any) -> None:
        self._end(place, None if error is None else self._result(self._messages[place], error))

    def _end(self, place: int, result: Result) -> None:
        self._results[place] = result
        self._left -= 1

    def _result(self, message: Message, error: Any) -> Result:
        codes = self._kafka.KafkaError
        said = f"Kafka says {error.name()}: {error.str()}"
        match error.code():
            case codes.MSG_SIZE_TOO_LARGE | codes.INVALID_MSG_SIZE | codes.INVALID_MSG | codes.INVALID_RECORD:
                return Refused(said)
            case codes.UNKNOWN_TOPIC_OR_PART | codes._UNKNOWN_TOPIC | codes._UNKNOWN_PARTITION:
                return LookupError(f"Kafka has no topic {message.topic!r} ({error.name()}): {REMEDY}")
            case codes.TOPIC_AUTHORIZATION_FAILED | codes.TOPIC_EXCEPTION:
                return PermissionError(f"{said}: {message.topic!r}")
            case _:
                return DownstreamUnavailable(said)


class _Silent:
    """librdkafka's own log; what matters of it comes as an error."""

    def log(self, *_: Any) -> None: ...
