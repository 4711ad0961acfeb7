"""Triggers and rules of others that keep rows out of our tables, and raise nothing: whoever publishes gets an error."""

from collections.abc import AsyncIterator
from contextlib import nullcontext, suppress
from typing import Any

import psycopg
import pytest
import pytest_asyncio
from kits import KITS, Kit, opened
from reading import count

from partbox import Event, Outbox
from partbox.errors import PublishError
from partbox.publish.writing import COPY_FROM_EVENTS

pytestmark = pytest.mark.every_version("triggers, rules and what COPY counts")

WAYS: dict[str, list[Event]] = {
    "one": [Event("T", 0)],
    "one with a key": [Event("T", 0, idempotency_key="0")],
    "several": [Event("T", n) for n in range(3)],
    "several with keys": [Event("T", n, idempotency_key=str(n)) for n in range(3)],
    "many": [Event("T", n) for n in range(COPY_FROM_EVENTS)],
    "many with times": [Event("T", n, deliver_after=60) for n in range(COPY_FROM_EVENTS)],
    "many with keys": [Event("T", n, idempotency_key=str(n)) for n in range(COPY_FROM_EVENTS)],
}
TABLES = ("record", "record_1", "idempotency")
RULE = "create rule dropped as on insert to partbox.record do instead nothing"


def keep_out(conn: psycopg.Connection[Any], table: str) -> None:
    """The last of several is kept out; one alone too."""
    last = "new.payload::text in ('0', '2', '199')" if table != "idempotency" else "new.key in ('0', '2', '199')"
    conn.execute(
        "create function partbox.dropped() returns trigger language plpgsql as"
        f" $$ begin if {last} then return null; end if; return new; end $$"
    )
    conn.execute(
        f"create trigger dropped before insert on partbox.{table} for each row execute function partbox.dropped()"
    )


@pytest.fixture(params=["on", "off"])
def outbox(dsn: str, request: pytest.FixtureRequest) -> Outbox:
    return Outbox(dsn, bell=request.param)


@pytest_asyncio.fixture(params=KITS, ids=lambda kit: kit.name)
async def kit(request: pytest.FixtureRequest, dsn: str, outbox: Outbox) -> AsyncIterator[Kit]:
    async with opened(request.param, dsn, outbox) as kit:
        yield kit


async def refused(kit: Kit, events: list[Event]) -> None:
    """The publish fails, and with it the transaction, whether its error is caught or not."""
    with suppress(Exception):
        async with kit.transaction() as tx:
            with pytest.raises(PublishError, match="keeps out what is published: nothing was"):
                await (kit.publish(tx, events[0]) if len(events) == 1 else kit.publish_many(tx, events))


@pytest.mark.thorough
@pytest.mark.parametrize("table", TABLES)
async def test_a_publish_fails_as_a_whole_when_a_trigger_keeps_a_row_out(
    kit: Kit, conn: psycopg.Connection[Any], table: str
) -> None:
    keep_out(conn, table)
    for events in WAYS.values():
        if table != "idempotency" or events[0].idempotency_key is not None:
            await refused(kit, events)
    assert count(conn) == 0
    assert conn.execute("select count(*) from partbox.idempotency").fetchone() == (0,)


@pytest.mark.thorough
async def test_a_publish_fails_when_a_rule_keeps_a_row_out(kit: Kit, conn: psycopg.Connection[Any]) -> None:
    conn.execute(RULE)
    for name in ("one", "one with a key", "several"):  # COPY knows no rules
        with pytest.raises(Exception, match=r"rule|INSERT RETURNING"):
            async with kit.transaction() as tx:
                await kit.publish_many(tx, WAYS[name])
    assert count(conn) == 0


async def test_a_key_that_was_used_before_is_no_error(kit: Kit, conn: psycopg.Connection[Any]) -> None:
    """Also that of an event that is published again as it is, with its event id."""
    for events in (WAYS["one with a key"], WAYS["several with keys"]):
        async with kit.transaction() as tx:
            await kit.publish_many(tx, events)
        async with kit.transaction() as tx:
            assert await kit.publish_many(tx, events) == [None] * len(events)
    assert count(conn) == 3


@pytest.mark.parametrize("autocommit", [True, False])
@pytest.mark.parametrize("way", WAYS)
def test_the_server_raises_the_error_for_a_publish_in_a_pipeline(
    outbox: Outbox, dsn: str, conn: psycopg.Connection[Any], way: str, autocommit: bool
) -> None:
    """Nobody waits for the answer there."""
    keep_out(conn, "record")

    def publish() -> None:
        with app.pipeline(), app.transaction() if autocommit else nullcontext():
            outbox.publish(app, WAYS[way][0]) if len(WAYS[way]) == 1 else outbox.publish_many(app, WAYS[way])
        app.commit()

    unwritten = pytest.raises((PublishError, psycopg.errors.ObjectNotInPrerequisiteState), match="keeps out what is")
    with psycopg.connect(dsn, autocommit=autocommit) as app, unwritten:
        publish()
    assert count(conn) == 0


@pytest.mark.parametrize("payload", ["'0'::json", "'0'::jsonb", "'0'::text", "'0'"])
@pytest.mark.parametrize("key", ["null", "'0'"])
@pytest.mark.parametrize("table", TABLES)
def test_the_sql_functions_fail_when_a_trigger_keeps_a_row_out(
    conn: psycopg.Connection[Any], payload: str, key: str, table: str
) -> None:
    if table == "idempotency" and key == "null":
        return
    keep_out(conn, table)
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="keeps out what is published"):
        conn.execute(f"select partbox.publish('T', {payload}, idempotency_key => {key})")
    assert count(conn) == 0


def test_the_sql_functions_fail_when_a_rule_keeps_a_row_out(conn: psycopg.Connection[Any]) -> None:
    conn.execute(RULE)
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="keeps out what is published"):
        conn.execute("select partbox.publish('T', '0')")
