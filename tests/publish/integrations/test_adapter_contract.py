"""What every pair of a library and a driver does with what is published through it."""

import re
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
import pytest_asyncio
from kits import KITS, Kit, opened
from reading import count, delivered

from partbox import Event, Outbox
from partbox.errors import PublishError, SchemaError
from partbox.publish.writing import COPY_FROM_EVENTS

EVENT = Event("OrderPlaced", {"id": 42}, aggregate_type="Order", aggregate_id="42")
MANY = [Event("T", n) for n in range(COPY_FROM_EVENTS)]
AWKWARD = "tab\t newline\n return\r back\\slash \\N \\. %s %% :x $1 'quoted' \"twice\" ünïcødé 😀"
ASSIGNED = "select pg_current_xact_id_if_assigned()::text"


class Undo(Exception):
    """Rolls back."""


@asynccontextmanager
async def undone(block: AbstractAsyncContextManager[Any]) -> AsyncIterator[Any]:
    """The block, rolled back by an exception at its end."""
    with suppress(Undo):
        async with block as entered:
            yield entered
            raise Undo


@pytest.fixture
def outbox(dsn: str) -> Outbox:
    return Outbox(dsn)


@pytest_asyncio.fixture(params=KITS, ids=lambda kit: kit.name)
async def kit(request: pytest.FixtureRequest, dsn: str, outbox: Outbox) -> AsyncIterator[Kit]:
    async with opened(request.param, dsn, outbox) as kit:
        yield kit


def hear(outbox: Outbox, *moments: str) -> list[tuple[str, list[Any]]]:
    heard: list[tuple[str, list[Any]]] = []
    for moment in moments:
        getattr(outbox, moment)(lambda events, moment=moment: heard.append((moment, [each.payload for each in events])))
    return heard


async def test_committed_events_are_in_the_log_and_not_before_the_commit(
    kit: Kit, conn: psycopg.Connection[Any]
) -> None:
    async with kit.transaction() as tx:
        assert await kit.publish(tx, EVENT) == EVENT.event_id
        await kit.publish(tx, "Short", None, tenant_id="t", headers={"a": AWKWARD}, aggregate_id=AWKWARD)
        assert await kit.publish_many(tx, MANY) == [event.event_id for event in MANY]
        assert await kit.publish_many(tx, []) == []
        assert count(conn) == 0
    placed, short, *many = delivered(conn)
    assert (placed.event_id, placed.payload, placed.aggregate_id) == (EVENT.event_id, {"id": 42}, "42")
    assert (short.payload, short.tenant_id, short.headers, short.aggregate_id) == (None, "t", {"a": AWKWARD}, AWKWARD)
    assert [event.payload for event in many] == [*range(COPY_FROM_EVENTS)]


async def test_rolled_back_events_are_not_in_the_log(kit: Kit, conn: psycopg.Connection[Any]) -> None:
    async with undone(kit.transaction()) as tx:
        await kit.publish(tx, EVENT)
        await kit.publish_many(tx, MANY)
    async with undone(kit.transaction()) as tx:
        await kit.publish_many(tx, MANY)  # by COPY, before the library has sent anything itself
    assert count(conn) == 0


async def test_a_savepoint_that_is_rolled_back_takes_its_events(kit: Kit, conn: psycopg.Connection[Any]) -> None:
    async with kit.transaction() as tx:
        await kit.publish(tx, EVENT)
        async with undone(kit.savepoint(tx)):
            await kit.publish(tx, "T", "taken back")
            await kit.publish_many(tx, MANY)
        async with kit.savepoint(tx):
            await kit.publish(tx, "T", "released")
        assert count(conn) == 0
    assert [event.payload for event in delivered(conn)] == [{"id": 42}, "released"]


async def test_publishing_outside_a_transaction_is_refused_with_the_remedy(
    kit: Kit, conn: psycopg.Connection[Any]
) -> None:
    async with kit.outside() as target:
        for publish in (lambda: kit.publish(target, EVENT), lambda: kit.publish_many(target, MANY)):
            with pytest.raises(PublishError, match=r"there is no transaction.*: (open|publish|the isolation)"):
                await publish()
    assert count(conn) == 0


