"""Transactional handlers: effect and cursor commit together. In a worker of this process on a real database."""

import inspect

import psycopg
import pytest
from effect_table import effects, is_of_fives, lose_connections, publish_fives
from orm import Effect
from sqlalchemy import insert, text

from partbox import RetryAfter
from partbox.db.sql import load_query

pytestmark = pytest.mark.every_version("transactions, savepoints, lost connections")

LATER = 3_600.0


@pytest.fixture
def desk(desk_with):
    desk = desk_with(retry=f"fixed:{LATER:g}", max_attempts=5)
    desk.conn.execute("create table effect (number int, key text, id bigint generated always as identity)")
    return desk


def write(event, conn):
    conn.execute("insert into effect (number, key) values (%s, %s)", [event.payload["number"], event.aggregate_id])


def test_effects_happen_once_and_in_order(desk):
    desk.outbox.register(write, "Counted", transactional=True)
    for key in range(7):
        desk.publish(f"k{key}", *range(key, 210, 7))
    with desk.outbox.worker():
        desk.eventually(desk.all_done)
    assert sorted(effects(desk)) == list(range(210))
    for key in range(7):
        assert effects(desk, f"k{key}") == list(range(key, 210, 7))


def test_a_failed_event_leaves_no_effect_and_is_parked_while_the_effects_of_others_are_kept(desk):
    refused = {2}

    def handle(event, conn):
        write(event, conn)
        if event.payload["number"] in refused:
            raise ValueError("no")

    desk.outbox.register(handle, "Counted", transactional=True)
    desk.publish("k", 1, 2, 3)
    desk.publish("other", 4)
    with desk.outbox.worker():
        desk.eventually(lambda: desk.parked() == [(2, "retrying", 1, True), (3, "held", 0, True)])
        desk.eventually(lambda: sorted(effects(desk)) == [1, 4])
        refused.clear()
        desk.make_due()
        desk.eventually(desk.all_done)
    assert effects(desk, "k") == [1, 2, 3]


def test_an_event_that_is_not_done_leaves_no_effect(desk):
    answers = iter([RetryAfter(0.01), None])

    def handle(event, conn):
        write(event, conn)
        return next(answers)

    desk.outbox.register(handle, "Counted", transactional=True)
    desk.publish("k", 1)
    with desk.outbox.worker():
        desk.eventually(desk.all_done)
    assert effects(desk) == [1]


def test_plain_handlers_of_the_same_aggregate_take_turns_with_a_transactional_one(desk):
    def other(event):
        write(event, desk.conn)

    desk.outbox.register(write, "Counted", transactional=True)
    desk.outbox.register(other, "Other")
    for number in range(0, 40, 2):
        desk.publish("k", number)
        desk.publish("k", number + 1, event_type="Other")
    with desk.outbox.worker(concurrency=1):
        desk.eventually(desk.all_done)
    assert effects(desk, "k") == list(range(40))


def test_late_commits_have_their_effect_once(desk, dsn):
    desk.outbox.register(write, "Counted", transactional=True)
    late = psycopg.connect(dsn)
    with desk.outbox.worker():
        for number in range(0, 100, 10):
            with late.transaction():
                desk.outbox.publish(late, "Counted", {"number": number}, aggregate_type="Key", aggregate_id="late")
                desk.publish("k", *range(number + 1, number + 10))
                desk.eventually(lambda number=number: number + 9 in effects(desk, "k"))
        desk.eventually(desk.all_done)
    late.close()
    assert effects(desk, "late") == list(range(0, 100, 10))
    assert effects(desk, "k") == [number for number in range(100) if number % 10]


def test_an_error_at_the_commit_is_the_error_of_the_event_that_causes_it(desk):
    desk.conn.execute("create table parent (id int primary key)")
    desk.conn.execute("create table child (id int references parent deferrable initially deferred)")

    def handle(event, conn):
        write(event, conn)
        if event.payload["number"] == 5:
            conn.execute("insert into child values (5)")

    desk.outbox.register(handle, "Counted", transactional=True)
    desk.publish("k", *range(10))
    desk.publish("other", *range(10, 20))
    with desk.outbox.worker():
        desk.eventually(lambda: dict(desk.states()).get(5) == "retrying")
        desk.eventually(lambda: len(effects(desk)) == 15)
        desk.conn.execute("insert into parent values (5)")
        desk.make_due()
        desk.eventually(desk.all_done)
    assert effects(desk, "k") == list(range(10))
    assert effects(desk, "other") == list(range(10, 20))
    (error,) = desk.conn.execute("select count(*) from child").fetchone()
    assert error == 1


