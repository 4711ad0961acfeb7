"""Send messages by a broker's own library, without partbox, each in the best way that the library's documentation
shows.

The guarantee is the relay's: every message is acknowledged. The events are in memory as Python values with encoded
payloads. The time covers building the same messages (CloudEvents attributes, headers, key) in the plainest way and
sending them, after a warm-up. Except for Kafka and Redis, messages are in flight side by side, so no order is kept."""

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

import psycopg

from partbox.codecs import JSON, Codecs
from partbox.db.blocking import use_raw_loaders
from partbox.events import ClaimContext, DeliveredEvent
from partbox.sinks.message import SOURCE, Message, Topic
from partbox.sinks.sqs import _build_entry
from partbox_lab.bench.workspace import SCHEMA
from partbox_lab.sql import query

Send = Callable[[Sequence[Any]], Awaitable[object]]


class DirectEvent(NamedTuple):
    """An event as an application holds it that sends by itself."""

    delivered: DeliveredEvent
    topic: str
    id: UUID
    type: str
    aggregate_type: str
    aggregate_id: str
    occurred_at: datetime
    value: bytes
    headers: dict[str, str]

    def bound(self, prefix: str, content_type: str) -> dict[str, str]:
        """Return the event's headers and its CloudEvents attributes."""
        return {
            **self.headers,
            f"{prefix}specversion": "1.0",
            f"{prefix}id": str(self.id),
            f"{prefix}source": SOURCE,
            f"{prefix}type": self.type,
            f"{prefix}time": self.occurred_at.isoformat(),
            f"{prefix}aggregatetype": self.aggregate_type,
            f"{prefix}subject": self.aggregate_id,
            f"{prefix}partitionkey": self.aggregate_id,
            content_type: JSON,
        }


# A function that builds the library's message from an event, and another that sends many messages.
Sender = tuple[Callable[[DirectEvent], Any], Send]


def seconds(kind: str, url: str, template: str, dsn: str, warm: int) -> tuple[float, float]:
    """Return the seconds that sending the log takes after the first `warm` events, and the CPU seconds of this
    process."""
    return asyncio.run(_seconds(kind, url, events(dsn, template), warm))


def events(dsn: str, template: str) -> list[DirectEvent]:
    """Return the events of the log, in order."""
    claim, topic = ClaimContext(1, "relay", Codecs()), Topic(template)
    with psycopg.connect(dsn) as conn:
        use_raw_loaders(conn)
        rows = conn.cursor(binary=True).execute(query("ratios_log", SCHEMA)).fetchall()
    return [_event(DeliveredEvent(row, claim), topic) for row in rows]


def _event(delivered: DeliveredEvent, topic: Topic) -> DirectEvent:
    assert delivered.aggregate_id is not None
    return DirectEvent(
        delivered,
        topic.of(delivered),
        delivered.event_id,
        delivered.event_type,
        delivered.aggregate_type,
        delivered.aggregate_id,
        delivered.occurred_at,
        delivered.raw,
        delivered.headers,
    )


async def _seconds(kind: str, url: str, events: list[DirectEvent], warm: int) -> tuple[float, float]:
    async with SENDERS[kind](url) as (made, send):
        await send([made(event) for event in events[:warm]])
        # The collector would scan all events again and again.
        gc.disable()
        began, used = time.perf_counter(), time.process_time()
        await send([made(event) for event in events[warm:]])
        return time.perf_counter() - began, time.process_time() - used


async def _side_by_side(send: Callable[[Any], Awaitable[object]], ready: Sequence[Any], *, most: int) -> None:
    """Send all messages, with `most` in flight at any time."""
    left = iter(ready)

    async def some() -> None:
        for each in left:
            await send(each)

    await asyncio.gather(*(some() for _ in range(most)))