async def test_publishing_in_a_failed_transaction_is_refused_as_such(kit: Kit, conn: psycopg.Connection[Any]) -> None:
    for publish in (lambda tx: kit.publish(tx, EVENT), lambda tx: kit.publish_many(tx, MANY)):
        async with undone(kit.transaction()) as tx:
            with pytest.raises(Exception, match="division by zero"):
                await kit.execute(tx, "select 1 / 0")
            with pytest.raises(PublishError, match="the transaction has failed: roll back"):
                await publish(tx)
    async with kit.transaction() as tx:
        await kit.publish(tx, EVENT)
    assert count(conn) == 1


@pytest.mark.parametrize("size", [1, 3, COPY_FROM_EVENTS])
async def test_every_field_arrives_however_many_events_there_are(
    kit: Kit, conn: psycopg.Connection[Any], size: int
) -> None:
    moment = datetime(2024, 2, 29, 12, 30, 15, 123456, tzinfo=UTC)
    kinds: list[dict[str, Any]] = [
        {"payload": {"text": AWKWARD, "n": 1.5}, "headers": {"a": "b", "c": AWKWARD}, "deliver_after": 60},
        {"payload": b"\0\xff\\x\t\n" * 3, "content_type": "image/png", "aggregate_id": UUID(int=7)},
        {"payload": None, "occurred_at": moment, "available_at": moment + timedelta(days=36500), "tenant_id": AWKWARD},
        {"payload": [1, "2"], "aggregate_type": AWKWARD, "aggregate_id": 7},
    ]
    events = [Event(AWKWARD, **kinds[n % 4]) for n in range(size)]
    before = datetime.now(UTC) - timedelta(seconds=5)  # of the same machine as the server's
    async with kit.transaction() as tx:
        await kit.publish_many(tx, events)
    found = delivered(conn)
    assert [each.event_id for each in found] == [event.event_id for event in events]
    for n, each in enumerate(found):
        given = kinds[n % 4]
        assert each.event_type == AWKWARD
        assert each.payload == given["payload"]
        assert each.headers == given.get("headers", {})
        assert each.tenant_id == given.get("tenant_id")
        assert each.aggregate_id == (str(given["aggregate_id"]) if "aggregate_id" in given else None)
        assert each.occurred_at == moment if "occurred_at" in given else each.occurred_at > before
        if "deliver_after" in given:
            assert each.available_at is not None
            assert timedelta(seconds=59) < each.available_at - each.occurred_at < timedelta(seconds=61)
        else:
            assert each.available_at == given.get("available_at")


async def test_an_event_whose_idempotency_key_was_used_before_is_not_published(
    kit: Kit, conn: psycopg.Connection[Any]
) -> None:
    async with kit.transaction() as tx:
        assert await kit.publish(tx, "T", "first", idempotency_key=AWKWARD[:255]) is not None
        assert await kit.publish(tx, "T", "again", idempotency_key=AWKWARD[:255]) is None
    keyed = [Event("T", n, idempotency_key=key) for n, key in enumerate(["a", "b", "a", AWKWARD[:255]])]
    async with kit.transaction() as tx:
        ids = await kit.publish_many(tx, [*keyed, *MANY])
        assert ids == [keyed[0].event_id, keyed[1].event_id, None, None, *(event.event_id for event in MANY)]
    assert [event.payload for event in delivered(conn)] == ["first", 0, 1, *range(COPY_FROM_EVENTS)]
    assert delivered(conn)[1].idempotency_key == "a"


