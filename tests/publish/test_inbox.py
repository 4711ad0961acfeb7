"""The inbox: a consumer's effect happens once, however often its event comes."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg.rows import dict_row, scalar_row
from reading import delivered
from roles import cast_of

from partbox import Event, Outbox, inbox
from partbox.db.schema.migrate import migrate_inbox
from partbox.errors import PartboxError, PublishError, SchemaError

EVENT = UUID("0190d3a8-5b2c-7a57-8d5e-0a4a3a3a3a3a")


@pytest.fixture
def app(dsn):
    """An application's connection, without autocommit."""
    with psycopg.connect(dsn) as app:
        yield app


def seen(conn) -> list[tuple[str, UUID]]:
    return conn.execute("select consumer, event_id from partbox.inbox order by 1, 2").fetchall()


def test_an_event_is_new_once_for_each_consumer(app, conn):
    assert inbox.first_time(app, EVENT, "billing") is True
    assert inbox.first_time(app, EVENT, "billing") is False
    assert inbox.first_time(app, EVENT, "mail") is True
    assert inbox.first_time(app, uuid4(), "mail") is True
    app.commit()
    assert inbox.first_time(app, EVENT, "billing") is False
    assert (len(seen(conn)), seen(conn)[0]) == (3, ("billing", EVENT))


def test_an_event_is_named_by_itself_or_its_id_in_any_form(app, conn):
    event = Event("OrderPlaced", 1, event_id=EVENT)
    Outbox(conn.info.dsn).publish(app, event)
    app.commit()
    (handed,) = delivered(conn)
    assert inbox.first_time(app, handed, "billing") is True
    for same in (event, EVENT, str(EVENT), str(EVENT).upper(), EVENT.hex):
        assert inbox.first_time(app, same, "billing") is False


def test_an_event_is_new_again_after_a_rollback(app, conn):
    assert inbox.first_time(app, EVENT, "billing")
    app.rollback()
    with app.transaction():
        with app.transaction(force_rollback=True):
            assert inbox.first_time(app, EVENT, "billing")
        assert inbox.first_time(app, EVENT, "billing")
    assert seen(conn) == [("billing", EVENT)]


@pytest.mark.parametrize(("commits", "answer"), [(True, False), (False, True)])
def test_a_concurrent_call_for_the_same_event_waits_until_the_first_transaction_ends(dsn, app, conn, commits, answer):
    assert inbox.first_time(app, EVENT, "billing")
    started = threading.Event()

    def second() -> bool:
        with psycopg.connect(dsn) as other:
            started.set()
            return inbox.first_time(other, EVENT, "billing")

    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(second)
        started.wait(10)
        app.commit() if commits else app.rollback()
        assert asked.result(120) is answer
    assert seen(conn) == [("billing", EVENT)]


def test_using_the_inbox_outside_a_transaction_is_refused_as_publishing_is(conn, app):
    with pytest.raises(PublishError, match=r"no transaction: open one with `with conn.transaction\(\):`"):
        inbox.first_time(conn, EVENT, "billing")
    with pytest.raises(psycopg.errors.DivisionByZero):
        app.execute("select 1 / 0")
    with pytest.raises(PublishError, match="the transaction has failed: roll back"):
        inbox.first_time(app, EVENT, "billing")
    with pytest.raises(PublishError, match=r"session of psycopg, .* is needed, not a builtins.str"):
        inbox.first_time("dsn", EVENT, "billing")
    assert seen(conn) == []


@pytest.mark.parametrize("event", ["", "42", 42, None, b"x" * 16, f"{EVENT}0", object()])
def test_an_argument_that_is_no_event_is_refused(app, conn, event):
    with pytest.raises(PartboxError, match="neither an event nor an event id: give the event or its UUID"):
        inbox.first_time(app, event, "billing")
    assert app.info.transaction_status == psycopg.pq.TransactionStatus.IDLE


@pytest.mark.parametrize("consumer", ["", "x" * 256, "a\0b", "\ud800", 7, None])
def test_an_invalid_name_of_a_consumer_is_refused(app, consumer):
    with pytest.raises(PartboxError, match="named by 1 to 255 characters"):
        inbox.first_time(app, EVENT, consumer)
    assert inbox.first_time(app, EVENT, "ü" * 255)


async def test_first_time_async_does_the_same(dsn, conn, app):
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as own:
        async with own.transaction():
            assert await inbox.first_time_async(own, EVENT, "billing") is True
            assert await inbox.first_time_async(own, str(EVENT), "billing") is False
        with pytest.raises(PublishError, match="no transaction"):
            await inbox.first_time_async(own, EVENT, "billing")
        with pytest.raises(PublishError, match="is asynchronous: await first_time_async"):
            inbox.first_time(own, EVENT, "billing")
        with pytest.raises(PublishError, match="is synchronous: call first_time"):
            await inbox.first_time_async(app, EVENT, "billing")
    assert seen(conn) == [("billing", EVENT)]


@pytest.mark.parametrize("row_factory", [dict_row, scalar_row])
@pytest.mark.parametrize("cursor_factory", [psycopg.ClientCursor, psycopg.RawCursor])
@pytest.mark.parametrize("pipeline", [True, False])
def test_any_setting_of_the_connection_works(dsn, row_factory: Any, cursor_factory, pipeline):
    factories = {"row_factory": row_factory, "cursor_factory": cursor_factory}
    with (
        psycopg.connect(dsn, autocommit=True, **factories) as own,
        own.transaction(),
        own.pipeline() if pipeline else nullcontext(),
    ):
        assert [inbox.first_time(own, EVENT, "billing") for _ in range(7)] == [True] + [False] * 6


@pytest.mark.every_version("privileges, and what EXPLAIN says of an INSERT")
def test_a_consumer_that_may_only_insert_gets_the_right_answers_too(dsn, conn):
    with cast_of(dsn) as cast:
        conn.execute(
            f"grant usage on schema partbox to {cast.stranger}; grant insert on partbox.inbox to {cast.stranger}"
        )
        conn.execute(
            "create function drops() returns trigger language plpgsql as 'begin return null; end';"
            "create trigger drops before insert on partbox.inbox for each row execute function drops()"
        )
        with psycopg.connect(cast.of("stranger")) as own:
            with pytest.raises(PartboxError, match=r"a trigger keeps rows out of table partbox\.inbox"):
                inbox.first_time(own, EVENT, "billing")
            own.rollback()
            conn.execute("drop trigger drops on partbox.inbox")
            assert [inbox.first_time(own, EVENT, "billing") for _ in range(2)] == [True, False]


def test_an_outbox_has_the_inbox_of_its_schema(dsn, app):
    migrate_inbox(dsn, "elsewhere")
    own = Outbox(dsn, schema="elsewhere").inbox
    assert [own.first_time(app, EVENT, "billing") for _ in range(2)] == [True, False]
    assert inbox.first_time(app, EVENT, "billing")
    assert not inbox.first_time(app, EVENT, "billing", schema="elsewhere")


async def test_an_outbox_has_the_asynchronous_call_of_its_inbox_too(dsn):
    async with await psycopg.AsyncConnection.connect(dsn) as own:
        assert await Outbox(dsn).inbox.first_time_async(own, EVENT, "billing")


def test_a_missing_inbox_names_the_remedy(empty_dsn):
    with psycopg.connect(empty_dsn) as own, pytest.raises(SchemaError, match=r"run `partbox init`, or .*--inbox-only"):
        inbox.first_time(own, EVENT, "billing")