@asynccontextmanager
async def kafka(url: str) -> AsyncIterator[Sender]:
    """Connect to Kafka by confluent-kafka, with an idempotent producer."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": urlsplit(url).netloc, "enable.idempotence": True, "linger.ms": 5})

    def made(event: DirectEvent) -> dict[str, Any]:
        headers = event.bound("ce_", "content-type")
        return {"topic": event.topic, "value": event.value, "key": event.aggregate_id, "headers": headers}

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
    """Connect to RabbitMQ by aio-pika, with publisher confirms and up to 500 messages in flight."""
    import aio_pika

    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel(publisher_confirms=True, on_return_raises=True)

        def made(event: DirectEvent) -> tuple[str, dict[str, Any]]:
            return event.topic, {
                "body": event.value,
                "headers": event.bound("cloudEvents:", "content-type"),
                "content_type": JSON,
                "message_id": str(event.id),
                "type": event.type,
                "timestamp": event.occurred_at,
                "delivery_mode": aio_pika.DeliveryMode.PERSISTENT,
            }

        async def one(ready: tuple[str, dict[str, Any]]) -> None:
            topic, message = ready
            await channel.default_exchange.publish(aio_pika.Message(**message), topic, mandatory=True)

        yield made, partial(_side_by_side, one, most=500)


@asynccontextmanager
async def nats(url: str) -> AsyncIterator[Sender]:
    """Connect to NATS JetStream by nats-py, with all messages in flight."""
    import nats as library

    client = await library.connect(url)
    stream = client.jetstream()

    def made(event: DirectEvent) -> tuple[str, bytes, dict[str, str]]:
        return event.topic, event.value, {**event.bound("ce-", "content-type"), "Nats-Msg-Id": str(event.id)}

    async def send(ready: Sequence[tuple[str, bytes, dict[str, str]]]) -> None:
        answers = [await stream.publish_async(topic, value, headers=headers) for topic, value, headers in ready]
        await asyncio.gather(*answers)

    yield made, send
    await client.close()


@asynccontextmanager
async def redis(url: str) -> AsyncIterator[Sender]:
    """Connect to Redis, with pipelines of 500 XADDs."""
    import redis as library

    client = library.from_url(url)

    def made(event: DirectEvent) -> tuple[str, dict[str, Any]]:
        return event.topic, {**event.bound("ce_", "content-type"), "key": event.aggregate_id, "data": event.value}

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
    """Open an HTTP client with up to 20 connections."""
    import httpx2

    limits = httpx2.Limits(max_connections=20, max_keepalive_connections=20)
    async with httpx2.AsyncClient(limits=limits, timeout=30) as client:

        def made(event: DirectEvent) -> tuple[bytes, dict[str, str]]:
            return event.value, {**event.bound("ce-", "Content-Type"), "webhook-id": str(event.id)}

        async def one(ready: tuple[bytes, dict[str, str]]) -> None:
            body, headers = ready
            (await client.post(url, content=body, headers=headers)).raise_for_status()

        yield made, partial(_side_by_side, one, most=20)


@asynccontextmanager
async def sqs(url: str) -> AsyncIterator[Sender]:
    """Connect to SQS by boto3, with batches of 10 from 10 threads."""
    import boto3

    parts = urlsplit(url)
    client = boto3.client("sqs", region_name=parts.netloc, endpoint_url=parse_qs(parts.query)["endpoint"][0])
    queues: dict[str, str] = {}

    def made(event: DirectEvent) -> tuple[str, dict[str, Any]]:
        if event.topic not in queues:
            queues[event.topic] = client.get_queue_url(QueueName=f"{event.topic}.fifo")["QueueUrl"]
        return queues[event.topic], _build_entry(0, Message(event.delivered, event.topic))

    def ten(ready: Sequence[tuple[str, dict[str, Any]]]) -> None:
        entries = [entry | {"Id": str(number)} for number, (_, entry) in enumerate(ready)]
        assert not client.send_message_batch(QueueUrl=ready[0][0], Entries=entries).get("Failed")

    async def send(ready: Sequence[tuple[str, dict[str, Any]]]) -> None:
        list(threads.map(ten, [ready[first : first + 10] for first in range(0, len(ready), 10)]))

    with ThreadPoolExecutor(10) as threads:
        yield made, send


SENDERS: dict[str, Callable[[str], AbstractAsyncContextManager[Sender]]] = {
    "kafka": kafka,
    "apache-kafka": kafka,
    "rabbitmq": rabbitmq,
    "nats": nats,
    "redis": redis,
    "webhook": webhook,
    "sqs": sqs,
}
