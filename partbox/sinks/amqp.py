"""RabbitMQ sink, by aio-pika: `amqp://USER:PASSWORD@HOST/VHOST?exchange=NAME`, `amqps://…`. Messages are persistent,
confirmed and mandatory: a message that no queue would get comes back as an error."""

import asyncio
import logging
import re
import time
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import urlencode, urlsplit, urlunsplit

from partbox.errors import DownstreamUnavailable, SettingsError, UnrecoverableError
from partbox.observe.logs.log_event import log_event
from partbox.sinks.message import DEFAULT, Message
from partbox.sinks.sink import RETRY_LATER, Result, Sink, broker_answer, library
from partbox.text.dsn import query_of
from partbox.text.secrets import mask_url

# Options of the URL: `exchange`, and the options that aio-pika and aiormq read. Both ignore all others silently.
OPTIONS: Final = frozenset(
    {
        "auth", "cadata", "cafile", "capath", "certfile", "exchange", "happy_eyeballs_delay", "heartbeat", "interleave",
        "keyfile", "name", "no_verify_ssl", "timeout",
    }
)  # fmt: skip
# Seconds between two warnings of a sink about messages that no queue would get.
WARNED_EVERY: Final = 60.0
BLOCKED: Final = "RabbitMQ blocks publishers: it is out of memory or disk (`rabbitmqctl status` names the alarm)"

log = logging.getLogger("partbox.worker")