def test_a_lost_connection_repeats_no_effect(desk):
    desk.outbox.register(write, "Counted", transactional=True)
    publish_fives(desk, 200)
    with desk.outbox.worker():
        lose_connections(desk, 5)
    assert is_of_fives(desk, 200)


def test_events_that_a_handler_publishes_are_published_once(desk):
    def handle(event, conn):
        desk.outbox.publish(conn, "Echo", event.payload, aggregate_type="Key", aggregate_id=event.aggregate_id)

    desk.outbox.register(handle, "Counted", transactional=True)
    desk.outbox.register(desk.note, "Echo")
    desk.publish("k", *range(20))
    with desk.outbox.worker():
        desk.eventually(lambda: len(desk.numbers()) == 20 and desk.all_done())
    assert desk.numbers() == list(range(20))


async def write_async(event, conn):
    await conn.execute("insert into effect (number, key) values (%s, %s)", [event.payload["number"], "k"])


def write_by_orm(event, session):
    session.execute(insert(Effect).values(number=event.payload["number"], key="k"))


async def write_by_orm_async(event, session):
    await session.execute(insert(Effect).values(number=event.payload["number"], key="k"))


PREPARED = {
    "psycopg": (write, True, lambda conn, sql: conn.execute(sql).fetchall()),
    "async psycopg": (write_async, True, lambda conn, sql: conn.execute(sql)),
    "SQLAlchemy": (write_by_orm, "sqlalchemy", lambda session, sql: session.execute(text(sql)).all()),
    "async SQLAlchemy": (write_by_orm_async, "sqlalchemy", lambda session, sql: session.execute(text(sql))),
}


@pytest.mark.parametrize("pooler", [False, True])
@pytest.mark.parametrize("kind", PREPARED)
def test_statements_that_handlers_repeat_are_prepared_except_behind_a_pooler(desk_with, kind, pooler):
    """As psycopg does by default, and SQLAlchemy over it."""
    desk = desk_with(pooler=pooler)
    desk.conn.execute("create table effect (number int, key text, id bigint generated always as identity)")
    handle, transactional, ask = PREPARED[kind]
    seen = []

    def sync(event, given):
        handle(event, given)
        seen.append([name for (name,) in ask(given, "select statement from pg_prepared_statements")])

    async def awaited(event, given):
        await handle(event, given)
        found = await ask(given, "select statement from pg_prepared_statements")
        rows = found.fetchall()
        seen.append([name for (name,) in (await rows if inspect.isawaitable(rows) else rows)])

    handler = awaited if inspect.iscoroutinefunction(handle) else sync
    desk.outbox.register(handler, "Counted", transactional=transactional)
    desk.publish("k", *range(8))
    with desk.outbox.worker():
        desk.eventually(desk.all_done)
    assert seen[0] == []
    assert any(statement.lower().startswith("insert into effect") for statement in seen[-1]) is not pooler
    save = load_query("save", "partbox").decode().partition("\n")[0]
    assert not any(save in statement for statement in seen[-1])


@pytest.mark.parametrize("kind", ["psycopg", "SQLAlchemy"])
def test_a_statement_whose_table_has_changed_since_it_was_prepared_fails_once(desk_with, kind):
    desk = desk_with(retry="fixed:0.01", max_attempts=2)
    desk.conn.execute("create table effect (number int, key text, id bigint generated always as identity)")
    handle, transactional, ask = PREPARED[kind]
    attempts = []

    def asking(event, given):
        attempts.append(event.attempt)
        ask(given, "select * from effect")
        handle(event, given)

    desk.outbox.register(asking, "Counted", transactional=transactional)
    desk.publish("k", *range(8))
    with desk.outbox.worker():
        desk.eventually(desk.all_done)
        desk.conn.execute("alter table effect add more int")
        desk.publish("k", 8, 9)
        desk.eventually(desk.all_done)
    assert effects(desk) == list(range(10))
    assert attempts == [1] * 9 + [2, 1]
