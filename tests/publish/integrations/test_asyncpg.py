"""asyncpg's own traps: codecs of the application, a failed transaction that counts as one, pools."""

import json
from typing import Any
from uuid import UUID

import asyncpg
import psycopg
import pytest
from kits import connect_asyncpg, parts
from reading import count, delivered

from partbox import Event, Outbox
from partbox.errors import PublishError
from partbox.publish.writing import COPY_FROM_EVENTS

EVENT = Event("OrderPlaced", {"id": 42}, headers={"a": "b"})
MANY = [Event("T", {"n": n}, deliver_after=60, headers={"a": "b"}) for n in range(COPY_FROM_EVENTS)]


@pytest.fixture
def outbox(dsn: str) -> Outbox:
    return Outbox(dsn)


async def test_codecs_of_the_application_do_not_encode_twice(
    outbox: Outbox, dsn: str, conn: psycopg.Connection[Any]
) -> None:
    app = await connect_asyncpg(dsn)
    for kind in ("json", "jsonb"):
        await app.set_type_codec(kind, schema="pg_catalog", encoder=json.dumps, decoder=json.loads)
    await app.set_type_codec("uuid", schema="pg_catalog", encoder=lambda text: text[::-1], decoder=str)
    await app.set_type_codec("timestamptz", schema="pg_catalog", encoder=repr, decoder=str)
    async with app.transaction():
        await outbox.publish_async(app, EVENT)
        await outbox.publish_async(app, "T", {"key": 1}, idempotency_key="k")
        await outbox.publish_many_async(app, MANY[:3])
        await outbox.publish_many_async(app, MANY)
        await outbox.publish_many_async(app, [Event("T", {"n": n}, idempotency_key=str(n)) for n in range(9)])
        assert await app.fetchval("select '[1]'::json") == [1]  # they are as they were
    await app.close()
    found = delivered(conn)
    assert [each.payload for each in found[:2]] == [{"id": 42}, {"key": 1}]
    numbered = [*range(3), *range(COPY_FROM_EVENTS), *range(9)]
    assert [each.payload for each in found[2:]] == [{"n": n} for n in numbered]
    assert [each.event_id for each in found[5 : 5 + COPY_FROM_EVENTS]] == [event.event_id for event in MANY]
    assert found[0].headers == found[2].headers == found[5].headers == {"a": "b"}


async def test_a_connection_lent_by_the_pool_can_be_published_on_but_the_pool_itself_cannot(
    outbox: Outbox, dsn: str, conn: psycopg.Connection[Any]
) -> None:
    async with asyncpg.create_pool(**parts(dsn), min_size=1, max_size=1) as pool:
        with pytest.raises(
            PublishError, match=r"asyncpg.pool.Pool has no transaction to publish in: take a connection"
        ):
            await outbox.publish_async(pool, EVENT)
        async with pool.acquire() as app, app.transaction():
            assert await outbox.publish_async(app, EVENT) == EVENT.event_id
    assert count(conn) == 1


async def test_a_transaction_begun_in_plain_sql_counts(outbox: Outbox, dsn: str, conn: psycopg.Connection[Any]) -> None:
    app = await connect_asyncpg(dsn)
    await app.execute("begin")
    await outbox.publish_async(app, EVENT)
    await app.execute("rollback")
    await app.close()
    with pytest.raises(PublishError, match="the connection is closed: open another"):
        await outbox.publish_async(app, EVENT)
    assert count(conn) == 0


async def test_outbox_transaction_refuses_a_transaction_that_is_already_open(outbox: Outbox, dsn: str) -> None:
    app = await connect_asyncpg(dsn)
    async with app.transaction():
        with pytest.raises(PublishError, match="a transaction is already open on this connection"):
            await outbox.transaction(app).__aenter__()
    with pytest.raises(PublishError, match=r"is asynchronous: use `async with outbox.transaction\(conn\):`"):
        outbox.transaction(app).__enter__()
    async with outbox.transaction(app) as tx:
        assert tx is app
        await outbox.publish_async(tx, EVENT)
    assert not app.is_in_transaction()
    await app.close()


async def test_a_connection_lost_inside_outbox_transaction_is_reported_as_a_rollback(
    outbox: Outbox, dsn: str, conn: psycopg.Connection[Any]
) -> None:
    ends: list[str] = []
    outbox.after_commit(lambda events: ends.append("commit"))
    outbox.after_rollback(lambda events: ends.append("rollback"))
    app = await connect_asyncpg(dsn)

    async def lose() -> None:
        async with outbox.transaction(app) as tx:
            await outbox.publish_async(tx, EVENT)
            conn.execute("select pg_terminate_backend(%s)", [tx.get_server_pid()])
            await tx.execute("select 1")

    with pytest.raises((asyncpg.PostgresError, OSError, asyncpg.InterfaceError)):
        await lose()
    assert (ends, count(conn)) == (["rollback"], 0)


async def test_a_subclass_of_the_connection_is_accepted_as_a_connection(
    outbox: Outbox, dsn: str, conn: psycopg.Connection[Any]
) -> None:
    class Own(asyncpg.Connection):  # type: ignore[misc]
        pass

    app = await connect_asyncpg(dsn, connection_class=Own, statement_cache_size=0)
    async with app.transaction():
        await outbox.publish_async(app, "T", UUID(int=7))
    await app.close()
    assert count(conn) == 1