async def test_invalid_events_are_refused_before_anything_is_written(kit: Kit, conn: psycopg.Connection[Any]) -> None:
    def suppress(events: list[Event]) -> list[Event]:
        return [] if events[0].payload == "suppressed" else events

    kit.outbox.before_publish(suppress)
    async with kit.transaction() as tx:
        for publish, message in (
            (lambda: kit.publish(tx, "T", float("nan")), "NaN"),
            (
                lambda: kit.publish_many(tx, [*MANY, "no event"]),
                f"event {COPY_FROM_EVENTS} of the list: an Event is needed, not a str",
            ),
            (lambda: kit.publish_many(tx, [Event("T", 1), Event("T", "x" * 2**20)]), "above max_payload"),
        ):
            with pytest.raises(PublishError, match=message):
                await publish()
        assert await kit.publish(tx, "T", "suppressed") is None
        assert await kit.execute(tx, ASSIGNED) == [(None,)]
        await kit.publish(tx, EVENT)
    assert count(conn) == 1


async def test_the_connection_stays_as_it_was(kit: Kit, conn: psycopg.Connection[Any]) -> None:
    for _ in range(2):
        async with kit.transaction() as tx:
            assert await kit.execute(tx, "select 1") == [(1,)]
            before = kit.state(tx)
            await kit.publish(tx, EVENT)
            await kit.publish_many(tx, MANY)
            await kit.publish_many(tx, MANY[:2])
            assert kit.state(tx) == before
            assert await kit.execute(tx, "select 2 as n, 'two' as text") == [(2, "two")]
    assert count(conn) == 2 * (1 + COPY_FROM_EVENTS + 2)


async def test_hooks_hear_of_commits_and_of_events_that_savepoints_rolled_back(
    kit: Kit, conn: psycopg.Connection[Any]
) -> None:
    heard = hear(kit.outbox, "before_publish", "after_publish", *kit.tells)
    kit.outbox.after_commit(lambda events: heard.append(("in the log", [count(conn)])))
    async with kit.reported() as tx:
        await kit.publish(tx, EVENT)
        async with undone(kit.savepoint(tx)):
            await kit.publish(tx, "T", "taken back")
        async with kit.savepoint(tx):
            await kit.publish_many(tx, MANY)
        before = [*heard]
    many = [*range(COPY_FROM_EVENTS)]
    assert before == [
        ("before_publish", [{"id": 42}]), ("after_publish", [{"id": 42}]),
        ("before_publish", ["taken back"]), ("after_publish", ["taken back"]),
        ("before_publish", many), ("after_publish", many),
    ]  # fmt: skip
    told = [
        ("after_commit", [{"id": 42}]), ("in the log", [1 + COPY_FROM_EVENTS]), ("after_rollback", ["taken back"]),
        ("after_commit", many), ("in the log", [1 + COPY_FROM_EVENTS]),
    ]  # fmt: skip
    assert heard[6:] == [each for each in told if each[0] != "after_rollback" or "after_rollback" in kit.tells]


async def test_hooks_hear_of_a_rollback_once_and_of_each_transaction_separately(kit: Kit) -> None:
    heard = hear(kit.outbox, *kit.tells)
    async with undone(kit.reported()) as tx:
        await kit.publish(tx, EVENT)
    assert heard == [("after_rollback", [{"id": 42}])] * ("after_rollback" in kit.tells)
    heard.clear()
    async with kit.reported() as tx:
        await kit.publish(tx, "T", 2)
    async with kit.reported() as tx:
        await kit.execute(tx, "select 1")
    assert heard == [("after_commit", [2])]


async def test_hooks_hear_no_commit_of_a_transaction_that_had_failed(kit: Kit, conn: psycopg.Connection[Any]) -> None:
    """PostgreSQL answers its COMMIT with a rollback, and no error."""
    heard = hear(kit.outbox, *kit.tells)

    async def commit() -> None:
        async with kit.reported() as tx:
            await kit.publish(tx, EVENT)
            with pytest.raises(Exception, match="division by zero"):
                await kit.execute(tx, "select 1 / 0")

    if kit.scoped:
        with pytest.raises(PublishError, match="the transaction was rolled back, with everything in it"):
            await commit()
    else:
        await commit()
    assert heard == [("after_rollback", [{"id": 42}])] * ("after_rollback" in kit.tells)
    assert count(conn) == 0


DEFERRED = """
    create table account (id integer);
    create function refuse() returns trigger language plpgsql as $$ begin raise 'refused at commit'; end $$;
    create constraint trigger refusal after insert on account deferrable initially deferred
        for each row execute function refuse();
"""


