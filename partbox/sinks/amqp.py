"""RabbitMQ, by aio-pika: `amqp://USER:PASSWORD@HOST/VHOST`, `amqps://…`, `?exchange=NAME` for another exchange than the
default one, where the topic is the name of a queue.

Messages are persistent, confirmed, and mandatory: one that no queue would get comes back as an error.
"""

import asyncio
import re
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import urlencode, urlsplit, urlunsplit

from partbox.errors import DownstreamUnavailable, SettingsError, UnrecoverableError
from partbox.sinks.message import DEFAULT, Message
from partbox.sinks.sink import RETRY_LATER, Result, Sink, broker_answer, library
from partbox.text.dsn import query_of
from partbox.text.secrets import masked_url

OPTIONS: Final = frozenset(
    {
        "auth", "cadata", "cafile", "capath", "certfile", "exchange", "happy_eyeballs_delay", "heartbeat", "interleave",
        "keyfile", "name", "no_verify_ssl", "timeout",
    }
)  # fmt: skip
"""Options of the URL: `exchange`, and those that aio-pika and aiormq read, which ignore all others."""
BLOCKED: Final = "RabbitMQ blocks publishers: it is out of memory or disk (`rabbitmqctl status` names the alarm)"


class RabbitSink(Sink):
    """Sends to an exchange of RabbitMQ ("" is the default one) with the topic as routing key.

    The application property of each CloudEvents attribute is named as the AMQP binding says: `cloudEvents:id` … The
    event id is the message id, too.
    """

    def __init__(self, url: str, topic: str = DEFAULT, *, exchange: str = "", **options: Any) -> None:
        super().__init__(topic, **options)
        self._url = url
        self._exchange_name = exchange
        self._connection: Any = None
        self._exchange: Any = None

    @classmethod
    def from_url(cls, url: str, topic: str) -> "RabbitSink":
        parts = urlsplit(url)
        if not parts.hostname:
            raise SettingsError(f"{masked_url(url)!r} names no host: write amqp://USER:PASSWORD@HOST/VHOST")
        query = query_of(url, OPTIONS)
        for name in {"heartbeat", "timeout"} & query.keys():
            if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", query[name]):
                raise SettingsError(f"{masked_url(url)!r} has a {name} that is no number of seconds: write {name}=60")
        exchange = query.pop("exchange", "")
        return cls(urlunsplit(parts._replace(query=urlencode(query))), topic, exchange=exchange)

    def check(self) -> None:
        """SettingsError if the library is missing, or RabbitMQ has no such exchange, or no queue of a fixed topic."""
        library("aio_pika", "rabbitmq")
        if (self._exchange_name or self.topic.fixed) and (missing := broker_answer(self._find_missing())):
            raise SettingsError(missing)

    @property
    def trouble(self) -> str:
        """The reason that no answer comes, if it is an alarm of RabbitMQ."""
        return BLOCKED if _is_blocked(self._connection) else ""

    async def send(self, messages: Sequence[Message]) -> Sequence[Result]:
        """All in flight at once."""
        try:
            exchange = await self._connect()
        except OSError as error:
            raise DownstreamUnavailable(f"RabbitMQ cannot be reached: {error}") from error
        pika = library("aio_pika", "rabbitmq")
        results: list[Result] = await asyncio.gather(*(self._publish(pika, exchange, message) for message in messages))
        if len(messages) == 1 and isinstance(results[0], ChannelRefused):
            results = [await self._send_alone(pika, messages[0])]
        is_unusable = any(isinstance(result, ChannelRefused | UnrecoverableError) for result in results)
        if is_unusable and self._exchange is exchange:
            await self.close()
        return results

    async def close(self) -> None:
        connection, self._connection, self._exchange = self._connection, None, None
        if connection is not None:
            await connection.close()

    async def _connect(self) -> Any:
        """The exchange, over a connection that is open."""
        async with self._connect_lock():
            if self._exchange is None or self._exchange.channel.is_closed:
                await self.close()
                self._connection, self._exchange = await self._open_exchange()
            if _is_blocked(self._connection):
                raise DownstreamUnavailable(BLOCKED)
            return self._exchange

    async def _drop_connections(self, generation: int) -> None:
        """Keep a blocked connection: RabbitMQ would not see that it is closed, and pay for each new one in memory."""
        if not _is_blocked(self._connection):
            await super()._drop_connections(generation)

    async def _open_exchange(self) -> tuple[Any, Any]:
        """Open a connection, and the exchange on it. It is not closed while it opens: it would stay open."""
        connection = self._make_connection()
        try:
            await connection.connect(timeout=self._timeout)
            return connection, await self._get_exchange(connection)
        except BaseException:
            await connection.close()
            raise

    def _make_connection(self) -> Any:
        # Not by `pika.connect`: a connection that was never made has to be closed, too.
        return library("aio_pika", "rabbitmq").Connection(library("yarl", "rabbitmq").URL(self._url))

    async def _get_exchange(self, connection: Any) -> Any:
        """The exchange, by a channel of its own."""
        channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
        if not self._exchange_name:
            return channel.default_exchange
        try:
            return await channel.get_exchange(self._exchange_name)
        except library("aio_pika", "rabbitmq").exceptions.ChannelNotFoundEntity:
            raise LookupError(f"RabbitMQ has no exchange {self._exchange_name!r}: declare it") from None

    async def _find_missing(self) -> str | None:
        """The part that is missing of the exchange, or of the queue of all."""
        connection = self._make_connection()
        try:
            await connection.connect(timeout=self._timeout)
            exchange = await self._get_exchange(connection)
            if not self._exchange_name:
                await exchange.channel.get_queue(self.topic.fixed)
        except LookupError as error:
            return str(error)
        except library("aio_pika", "rabbitmq").exceptions.ChannelNotFoundEntity:
            return self._no_queue(str(self.topic.fixed))
        finally:
            await connection.close()
        return None

    def _no_queue(self, topic: str) -> str:
        if not self._exchange_name:
            return f"RabbitMQ has no queue {topic!r}: declare it"
        return f"RabbitMQ has no queue for {topic!r} at the exchange {self._exchange_name!r}: bind one"

    async def _send_alone(self, pika: Any, message: Message) -> Result:
        """Send it on a channel of its own: the other may have been closed for a message of another list."""
        if self._connection is None:  # closed for another list
            return RETRY_LATER
        try:
            result = await self._publish(pika, await self._get_exchange(self._connection), message)
        except (pika.exceptions.AMQPError, OSError, RuntimeError) as error:
            return DownstreamUnavailable(f"RabbitMQ: {error}")
        return UnrecoverableError(str(result)) if isinstance(result, ChannelRefused) else result

    async def _publish(self, pika: Any, exchange: Any, message: Message) -> Result:
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
        except pika.exceptions.PublishError:  # it came back
            return LookupError(self._no_queue(message.topic))
        except pika.exceptions.DeliveryError as error:
            return RuntimeError(f"RabbitMQ did not take it: {error}")
        except pika.exceptions.ChannelPreconditionFailed as error:
            return ChannelRefused(f"RabbitMQ says {error}")
        except pika.exceptions.ChannelInvalidStateError:  # closed before this was sent
            return RETRY_LATER
        except (pika.exceptions.AMQPError, OSError) as error:
            return DownstreamUnavailable(f"RabbitMQ: {error}")
        return None


def _is_blocked(connection: Any) -> bool:
    """True while RabbitMQ takes no message over this connection."""
    if connection is None or connection.transport is None:
        return False
    waiting = connection.transport.ready()
    try:
        waiting.send(None)  # it ends at once, unless it would have to wait
    except StopIteration:
        return False
    waiting.close()
    return True


class ChannelRefused(ValueError):
    """The error of all messages on a closed channel: sending each alone, as retries do, shows which one caused it."""
