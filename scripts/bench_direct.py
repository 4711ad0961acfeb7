"""Sends messages by a broker's own library, without partbox: each in the best way that its documentation shows.

The guarantee is the relay's: every message is acknowledged. Payload, CloudEvents attributes and headers are ready; the
time is that of making from them what the library takes, and of sending it, after a warm-up. Where messages are in
flight side by side (all but Kafka and Redis) no order is kept.
"""

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psycopg

from partbox.codecs import Codecs
from partbox.db.blocking import lean
from partbox.events import Claim, DeliveredEvent
from partbox.sinks import Message, sink_of
from partbox.sinks.headers import ascii_headers
from partbox.sinks.sqs import _entry

Send = Callable[[Sequence[Any]], Awaitable[object]]
Sender = tuple[Callable[[Message], Any], Send]
"""What makes of a message what the library takes, and what sends many of those."""


def seconds(kind: str, url: str, template: str, dsn: str, columns: str, warm: int) -> tuple[float, float]:
    """The time that the log's messages take, but for the first `warm` of them, and the CPU time of this process."""
    return asyncio.run(_seconds(kind, url, _messages(url, template, dsn, columns), warm))


def _messages(url: str, template: str, dsn: str, columns: str) -> list[Message]:
    sink, claim = sink_of(url, template), Claim(1, "relay", Codecs())
    with psycopg.connect(dsn) as conn:
        lean(conn)
        rows = conn.cursor(binary=True).execute(f"select {columns} from bench.record order by id").fetchall()
    return [sink.message(DeliveredEvent(row, claim)) for row in rows]


async def _seconds(kind: str, url: str, messages: list[Message], warm: int) -> tuple[float, float]:
    async with SENDERS[kind](url) as (made, send):
        await send([made(message) for message in messages[:warm]])
        gc.disable()  # so many messages are not to be looked through again and again
        began, used = time.perf_counter(), time.process_time()
        await send([made(message) for message in messages[warm:]])
        return time.perf_counter() - began, time.process_time() - used


async def _side_by_side(send: Callable[[Any], Awaitable[object]], ready: Sequence[Any], *, most: int) -> None:
    """So many of them in flight all the time."""
    left = iter(ready)

    async def some() -> None:
        for each in left:
            await send(each)

    await asyncio.gather(*(some() for _ in range(most)))


@asynccontextmanager
async def kafka(url: str) -> AsyncIterator[Sender]:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": urlsplit(url).netloc, "enable.idempotence": True, "linger.ms": 5})

    def made(message: Message) -> dict[str, Any]:
        headers = [(name, value.encode()) for name, value in message.bound("ce_", "content-type").items()]
        return {"topic": message.topic, "value": message.value, "key": message.key, "headers": headers}

    async def send(ready: Sequence[dict[str, Any]]) -> None:
        for each in ready:
            while True:
                try:
                    producer.produce(**each, on_delivery=_delivered)
                    break
                except BufferError:
                    producer.poll(0.1)
            producer.poll(0)
        producer.flush()

    yield made, send


def _delivered(error: Any, _: Any) -> None:
    assert error is None, error


@asynccontextmanager
async def rabbitmq(url: str) -> AsyncIterator[Sender]:
    import aio_pika

    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel(publisher_confirms=True, on_return_raises=True)

        def made(message: Message) -> tuple[str, dict[str, Any]]:
            return message.topic, {
                "body": message.value,
                "headers": message.bound("cloudEvents:", "content-type"),
                "content_type": message.content_type,
                "message_id": message.id,
                "type": message.attributes["type"],
                "timestamp": message.event.occurred_at,
                "delivery_mode": aio_pika.DeliveryMode.PERSISTENT,
            }

        async def one(ready: tuple[str, dict[str, Any]]) -> None:
            topic, message = ready
            await channel.default_exchange.publish(aio_pika.Message(**message), topic, mandatory=True)

        yield made, partial(_side_by_side, one, most=500)


@asynccontextmanager
async def nats(url: str) -> AsyncIterator[Sender]:
    import nats as library

    client = await library.connect(url)
    stream = client.jetstream()

    def made(message: Message) -> tuple[str, bytes, dict[str, str]]:
        headers = ascii_headers(message.bound("ce-", "content-type")) | {"Nats-Msg-Id": message.id}
        return message.topic, message.value, headers

    async def send(ready: Sequence[tuple[str, bytes, dict[str, str]]]) -> None:
        answers = [await stream.publish_async(topic, value, headers=headers) for topic, value, headers in ready]
        await asyncio.gather(*answers)

    yield made, send
    await client.close()


@asynccontextmanager
async def redis(url: str) -> AsyncIterator[Sender]:
    import redis as library

    client = library.from_url(url)

    def made(message: Message) -> tuple[str, dict[str, Any]]:
        key = {} if message.key is None else {"key": message.key}
        return message.topic, {**message.bound("ce_", "content-type"), **key, "data": message.value}

    async def send(ready: Sequence[tuple[str, dict[str, Any]]]) -> None:
        for first in range(0, len(ready), 500):
            pipe = client.pipeline(transaction=False)
            for topic, fields in ready[first : first + 500]:
                pipe.xadd(topic, fields)
            pipe.execute()

    yield made, send
    client.close()


@asynccontextmanager
async def webhook(url: str) -> AsyncIterator[Sender]:
    import httpx

    limits = httpx.Limits(max_connections=20, max_keepalive_connections=20)
    async with httpx.AsyncClient(limits=limits, timeout=30) as client:

        def made(message: Message) -> tuple[bytes, dict[str, str]]:
            return message.value, ascii_headers(message.bound("ce-", "Content-Type")) | {"webhook-id": message.id}

        async def one(ready: tuple[bytes, dict[str, str]]) -> None:
            body, headers = ready
            (await client.post(url, content=body, headers=headers)).raise_for_status()

        yield made, partial(_side_by_side, one, most=20)


@asynccontextmanager
async def sqs(url: str) -> AsyncIterator[Sender]:
    import boto3

    parts = urlsplit(url)
    client = boto3.client("sqs", region_name=parts.netloc, endpoint_url=parse_qs(parts.query)["endpoint"][0])
    queues: dict[str, str] = {}

    def made(message: Message) -> tuple[str, dict[str, Any]]:
        if message.topic not in queues:
            queues[message.topic] = client.get_queue_url(QueueName=f"{message.topic}.fifo")["QueueUrl"]
        return queues[message.topic], _entry(0, message)

    def ten(ready: Sequence[tuple[str, dict[str, Any]]]) -> None:
        entries = [entry | {"Id": str(number)} for number, (_, entry) in enumerate(ready)]
        assert not client.send_message_batch(QueueUrl=ready[0][0], Entries=entries).get("Failed")

    async def send(ready: Sequence[tuple[str, dict[str, Any]]]) -> None:
        list(threads.map(ten, [ready[first : first + 10] for first in range(0, len(ready), 10)]))

    with ThreadPoolExecutor(10) as threads:
        yield made, send


SENDERS: dict[str, Callable[[str], AbstractAsyncContextManager[Sender]]] = {
    "kafka": kafka,
    "rabbitmq": rabbitmq,
    "nats": nats,
    "redis": redis,
    "webhook": webhook,
    "sqs": sqs,
}
