"""A program of a user, as mypy --strict sees it: every public call, and the types that it gives.

It is never run. A line that is wrong says so by `type: ignore`: mypy complains if it finds nothing wrong there.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, assert_type
from uuid import UUID

import asyncpg  # type: ignore[import-untyped]
from django.db import connection, connections  # type: ignore[import-untyped]
from prometheus_client import CollectorRegistry
from psycopg import AsyncConnection, Connection
from sqlalchemy import engine, orm
from sqlalchemy.ext import asyncio as sqlalchemy_asyncio
from sqlmodel import Session as SqlModelSession

from partbox import (
    Dead,
    DeliveredEvent,
    Done,
    DownstreamUnavailable,
    Event,
    Exponential,
    Fixed,
    Ignore,
    Jittered,
    Outbox,
    PartboxError,
    PayloadError,
    PublishError,
    RecoverableError,
    RegistrationError,
    RetryAfter,
    RetryAfterError,
    SchemaError,
    SettingsError,
    UnrecoverableError,
    UnroutableError,
    __version__,
    partition_of,
    supplied,
)
from partbox.observe import Observer
from partbox.publish import Adapter, register
from partbox.testing import Drained, Kit, RecordingSink, delivered


class Kind(StrEnum):
    PLACED = "OrderPlaced"


class Order:
    total: int


class Reversed:
    def encode(self, value: Any) -> bytes:
        return str(value)[::-1].encode()

    def decode(self, data: bytes) -> Any:
        return data.decode()[::-1]


# Settings and the outbox.

outbox = Outbox("postgresql://localhost/shop")
Outbox()
Outbox(lambda: "postgresql://localhost/shop", codecs={"text/reversed": Reversed()}, registry=CollectorRegistry())
Outbox(schema="shop", lease="10s", heartbeat=1, concurrency=8, retry=Jittered(Exponential(0.2, 60, 2)), enabled=False)
Outbox(7)  # type: ignore[arg-type]
assert_type(outbox.dsn, str)
assert_type(partition_of("order-7"), int)
assert_type(__version__, str)


# Handlers keep their types.


@outbox.on(Kind.PLACED, aggregate_type="Order", retry=Fixed(5), max_attempts=None, timeout="30s", on_failure="continue")
def confirm(event: DeliveredEvent) -> Done | RetryAfter | Dead | None:
    assert_type(event.id, int)
    assert_type(event.event_id, UUID)
    assert_type(event.event_type, str)
    assert_type(event.aggregate_id, str | None)
    assert_type(event.headers, dict[str, str])
    assert_type(event.occurred_at, datetime)
    assert_type(event.available_at, datetime | None)
    assert_type(event.is_delayed, bool)
    assert_type(event.idempotency_key, str | None)
    assert_type(event.payload_as(Order), Order)
    assert_type((event.epoch, event.attempt, event.subscription), tuple[int, int, str])
    if event.attempt > 3:
        raise RetryAfterError(timedelta(seconds=5))
    return Dead("never") if event.payload is None else RetryAfter(1.5)


@outbox.on("OrderPaid", subscription="mails")
async def mail(event: DeliveredEvent) -> None:
    raise DownstreamUnavailable("the mail server is away")


@outbox.on_batch("RowChanged", max_size=500)
def index(events: list[DeliveredEvent]) -> list[Dead | None]:
    return [Dead("no id") if event.payload is None else None for event in events]


@outbox.on("OrderCounted", transactional=True)
def count(event: DeliveredEvent, conn: Connection[Any]) -> None:
    conn.execute("select 1")


@outbox.on("OrderSummed", transactional="sqlalchemy")
async def sum_up(event: DeliveredEvent, session: sqlalchemy_asyncio.AsyncSession) -> None:
    await session.flush()


@outbox.on("OrderNoted", transactional="django")
def take_note(event: DeliveredEvent) -> None: ...


def judge(event: DeliveredEvent, error: BaseException, attempt: int) -> Done | Ignore | RetryAfter | Dead | None:
    return Ignore() if isinstance(error, KeyError) else None


class Audit:
    event_type = "*"

    def handle(self, event: DeliveredEvent) -> None: ...


outbox.register(Audit())
outbox.register(confirm, "OrderMoved", on_error=judge, on_dead="block")
outbox.on("Wrong", max_attempt=3)  # type: ignore[call-overload]
outbox.on("Wrong", on_failure="pause")  # type: ignore[call-overload]
outbox.on()  # type: ignore[call-overload]
outbox.on_batch()  # type: ignore[call-overload]
outbox.on(confirm)  # type: ignore[call-overload]
outbox.on("Wrong", confirm)  # type: ignore[call-overload]
outbox.on(["Wrong", "Either"])  # type: ignore[call-overload]
outbox.task("Wrong")  # type: ignore[call-overload]
kept: Callable[[DeliveredEvent], Done | RetryAfter | Dead | None] = confirm
confirm("an event")  # type: ignore[arg-type]
index(events="a list")  # type: ignore[arg-type]


# Tasks.


@outbox.task
def resize(picture: int, width: int = 100) -> str:
    return f"{picture}: {width}"


@outbox.task(name="mails.welcome", max_attempts=5)
async def welcome(event: DeliveredEvent, email: str, order: Order = supplied) -> None: ...


@outbox.task
def remind(email: str, times: int, event: DeliveredEvent = supplied) -> None: ...


assert_type(resize(1, width=2), str)
resize("one")  # type: ignore[arg-type]


# Interceptors, hooks, observers.


@outbox.intercept
class Timer:
    def before(self, event: DeliveredEvent) -> None: ...

    def after(self, event: DeliveredEvent, outcome: object, error: BaseException | None) -> None: ...


@outbox.intercept
@contextmanager
def timed(event: DeliveredEvent) -> Iterator[None]:
    yield


@outbox.before_publish
def without_tests(events: list[Event]) -> list[Event]:
    return [event for event in events if event.tenant_id != "test"]


@outbox.after_publish
@outbox.after_commit
@outbox.after_rollback
def tell(events: list[Event]) -> None: ...


@outbox.on_dead_letter
def alarm(event: DeliveredEvent, error: str) -> None: ...


class Watch(Observer):
    def buried(self, instances: int) -> None: ...


assert_type(without_tests([]), list[Event])
tell("events")  # type: ignore[arg-type]
alarm(7, "error")  # type: ignore[arg-type]
assert_type(outbox.observe(Watch()), Watch)


# Publishing.


def publish(conn: Connection[tuple[str, ...]]) -> None:
    event = Event(
        Kind.PLACED,
        {"total": 42},
        aggregate_type="Order",
        aggregate_id=UUID(int=7),
        headers={"a": "b"},
        deliver_after=timedelta(minutes=1),
        idempotency_key="order-7",
    )
    assert_type((event.is_delayed, event.available_at), tuple[bool, datetime | None])
    assert_type(outbox.publish(conn, event), UUID | None)
    outbox.publish(conn, "OrderPlaced", Order(), aggregate_id=7, available_at=datetime.now(UTC), content_type="x/y")
    outbox.publish(conn, "OrderPlaced", None, agregate_id=7)  # type: ignore[call-overload]
    outbox.publish(conn, "OrderPlaced", None, aggregate_id=7.5)  # type: ignore[call-overload]
    outbox.publish(conn, "OrderPlaced")  # type: ignore[call-overload]
    outbox.publish(conn, {"total": 42})  # type: ignore[call-overload]
    outbox.publish(conn, {"total": 42}, "OrderPlaced")  # type: ignore[call-overload]
    outbox.publish(conn, event, {"total": 42})  # type: ignore[call-overload]
    outbox.publish(conn, [event])  # type: ignore[call-overload]
    outbox.publish(conn)  # type: ignore[call-overload]
    outbox.publish(event)  # type: ignore[call-overload]
    outbox.publish(event, conn)  # type: ignore[call-overload]
    outbox.publish("OrderPlaced", {"total": 42})  # type: ignore[call-overload]
    outbox.publish("OrderPlaced", {"total": 42}, conn)  # type: ignore[call-overload]
    outbox.publish_many(conn, event)  # type: ignore[arg-type]
    assert_type(outbox.publish_many(conn, [event]), list[UUID | None])
    assert_type(resize.publish(conn, picture=1), UUID | None)
    assert_type(welcome.options(aggregate_id=7, deliver_after=5).publish(conn, email="a@example.org"), UUID | None)
    assert_type(remind.publish(conn, "a@example.org", times=2), UUID | None)
    welcome.options(aggregate_type="Order")  # type: ignore[call-arg]
    welcome.publish(conn, email=1)  # type: ignore[call-overload]
    welcome.options(aggregate_id=7).publish(conn, email=1)  # type: ignore[call-overload]
    welcome.publish(conn, mail="a@example.org")  # type: ignore[call-overload]
    welcome.publish(email="a@example.org")  # type: ignore[call-overload]
    welcome.publish("a@example.org", conn)  # type: ignore[call-overload]
    remind.publish(conn, email="a@example.org", times="twice")  # type: ignore[call-overload]
    resize.event(picture="one")  # type: ignore[call-overload]
    outbox.publish_many(conn, [resize.event(picture=1)])
    with outbox.transaction(conn) as tx, outbox.transaction() as own:
        assert_type((tx, own), tuple[Connection[Any], Connection[Any]])
    assert_type(outbox.inbox.first_time(conn, event, "consumer"), bool)


def cancel(conn: Connection[Any], event_id: UUID) -> None:
    assert_type(outbox.cancel(conn, event_id), bool)
    assert_type(outbox.cancel(conn, key="k"), bool)
    outbox.cancel(conn, 42)  # type: ignore[arg-type]


async def cancel_async(conn: AsyncConnection[Any], event: Event) -> None:
    assert_type(await outbox.cancel_async(conn, event), bool)


async def operate_async() -> None:
    for dead in await outbox.aio.dead.list(limit=10, event_type="OrderPlaced", older_than="2h"):
        assert_type((await outbox.aio.dead.show(dead.record_id)).error, str | None)
    assert_type(await outbox.aio.dead.replay_all(progress=lambda done, total: None), int)
    assert_type(await outbox.aio.subscriptions.pause("default"), bool)
    assert_type((await outbox.aio.records.find("4711", since="1h")).records[0].record_id, int)
    assert_type(await outbox.aio.stats.records(), dict[str, int])
    assert_type((await outbox.aio.purge(dry_run=True)).total, int)
    await outbox.aio.dead.list(limt=10)  # type: ignore[call-arg]
    outbox.aio.dead.list().append(dead)  # type: ignore[attr-defined]


async def publish_async(conn: AsyncConnection[Any]) -> None:
    assert_type(await outbox.publish_async(conn, "OrderPlaced", 1, aggregate_id="7"), UUID | None)
    assert_type(await outbox.publish_many_async(conn, []), list[UUID | None])
    assert_type(await welcome.publish_async(conn, email="a@example.org"), UUID | None)
    async with outbox.transaction(conn) as tx:
        assert_type(tx, AsyncConnection[Any])
    assert_type(await outbox.inbox.first_time_async(conn, UUID(int=7), "consumer"), bool)
    async with outbox.worker(concurrency=2) as worker:
        assert_type(await asyncio.to_thread(worker.wait_until_empty, 5.0), bool)
    outbox.worker(loop="own")
    outbox.worker(loop="application")  # type: ignore[arg-type]


def publish_through(
    session: orm.Session,
    scoped: orm.scoped_session[orm.Session],
    core: engine.Connection,
    sqlmodel: SqlModelSession,
    wrong: sqlalchemy_asyncio.AsyncSession,
) -> None:
    assert_type(outbox.publish(session, "OrderPlaced", 1), UUID | None)
    assert_type(outbox.publish_many(scoped, []), list[UUID | None])
    outbox.publish(core, "OrderPlaced", 1)
    outbox.publish(sqlmodel, "OrderPlaced", 1)
    outbox.publish(connection, "OrderPlaced", 1)
    outbox.publish(connections["other"], "OrderPlaced", 1)
    resize.publish(session, picture=1)
    outbox.publish(wrong, "OrderPlaced", 1)  # type: ignore[call-overload]
    outbox.publish("postgresql://localhost", "OrderPlaced", 1)  # type: ignore[call-overload]


async def publish_through_async(
    session: sqlalchemy_asyncio.AsyncSession,
    scoped: sqlalchemy_asyncio.async_scoped_session[sqlalchemy_asyncio.AsyncSession],
    core: sqlalchemy_asyncio.AsyncConnection,
    wrong: orm.Session,
) -> None:
    assert_type(await outbox.publish_async(session, "OrderPlaced", 1), UUID | None)
    assert_type(await outbox.publish_many_async(scoped, []), list[UUID | None])
    await outbox.publish_async(core, "OrderPlaced", 1)
    await welcome.publish_async(session, email="a@example.org")
    app = await asyncpg.connect()
    await outbox.publish_async(app, "OrderPlaced", 1)
    async with outbox.transaction(app) as tx:
        await outbox.publish_async(tx, "OrderPlaced", 1)
    await outbox.publish_async(wrong, "OrderPlaced", 1)  # type: ignore[call-overload]
    await welcome.publish_async(session, email=1)  # type: ignore[call-overload]


class TheirAdapter(Adapter):
    def in_transaction(self) -> bool:
        return True


register(orm.Session, TheirAdapter)


# Delivering and operating.


def deliver() -> None:
    with outbox.worker(concurrency=2, subscription="mails") as worker:
        assert_type(worker.wait_until_empty(5), bool)
    assert_type(outbox.drain(timeout=5, concurrency=1), bool)
    assert_type(outbox.run(processes=2, concurrency=8, subscription="mails", until_empty=True), int)
    outbox.supervisor(processes=2, concurrency=8, subscription="mails", metrics=True).start()
    with outbox.purger():
        assert_type(outbox.purge(dry_run=True).total, int)
    outbox.rebase(force=True, timeout="2m")


def operate() -> None:
    for dead in outbox.dead.list(limit=10, event_type="OrderPlaced"):
        assert_type(outbox.dead.show(dead.record_id).error, str | None)
        assert_type(outbox.dead.replay(dead.record_id), int)
    assert_type(outbox.dead.count() + outbox.dead.replay_all() + outbox.dead.discard_all(), int)
    for key in outbox.blocked.list():
        outbox.blocked.retry_now(key.aggregate_type, key.aggregate_id)
        outbox.blocked.skip("Order", 7)
    outbox.subscriptions.create("mails", "now", types=["OrderPaid", Kind.PLACED])
    assert_type([each.name for each in outbox.subscriptions.list()], list[str])
    assert_type(outbox.subscriptions.pause("mails") and outbox.subscriptions.resume("mails"), bool)
    outbox.subscriptions.drop("mails", timeout="1m")
    assert_type(outbox.stats.records(), dict[str, int])
    assert_type([each.id for each in outbox.stats.pending(limit=5)], list[int])
    outbox.stats.overview()
    outbox.stats.cluster()
    outbox.stats.partitions()


def tested(conn: Connection[Any]) -> None:
    with Kit(outbox, "postgresql:///test") as kit:
        assert_type(kit.publish("OrderPlaced", 1, aggregate_id=7), UUID | None)
        assert_type(kit.published(Kind.PLACED, aggregate_id=7, conn=conn).one(), DeliveredEvent)
        kit.fail_next("OrderPlaced", OSError("no"), times=2)
        kit.advance(timedelta(hours=1))
        assert_type(kit.drain().assert_done(), Drained)
        assert_type([each.error for each in kit.drain("audit")], list[BaseException | None])
        assert_type(kit.handle(delivered("OrderPlaced", 1, attempt=2, epoch=3)), Drained)
        assert_type(kit.record_sinks(), RecordingSink)


def fail(conn: Connection[Any]) -> None:
    try:
        publish(conn)
    except (PublishError, SchemaError, SettingsError, RegistrationError) as error:
        assert_type(error, PublishError | SchemaError | SettingsError | RegistrationError)
        raise UnrecoverableError("no such order") from error
    except RecoverableError as error:
        raise PayloadError("damaged") from error
    except PartboxError as error:
        raise UnroutableError("nobody") from error
