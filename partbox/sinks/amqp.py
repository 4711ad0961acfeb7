"""RabbitMQ, by aio-pika: `amqp://USER:PASSWORD@HOST/VHOST`, `amqps://…`, `?exchange=NAME` for another exchange than the
default one, where the topic is the name of a queue.

Messages are persistent, confirmed, and mandatory: one that no queue would get comes back as an error.
"""

import asyncio
from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit, urlunsplit

from partbox.errors import DownstreamUnavailable, SettingsError, UnrecoverableError
from partbox.rules.secrets import masked
from partbox.sinks.extra import library
from partbox.sinks.message import Message
from partbox.sinks.sink import Result, Sink
from partbox.sinks.topic import DEFAULT


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
        self._opening: asyncio.Lock | None = None

    @classmethod
    def from_url(cls, url: str, topic: str) -> "RabbitSink":
        """The sink of the URL; SettingsError."""
        parts = urlsplit(url)
        if not parts.hostname:
            raise SettingsError(f"{masked(url)!r} names no host: write amqp://USER:PASSWORD@HOST/VHOST")
        query = parse_qs(parts.query)
        exchange = query.pop("exchange", [""])[-1]
        return cls(urlunsplit(parts._replace(query=urlencode(query, doseq=True))), topic, exchange=exchange)

    def check(self) -> None:
        """SettingsError if the library is missing."""
        library("aio_pika", "rabbitmq")

    async def send(self, messages: Sequence[Message]) -> Sequence[Result]:
        """All in flight at once."""
        try:
            exchange = await self._ready()
        except OSError as error:
            await self.close()
            raise DownstreamUnavailable(f"RabbitMQ cannot be reached: {error}") from error
        pika, alone = library("aio_pika", "rabbitmq"), len(messages) == 1
        results = await asyncio.gather(*(self._publish(pika, exchange, message, alone) for message in messages))
        if any(isinstance(result, DownstreamUnavailable | ValueError | UnrecoverableError) for result in results):
            await self.close()  # the channel is gone
        return results

    async def close(self) -> None:
        """Close the connection."""
        connection, self._connection, self._exchange = self._connection, None, None
        if connection is not None:
            await connection.close()

    async def _ready(self) -> Any:
        """The exchange, over a connection that is open."""
        self._opening = self._opening or asyncio.Lock()
        async with self._opening:
            if self._exchange is None or self._exchange.channel.is_closed:
                await self.close()
                pika = library("aio_pika", "rabbitmq")
                # Not by `pika.connect`: a connection that was never made has to be closed, too.
                self._connection = pika.Connection(library("yarl", "rabbitmq").URL(self._url))
                await self._connection.connect(timeout=self._timeout)
                channel = await self._connection.channel(publisher_confirms=True, on_return_raises=True)
                named = self._exchange_name
                self._exchange = await channel.get_exchange(named) if named else channel.default_exchange
        return self._exchange

    async def _publish(self, pika: Any, exchange: Any, message: Message, alone: bool) -> Result:
        body = pika.Message(
            message.value,
            headers=message.bound("cloudEvents:", "content-type"),
            content_type=message.content_type,
            message_id=message.id,
            type=message.attributes["type"],
            timestamp=message.event.occurred_at,
            delivery_mode=pika.DeliveryMode.PERSISTENT,
        )
        try:
            await exchange.publish(body, routing_key=message.topic, mandatory=True)
        except pika.exceptions.PublishError:  # it came back
            place = f"exchange {self._exchange_name!r}" if self._exchange_name else "the default exchange"
            return LookupError(f"RabbitMQ has no queue for {message.topic!r} at {place}: declare or bind one")
        except pika.exceptions.DeliveryError as error:
            return RuntimeError(f"RabbitMQ did not take it: {error}")
        except pika.exceptions.ChannelPreconditionFailed as error:  # all on the channel get this: it comes alone then
            return UnrecoverableError(f"RabbitMQ says {error}") if alone else ValueError(f"RabbitMQ says {error}")
        except (pika.exceptions.AMQPError, OSError) as error:
            return DownstreamUnavailable(f"RabbitMQ: {error}")
        return None
