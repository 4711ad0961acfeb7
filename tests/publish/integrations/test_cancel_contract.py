"""Cancelling does the same over every pair of a library and a driver."""

from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest
import pytest_asyncio
from kits import KITS, Kit, opened
from test_adapter_contract import undone

from partbox import Event, Outbox
from partbox.errors import PublishError


@pytest_asyncio.fixture(params=KITS, ids=lambda kit: kit.name)
async def kit(request: pytest.FixtureRequest, dsn: str) -> AsyncIterator[Kit]:
    async with opened(request.param, dsn, Outbox(dsn)) as kit:
        yield kit


async def cancel(kit: Kit, tx: Any, event: Any = None, *, awaits: bool | None = None, **named: Any) -> bool:
    """Cancel by the call for its kind, or for the other one."""
    if kit.is_async if awaits is None else awaits:
        return await kit.outbox.cancel_async(tx, event, **named)
    return kit.outbox.cancel(tx, event, **named)


def cancelled(conn: psycopg.Connection[Any]) -> list[int]:
    return [id for (id,) in conn.execute("select record_id from partbox.cancellation order by 1")]


async def test_a_committed_cancellation_holds_and_a_rolled_back_one_does_not(
    kit: Kit, conn: psycopg.Connection[Any]
) -> None:
    events = [Event("T", n, deliver_after=3_600, idempotency_key=f"100 % :x {n}") for n in range(3)]
    async with kit.transaction() as tx:
        await kit.publish_many(tx, [*events, now := Event("T", 3)])
    async with undone(kit.transaction()) as tx:
        assert await cancel(kit, tx, events[0])
    assert cancelled(conn) == []
    async with kit.transaction() as tx:
        async with undone(kit.savepoint(tx)):
            assert await cancel(kit, tx, events[0].event_id)
        assert await cancel(kit, tx, str(events[1].event_id))
        assert await cancel(kit, tx, key="100 % :x 2")
        assert not await cancel(kit, tx, now)
    assert cancelled(conn) == [2, 3]


async def test_a_cancellation_without_an_event_or_by_the_call_of_the_other_kind_is_refused(kit: Kit) -> None:
    with pytest.raises(PublishError, match="give one of them"):
        async with kit.transaction() as tx:
            await cancel(kit, tx)
    async with kit.transaction() as tx:
        remedy = "await cancel_async" if kit.is_async else "call cancel"
        with pytest.raises(PublishError, match=f"synchronous: {remedy}$"):
            await cancel(kit, tx, key="k", awaits=not kit.is_async)
