"""Which adapter something gets, what is refused by name, and adapters of one's own."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import psycopg
import psycopg2
import psycopg_pool
import pytest
from kits import async_engine_of, engine_of
from reading import count, delivered
from sqlalchemy.ext.asyncio import async_sessionmaker
from sqlalchemy.orm import Session, sessionmaker

from partbox import Event, Outbox
from partbox.errors import PublishError
from partbox.publish import Adapter, integrations, register, values
from partbox.publish.writing import COPY_FROM_EVENTS

EVENT = Event("OrderPlaced", {"id": 42}, headers={"a": "100 %"})
MANY = [Event("T", n) for n in range(COPY_FROM_EVENTS)]


@pytest.fixture
def outbox(dsn: str) -> Outbox:
    return Outbox(dsn)


@pytest.fixture
def restored() -> Iterator[None]:
    yield
    integrations._registered.clear()
    integrations._found_classes.clear()


async def test_an_object_that_holds_no_transaction_is_refused_naming_one_that_does(outbox: Outbox, dsn: str) -> None:
    engine, own = engine_of("psycopg", dsn), async_engine_of("asyncpg", dsn)
    with psycopg.connect(dsn) as app:
        for wrong, remedy in (
            (psycopg_pool.ConnectionPool(dsn, open=False), r"`with pool.connection\(\) as conn:`"),
            (psycopg_pool.NullConnectionPool(dsn, open=False), r"`with pool.connection\(\) as conn:`"),
            (psycopg_pool.AsyncConnectionPool(dsn, open=False), r"`async with pool.connection\(\) as conn:`"),
            (app.cursor(), r"pass its connection, `cursor.connection`"),
            (engine, r"`with engine.begin\(\) as conn:`"),
            (own, r"`async with engine.begin\(\) as conn:`"),
            (sessionmaker(engine), r"`with factory.begin\(\) as session:`"),
            (async_sessionmaker(own), r"`async with factory.begin\(\) as session:`"),
        ):
            with pytest.raises(PublishError, match=rf"has no transaction to publish in: .*{remedy}"):
                outbox.publish(wrong, EVENT)
            with pytest.raises(PublishError, match=rf"has no transaction to publish in: .*{remedy}"):
                await outbox.publish_many_async(wrong, MANY)
    engine.dispose()
    await own.dispose()


async def test_an_object_of_an_unknown_kind_is_refused_naming_the_known_kinds(outbox: Outbox, dsn: str) -> None:
    app = psycopg2.connect(dsn)
    message = r"Django or asyncpg is needed, not a psycopg2.extensions.connection: .* register an adapter"
    with pytest.raises(PublishError, match=message):
        outbox.publish(app, EVENT)
    with pytest.raises(PublishError, match=message):
        await outbox.publish_async(app, EVENT)
    app.close()


def test_outbox_transaction_refuses_a_session_that_reports_its_own_end(outbox: Outbox, dsn: str) -> None:
    engine = engine_of("psycopg", dsn)
    with Session(engine) as session, pytest.raises(PublishError, match=r"takes no Session.* inside a transaction of"):
        outbox.transaction(session).__enter__()  # type: ignore[arg-type]
    engine.dispose()


def test_a_subclass_of_a_connection_is_accepted_as_a_connection(
    outbox: Outbox, dsn: str, conn: psycopg.Connection[Any]
) -> None:
    class Own(psycopg.Connection[Any]):
        pass

    with Own.connect(dsn) as app:
        outbox.publish(app, EVENT)
        outbox.publish_many(app, MANY)
    assert count(conn) == 1 + COPY_FROM_EVENTS


class Psycopg2(Adapter):
    """The least that an adapter needs."""

    remedy = "set autocommit to False"

    def in_transaction(self) -> bool:
        return not self.conn.autocommit

    def execute(self, statement: str, parameters: Any) -> Sequence[tuple[Any, ...]]:
        with self.conn.cursor() as cursor:
            cursor.execute(statement, parameters)
            return cursor.fetchall() if cursor.description else []


@pytest.mark.usefixtures("restored")
def test_a_custom_adapter_needs_only_two_methods(outbox: Outbox, dsn: str, conn: psycopg.Connection[Any]) -> None:
    register(type(psycopg2.connect(dsn)), Psycopg2)
    app = psycopg2.connect(dsn)
    assert outbox.publish(app, EVENT) == EVENT.event_id
    outbox.publish_many(app, [*MANY, Event("T", b"\0", idempotency_key="k", deliver_after=60)])
    app.rollback()
    assert count(conn) == 0
    outbox.publish(app, EVENT)
    outbox.publish_many(app, [*MANY, Event("T", b"\0", idempotency_key="k", deliver_after=60)])
    app.commit()
    outbox.after_commit(lambda events: None)
    with pytest.raises(PublishError, match=r"cannot report .*publish inside `outbox.transaction\(\)`"):
        outbox.publish(app, EVENT)
    app.autocommit = True
    with pytest.raises(PublishError, match=r"no transaction.*: set autocommit to False"):
        Outbox(dsn).publish(app, EVENT)
    app.close()
    assert [each.payload for each in delivered(conn)] == [{"id": 42}, *range(COPY_FROM_EVENTS), b"\0"]
    assert delivered(conn)[0].headers == {"a": "100 %"}


@pytest.mark.usefixtures("restored")
def test_an_adapter_that_reports_only_rollbacks_gets_only_rollback_hooks(outbox: Outbox, dsn: str) -> None:
    calls: list[Any] = []

    class Half(Psycopg2):
        tells = ("rollback",)

        def on_rollback(self, call: Any) -> None:
            calls.append(call)

    app, told = psycopg2.connect(dsn), []
    register(type(app), Half)
    worker = outbox.worker()
    outbox.after_rollback(lambda events: told.append(len(events)))
    outbox.publish_many(app, MANY)
    app.rollback()
    for call in calls:
        call()
    outbox.after_commit(lambda events: None)
    with pytest.raises(PublishError, match="cannot report"):
        outbox.publish(app, EVENT)
    app.close()
    worker.stop()
    assert told == [COPY_FROM_EVENTS]


@pytest.mark.usefixtures("restored")
def test_a_registered_adapter_is_preferred_to_the_built_in_ones(outbox: Outbox, conn: psycopg.Connection[Any]) -> None:
    register(psycopg.Connection, Psycopg2)
    with pytest.raises(PublishError, match="set autocommit to False"):
        outbox.publish_many(conn, MANY)


def test_statements_get_numbered_parameters_and_casts_from_text_where_codecs_could_interfere() -> None:
    text = "select %(a)s, %(b)s::json, %(c)s::uuid[], %(a)s, %(n)s::smallint, '%%'"
    assert values.numbered(text) == (
        "select $1, $2::text::json, $3::text::uuid[], $1, $4::smallint, '%'",
        ("a", "b", "c", "n"),
    )


def test_parameters_are_converted_to_forms_that_every_driver_takes() -> None:
    moment = datetime(2024, 2, 29, tzinfo=UTC)
    given = {
        "id": UUID(int=7),
        "ids": [UUID(int=7)],
        "keys": ['"a,\\', ""],
        "at": moment,
        "n": 1,
        "none": None,
        "bytes": b"\0",
    }
    id = "00000000-0000-0000-0000-000000000007"
    expected = {
        "id": id,
        "ids": f'{{"{id}"}}',
        "keys": r'{"\"a,\\",""}',
        "at": "2024-02-29T00:00:00+00:00",
        "n": 1,
        "none": None,
        "bytes": b"\0",
    }
    assert values.to_plain_parameters(given) == expected


def test_rows_are_written_as_lines_in_pieces_for_copy() -> None:
    assert [*values.render_copy_lines([(1, None, "a\tb\\N\r\n", b"\\\xff"), ("é",)])] == [
        "1\t\\N\ta\\tb\\\\N\\r\\n\t\\\\x5cff\né\n"
    ]
    assert [*values.render_copy_lines([])] == []
    assert [len(piece) for piece in values.render_copy_lines([("x" * 50_000,)] * 5)] == [100_002, 100_002, 50_001]
