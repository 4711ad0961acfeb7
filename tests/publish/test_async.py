"""The asynchronous twin: the same, awaited."""

from typing import Any

import psycopg
import pytest
from reading import count, delivered

from partbox import Event, Outbox
from partbox.errors import PublishError

EVENT = Event("OrderPlaced", {"id": 42})


@pytest.fixture
def outbox(dsn: str) -> Outbox:
    return Outbox(dsn)


@pytest.mark.parametrize("size", [3, 100])
async def test_committed_events_are_in_the_log_in_order(
    outbox: Outbox, dsn: str, conn: psycopg.Connection[Any], size: int
) -> None:
    events = [Event("T", n, deliver_after=60) for n in range(size)] + [Event("T", "now")]
    async with await psycopg.AsyncConnection.connect(dsn) as app, app.transaction():
        assert await outbox.publish_async(app, EVENT) == EVENT.event_id
        await outbox.publish_async(app, "Short", None, tenant_id="t")
        ids = await outbox.publish_many_async(app, events)
        assert count(conn) == 0
    records = delivered(conn)
    assert ids == [event.event_id for event in events] == [record.event_id for record in records[2:]]
    assert [record.payload for record in records] == [{"id": 42}, None, *range(size), "now"]


async def test_a_rollback_removes_asynchronously_published_events(
    outbox: Outbox, dsn: str, conn: psycopg.Connection[Any]
) -> None:
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as app:
        async with app.transaction():
            await outbox.publish_async(app, EVENT)
            async with app.transaction(force_rollback=True):
                await outbox.publish_many_async(app, [Event("T", n) for n in range(50)])
        assert count(conn) == 1
        with pytest.raises(PublishError, match="no transaction"):
            await outbox.publish_async(app, EVENT)
        with pytest.raises(PublishError, match="no transaction"):
            await outbox.publish_many_async(app, [EVENT])
        assert app.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
    assert count(conn) == 1


@pytest.mark.parametrize("autocommit", [True, False])
async def test_pipeline_mode_works(outbox: Outbox, dsn: str, conn: psycopg.Connection[Any], autocommit: bool) -> None:
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=autocommit) as app:
        async with app.pipeline(), app.transaction():
            await app.execute("select 1")
            await outbox.publish_async(app, EVENT)
            await outbox.publish_many_async(app, [Event("T", n) for n in range(20)])
        if autocommit:
            async with app.pipeline():
                await app.execute("select 1")
                with pytest.raises(PublishError, match="no transaction"):
                    await outbox.publish_async(app, EVENT)
    assert count(conn) == 21


async def test_the_wrong_kind_of_connection_names_the_right_call(
    outbox: Outbox, dsn: str, conn: psycopg.Connection[Any]
) -> None:
    async with await psycopg.AsyncConnection.connect(dsn) as app:
        with pytest.raises(PublishError, match="asynchronous: await publish_async"):
            outbox.publish(app, EVENT)  # type: ignore[arg-type]
    with pytest.raises(PublishError, match="synchronous: call publish"):
        await outbox.publish_many_async(conn, [EVENT])  # type: ignore[arg-type]