async def test_hooks_hear_no_commit_that_failed(kit: Kit, conn: psycopg.Connection[Any]) -> None:
    conn.execute(DEFERRED)
    heard = hear(kit.outbox, *kit.tells)

    async def commit() -> None:
        async with kit.reported() as tx:
            await kit.publish(tx, EVENT)
            await kit.execute(tx, "insert into account values (1)")

    with pytest.raises(Exception, match="refused at commit"):
        await commit()
    assert heard == [("after_rollback", [{"id": 42}])] * ("after_rollback" in kit.tells)
    assert count(conn) == 0


@pytest.mark.parametrize("moment", ["after_commit", "after_rollback"])
async def test_a_hook_for_an_end_that_is_not_reported_is_refused_naming_the_transaction_that_reports_it(
    kit: Kit, conn: psycopg.Connection[Any], moment: str
) -> None:
    heard = hear(kit.outbox, "before_publish", moment)
    async with kit.transaction() as tx:
        for publish in (lambda: kit.publish(tx, EVENT), lambda: kit.publish_many(tx, MANY)):
            if moment in kit.tells and not kit.scoped:
                await publish()
            else:
                with pytest.raises(PublishError, match=r"cannot report .* `(async )?with outbox.transaction\("):
                    await publish()
    expected = 1 + COPY_FROM_EVENTS if moment in kit.tells and not kit.scoped else 0
    assert count(conn) == expected
    assert bool(heard) == bool(expected)


async def test_hooks_of_both_kinds_are_awaited_by_an_asynchronous_publish(kit: Kit) -> None:
    heard: list[str] = []

    @kit.outbox.after_commit
    async def tell(events: list[Event]) -> None:
        heard.append("asynchronous")

    kit.outbox.after_commit(lambda events: heard.append("plain"))
    async with kit.reported() as tx:
        if kit.is_async:
            await kit.publish(tx, EVENT)
        else:
            with pytest.raises(PublishError, match=r"after_commit hook .* is asynchronous.* await publish_async"):
                await kit.publish(tx, EVENT)
    assert heard == (["asynchronous", "plain"] if kit.is_async else [])


async def test_a_commit_wakes_the_workers_of_this_process(kit: Kit) -> None:
    worker, woken = kit.outbox.worker(), []
    worker.wake = lambda: woken.append(1)  # type: ignore[method-assign]
    async with undone(kit.reported()) as tx:
        await kit.publish(tx, EVENT)
    async with kit.reported() as tx:
        await kit.execute(tx, "select 1")
    assert woken == []
    async with kit.reported() as tx:
        await kit.publish(tx, EVENT)
        assert woken == []
    assert woken == [1]


async def test_a_call_of_the_wrong_kind_names_the_right_ones(kit: Kit, conn: psycopg.Connection[Any]) -> None:
    remedy = "call publish or publish_many", "await publish_async or publish_many_async"
    async with kit.transaction() as tx:
        with pytest.raises(PublishError, match=rf"is a?synchronous: {remedy[kit.is_async]}"):
            await kit.publish_wrongly(tx, EVENT)
    assert count(conn) == 0


async def test_a_schema_that_is_missing_names_init(kit: Kit, dsn: str) -> None:
    kit.outbox = Outbox(dsn, schema="else%where")
    for publish in (lambda tx: kit.publish(tx, EVENT), lambda tx: kit.publish_many(tx, MANY)):
        with pytest.raises(SchemaError, match=r"'else%where' is missing .* run `partbox init`"):
            async with kit.transaction() as tx:
                await publish(tx)


async def test_every_publish_writes_in_the_one_transaction_that_was_open(kit: Kit) -> None:
    async with kit.transaction() as tx:
        await kit.publish(tx, EVENT)
        ((first,),) = await kit.execute(tx, ASSIGNED)
        await kit.publish_many(tx, MANY)
        await kit.publish(tx, "T", 1, idempotency_key="k")
        assert await kit.execute(tx, ASSIGNED) == [(first,)]
        assert re.fullmatch(r"\d+", first)