class RabbitSink(Sink):
    """A sink that sends events to a RabbitMQ exchange, with the topic as routing key.

    The exchange "" is the default one, where the topic is the name of a queue. Each CloudEvents attribute is an
    application property, named by the AMQP binding: `cloudEvents:id` and so on. The event id is the message id too."""

    def __init__(self, url: str, topic: str = DEFAULT, *, exchange: str = "", **options: Any) -> None:
        super().__init__(topic, **options)
        self._url = url
        self._exchange_name = exchange
        self._connection: Any = None
        self._exchange: Any = None
        self._returned = 0
        self._warned_at = -WARNED_EVERY

    @classmethod
    def from_url(cls, url: str, topic: str) -> "RabbitSink":
        parts = urlsplit(url)
        if not parts.hostname:
            raise SettingsError(f"{mask_url(url)!r} names no host: write amqp://USER:PASSWORD@HOST/VHOST")
        query = query_of(url, OPTIONS)
        for name in {"heartbeat", "timeout"} & query.keys():
            if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", query[name]):
                raise SettingsError(f"{mask_url(url)!r} has a {name} that is no number of seconds: write {name}=60")
        exchange = query.pop("exchange", "")
        return cls(urlunsplit(parts._replace(query=urlencode(query))), topic, exchange=exchange)

    def check(self) -> None:
        """Raise SettingsError if the client library, the exchange, or the queue of a fixed topic is missing."""
        library("aio_pika", "rabbitmq")
        if (self._exchange_name or self.topic.fixed) and (missing := broker_answer(self._find_missing())):
            raise SettingsError(missing)

    @property
    def trouble(self) -> str:
        """The reason why RabbitMQ blocks publishers because of an alarm, else an empty text."""
        # RabbitMQ sends no answer meanwhile.
        return BLOCKED if _is_blocked(self._connection) else ""

    async def send(self, messages: Sequence[Message]) -> Sequence[Result]:
        try:
            exchange = await self._connect()
        except OSError as error:
            raise DownstreamUnavailable(f"RabbitMQ cannot be reached: {error}") from error
        pika = library("aio_pika", "rabbitmq")
        results: list[Result] = await asyncio.gather(
            *(self._publish_message(pika, exchange, message) for message in messages)
        )
        # If RabbitMQ closed the channel because of the message, a channel of its own shows it without a doubt.
        if len(messages) == 1 and isinstance(results[0], ChannelRefused):
            results = [await self._send_alone(pika, messages[0])]
        self._warn_returned([result for result in results if isinstance(result, NoQueueError)])
        is_unusable = any(isinstance(result, ChannelRefused | UnrecoverableError) for result in results)
        if is_unusable and self._exchange is exchange:
            await self.close()
        return results

    async def close(self) -> None:
        connection, self._connection, self._exchange = self._connection, None, None
        if connection is not None:
            await connection.close()

    def _warn_returned(self, errors: Sequence["NoQueueError"]) -> None:
        """Log a warning for messages that came back because no queue would get them, once a minute for all of them."""
        # The events themselves are retried, which is logged at INFO only.
        self._returned += len(errors)
        now = time.monotonic()
        if errors and now - self._warned_at >= WARNED_EVERY:
            log_event(
                log,
                "no_queue",
                "%s; until then its events wait. Messages that came back since the last such line: %s",
                errors[-1],
                self._returned,
                topic=errors[-1].topic,
                messages=self._returned,
            )
            self._returned, self._warned_at = 0, now

    async def _connect(self) -> Any:
        async with self._connect_lock():
            if self._exchange is None or self._exchange.channel.is_closed:
                await self.close()
                self._connection, self._exchange = await self._open_exchange()
            if _is_blocked(self._connection):
                raise DownstreamUnavailable(BLOCKED)
            return self._exchange

    async def _drop_connections(self, generation: int) -> None:
        # RabbitMQ does not see that a blocked connection is closed, and would pay in memory for each new one.
        if not _is_blocked(self._connection):
            await super()._drop_connections(generation)

    async def _open_exchange(self) -> tuple[Any, Any]:
        # The connection is stored only when it is open, because a connection that is closed while it opens would stay
        # open.
        connection = self._make_connection()
        try:
            await connection.connect(timeout=self._timeout)
            return connection, await self._get_exchange(connection)
        except BaseException:
            await connection.close()
            raise

    def _make_connection(self) -> Any:
        # Not `aio_pika.connect`, because a connection that could not be established must be closed too.
        return library("aio_pika", "rabbitmq").Connection(library("yarl", "rabbitmq").URL(self._url))

    async def _get_exchange(self, connection: Any) -> Any:
        channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
        if not self._exchange_name:
            return channel.default_exchange
        try:
            return await channel.get_exchange(self._exchange_name)
        except library("aio_pika", "rabbitmq").exceptions.ChannelNotFoundEntity:
            raise LookupError(f"RabbitMQ has no exchange {self._exchange_name!r}: declare it") from None

    async def _find_missing(self) -> str | None:
        connection = self._make_connection()
        try:
            await connection.connect(timeout=self._timeout)
            exchange = await self._get_exchange(connection)
            if not self._exchange_name:
                await exchange.channel.get_queue(self.topic.fixed)
        except LookupError as error:
            return str(error)
        except library("aio_pika", "rabbitmq").exceptions.ChannelNotFoundEntity:
            return self._format_no_queue(str(self.topic.fixed))
        finally:
            await connection.close()
        return None

    def _format_no_queue(self, topic: str) -> str:
        if not self._exchange_name:
            return f"RabbitMQ has no queue {topic!r}: declare it"
        return f"RabbitMQ has no queue for {topic!r} at the exchange {self._exchange_name!r}: bind one"

    async def _send_alone(self, pika: Any, message: Message) -> Result:
        """Send one message on a new channel, after its old channel was closed."""
        # The old channel may have been closed because of a message of another batch. If RabbitMQ closes the new channel
        # too, the message is refused for good.
        # Another batch has closed the connection meanwhile.
        if self._connection is None:
            return RETRY_LATER
        try:
            result = await self._publish_message(pika, await self._get_exchange(self._connection), message)
        except (pika.exceptions.AMQPError, OSError, RuntimeError) as error:
            return DownstreamUnavailable(f"RabbitMQ: {error}")
        return UnrecoverableError(str(result)) if isinstance(result, ChannelRefused) else result

    async def _publish_message(self, pika: Any, exchange: Any, message: Message) -> Result:
        body = pika.Message(
            message.value,
            headers=message.bound("cloudEvents:", "content-type"),
            content_type=message.content_type,
            message_id=message.id,
            type=message.event.event_type,
            timestamp=message.event.occurred_at,
            delivery_mode=pika.DeliveryMode.PERSISTENT,
        )
        try:
            await exchange.publish(body, routing_key=message.topic, mandatory=True)
        # The broker returned the message, because no queue would get it.
        except pika.exceptions.PublishError:
            return NoQueueError(self._format_no_queue(message.topic), message.topic)
        except pika.exceptions.DeliveryError as error:
            return RuntimeError(f"RabbitMQ refused the message: {error}")
        except pika.exceptions.ChannelPreconditionFailed as error:
            return ChannelRefused(f"RabbitMQ says {error}")
        # The channel was closed before the message was sent.
        except pika.exceptions.ChannelInvalidStateError:
            return RETRY_LATER
        except (pika.exceptions.AMQPError, OSError) as error:
            return DownstreamUnavailable(f"RabbitMQ: {error}")
        return None


def _is_blocked(connection: Any) -> bool:
    """Return True while RabbitMQ accepts no messages on this connection, because of an alarm."""
    if connection is None or connection.transport is None:
        return False
    waiting = connection.transport.ready()
    # `ready()` ends at once unless it would have to wait.
    try:
        waiting.send(None)
    except StopIteration:
        return False
    waiting.close()
    return True


class NoQueueError(LookupError):
    """An error for a message that RabbitMQ returned, because no queue is bound for its routing key, the `topic`."""

    def __init__(self, text: str, topic: str) -> None:
        super().__init__(text)
        self.topic = topic


class ChannelRefused(ValueError):
    """An error for all messages on a channel that RabbitMQ closed because of one message.

    The retry sends each message alone, which shows the message that caused it."""
