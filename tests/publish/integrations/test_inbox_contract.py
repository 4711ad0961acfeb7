"""The inbox does the same over every pair of a library and a driver."""

from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import psycopg
import pytest
import pytest_asyncio
from kits import KITS, Kit, opened
from test_adapter_contract import undone

from partbox import Event, Outbox
from partbox.errors import PartboxError, PublishError, SchemaError

EVENT = Event("OrderPlaced", 1)
CONSUMER = "tab\t 100 % %s :x $1 'quoted' ünïcødé 😀"


@pytest_asyncio.fixture(params=KITS, ids=lambda kit: kit.name)
async def kit(request: pytest.FixtureRequest, dsn: str) -> AsyncIterator[Kit]:
    async with opened(request.param, dsn, Outbox(dsn)) as kit:
        yield kit


async def is_first(kit: Kit, tx: Any, event: Any = EVENT, consumer: str = CONSUMER) -> bool:
    if kit.is_async:
        return await kit.outbox.inbox.first_time_async(tx, event, consumer)
    return kit.outbox.inbox.first_time(tx, event, consumer)


def seen(conn: psycopg.Connection[Any]) -> list[tuple[str, UUID]]:
    return conn.execute("select consumer, event_id from partbox.inbox order by 1").fetchall()


async def test_a_committed_event_has_been_seen_and_a_rolled_back_one_has_not(
    kit: Kit, conn: psycopg.Connection[Any]
) -> None:
    async with undone(kit.transaction()) as tx:
        assert await is_first(kit, tx)
        assert not await is_first(kit, tx)
    assert seen(conn) == []
    async with kit.transaction() as tx:
        async with undone(kit.savepoint(tx)):
            assert await is_first(kit, tx)
        assert await is_first(kit, tx, str(EVENT.event_id))
        assert seen(conn) == []
    async with kit.transaction() as tx:
        assert not await is_first(kit, tx, EVENT.event_id)
        assert await is_first(kit, tx, EVENT, "another")
    assert seen(conn) == [("another", EVENT.event_id), (CONSUMER, EVENT.event_id)]


@pytest.mark.every_version("what EXPLAIN says of an INSERT")
async def test_an_event_that_a_trigger_keeps_out_of_the_inbox_is_not_reported_as_seen(
    kit: Kit, conn: psycopg.Connection[Any]
) -> None:
    async with kit.transaction() as tx:
        assert await is_first(kit, tx, EVENT, "another")
    conn.execute(
        "create function drops() returns trigger language plpgsql as"
        " $$ begin return case when new.consumer = 'another' then new end; end $$;"
        "create trigger drops before insert on partbox.inbox for each row execute function drops()"
    )
    async with undone(kit.transaction()) as tx:
        assert not await is_first(kit, tx, EVENT, "another")
        with pytest.raises(PartboxError, match="a trigger keeps rows out of table"):
            await is_first(kit, tx)
    assert seen(conn) == [("another", EVENT.event_id)]


async def test_an_error_says_why_the_inbox_cannot_record_an_event(kit: Kit, conn: psycopg.Connection[Any]) -> None:
    async with kit.outside() as target:
        with pytest.raises(PublishError, match="there is no transaction"):
            await is_first(kit, target)
    async with kit.transaction() as tx:
        with pytest.raises(PartboxError, match="neither an event nor an event id"):
            await is_first(kit, tx, 42)
        with pytest.raises(PublishError, match=r"is a?synchronous: (call|await) first_time"):
            await _wrong(kit, tx)
    async with undone(kit.transaction()) as tx:
        with pytest.raises(Exception, match="division by zero"):
            await kit.execute(tx, "select 1 / 0")
        with pytest.raises(PublishError, match="the transaction has failed: roll back"):
            await is_first(kit, tx)
    conn.execute("drop table partbox.inbox")
    async with undone(kit.transaction()) as tx:
        with pytest.raises(SchemaError, match="has no inbox in this database: run `partbox init`"):
            await is_first(kit, tx)


async def _wrong(kit: Kit, tx: Any) -> Any:
    """By the call of the other kind."""
    inbox = kit.outbox.inbox
    return inbox.first_time(tx, EVENT, CONSUMER) if kit.is_async else await inbox.first_time_async(tx, EVENT, CONSUMER)
