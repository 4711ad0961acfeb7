"""Kafka, by librdkafka: `kafka://HOST:PORT[,HOST:PORT…]`, settings of librdkafka as the query.

The producer is idempotent and gapless: librdkafka keeps order per partition, and when it cannot bring one message
there it fails those behind it too. Messages never run out of time in it, for one that does would leave a gap; when the
sink's own time is over the producer is thrown away with all that is in it.
"""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from partbox.errors import DownstreamUnavailable, SettingsError, UnrecoverableError
from partbox.sinks.extra import library
from partbox.sinks.message import Message
from partbox.sinks.sink import NOT_YET, Result, Sink
from partbox.sinks.topic import DEFAULT

OURS: Final = {
    "enable.idempotence": True,
    "enable.gapless.guarantee": True,
    "message.timeout.ms": 0,
    "partitioner": "murmur2_random",  # the Java clients' own, so that both put a key in the same partition
}
USUAL: Final = {"linger.ms": 5, "client.id": "partbox"}
LOOK = 0.002  # seconds


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
            raise SettingsError(f"{url!r} names no servers: write kafka://HOST:9092, several with commas between")
        return cls(parts.netloc, topic, config=dict(parse_qsl(parts.query)))

    def check(self) -> None:
        """SettingsError if the library is missing, or refuses the configuration."""
        self._made().purge()

    async def send(self, messages: Sequence[Message]) -> Sequence[Result]:
        """All in flight at once; returns when each was acknowledged or has failed."""
        if self._open is None:
            self._open = self._made()
        return await _Sending(self._open, messages).results()

    async def close(self) -> None:
        """Throw away what is in the producer, whose callers are told."""
        producer, self._open = self._open, None
        if producer is not None:
            await asyncio.to_thread(producer.purge)

    def _made(self) -> Any:
        kafka = library("confluent_kafka", "kafka")
        try:
            return kafka.Producer(self._config, logger=_Silent())
        except kafka.KafkaException as error:
            raise SettingsError(f"kafka: {error.args[0].str()}") from None


class _Sending:
    """One list on its way."""

    def __init__(self, producer: Any, messages: Sequence[Message]) -> None:
        self._kafka = library("confluent_kafka", "kafka")
        self._producer = producer
        self._messages = messages
        self._results: list[Result] = [None] * len(messages)
        self._left = len(messages)
        self._failed: set[str | None] = set()

    async def results(self) -> list[Result]:
        """Send, and wait for all."""
        for place, message in enumerate(self._messages):
            while not self._produce(place, message):
                await self._look()
        while self._left:
            await self._look()
        return self._results

    def _produce(self, place: int, message: Message) -> bool:
        """False if the producer's queue is full."""
        key = message.key
        if key is not None and key in self._failed:
            self._end(place, NOT_YET)
            return True
        headers = message.bound("ce_", "content-type")
        try:
            self._producer.produce(
                message.topic, message.value, key, headers=headers, on_delivery=partial(self._told, place)
            )
        except BufferError:
            return False
        except self._kafka.KafkaException as error:
            self._end(place, self._result(error.args[0]))
            self._failed.add(key)
        return True

    async def _look(self) -> None:
        """Be told what became of messages, of all lists; by this thread, for another would wait for it each time."""
        self._producer.poll(0)
        await asyncio.sleep(LOOK)

    def _told(self, place: int, error: Any, _: Any) -> None:
        self._end(place, None if error is None else self._result(error))

    def _end(self, place: int, result: Result) -> None:
        self._results[place] = result
        self._left -= 1

    def _result(self, error: Any) -> Result:
        codes = self._kafka.KafkaError
        said = f"Kafka says {error.name()}: {error.str()}"
        match error.code():
            case codes.MSG_SIZE_TOO_LARGE | codes.INVALID_MSG_SIZE | codes.INVALID_MSG | codes.INVALID_RECORD:
                # Others of its batch are told the same: an event that has failed comes alone, and then it is known.
                return UnrecoverableError(said) if len(self._messages) == 1 else ValueError(said)
            case codes.UNKNOWN_TOPIC_OR_PART | codes._UNKNOWN_TOPIC | codes._UNKNOWN_PARTITION:
                return LookupError(f"{said}; create the topic, or let the broker do so (auto.create.topics.enable)")
            case codes.TOPIC_AUTHORIZATION_FAILED | codes.INVALID_TOPIC_EXCEPTION:
                return PermissionError(said)
            case _:
                return DownstreamUnavailable(said)


class _Silent:
    """librdkafka's own log; what matters of it comes as an error."""

    def log(self, *_: Any) -> None: ...
