"""Transactional handlers that are `async def`: with a connection of psycopg, or a session of SQLAlchemy or SQLModel."""

import asyncio
from typing import Any

import psycopg
import pytest
from effect_table import effects, is_of_fives, lose_connections, publish_fives
from orm import TABLES, Effect, ModelEffect, Tally
from sqlalchemy import event, select, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session
from sqlmodel.ext.asyncio.session import AsyncSession as ModelSession

from partbox import RetryAfter


@pytest.fixture
def desk(desk_with: Any) -> Any:
    desk = desk_with(retry="fixed:3600", max_attempts=5)
    desk.conn.execute(TABLES)
    return desk


INSERT = "insert into effect (key, number) values (%s, %s)"


def values(event: Any) -> list[Any]:
    return [event.aggregate_id, event.payload["number"]]


async def write_raw(event: Any, conn: psycopg.AsyncConnection[Any]) -> None:
    assert isinstance(conn, psycopg.AsyncConnection)
    await conn.execute(
        "insert into tally values (%s, 1) on conflict (key) do update set total = tally.total + 1", [event.aggregate_id]
    )
    await conn.execute(INSERT, values(event))


async def write_orm(event: Any, session: AsyncSession) -> None:
    assert isinstance(session, AsyncSession)
    assert not [*session.new, *session.dirty, *session.identity_map.values()]
    tally = await session.get(Tally, event.aggregate_id) or Tally(key=event.aggregate_id, total=0)
    tally.total += 1
    session.add_all([tally, Effect(key=event.aggregate_id, number=event.payload["number"])])


async def write_model(event: Any, session: ModelSession) -> None:
    assert isinstance(session, ModelSession)
    tally = await session.get(Tally, event.aggregate_id) or Tally(key=event.aggregate_id, total=0)
    tally.total += 1
    session.add_all([tally, ModelEffect(key=event.aggregate_id, number=event.payload["number"])])
    await session.exec(select(ModelEffect))


KINDS = pytest.mark.parametrize(
    ("handle", "transactional"),
    [(write_raw, True), (write_orm, "sqlalchemy"), (write_model, "sqlalchemy")],
    ids=["psycopg", "SQLAlchemy", "SQLModel"],
)


@KINDS
def test_effects_happen_once_and_in_order(desk: Any, handle: Any, transactional: Any) -> None:
    desk.outbox.register(handle, "Counted", transactional=transactional)
    publish_fives(desk, 150)
    with desk.outbox.worker():
        desk.eventually(desk.all_done)
    assert is_of_fives(desk, 150)
    assert dict(desk.conn.execute("select * from tally").fetchall()) == {f"k{key}": 30 for key in range(5)}


@KINDS
async def test_transactional_handlers_run_in_the_loop_of_the_application_that_runs_the_worker(
    desk: Any, handle: Any, transactional: Any
) -> None:
    loops = []

    async def noting(event: Any, given: Any) -> None:
        loops.append(asyncio.get_running_loop())
        await handle(event, given)

    noting.__annotations__["given"] = list(handle.__annotations__.values())[1]
    desk.outbox.register(noting, "Counted", transactional=transactional)
    desk.publish("k", *range(20))
    async with desk.outbox.worker():
        while not desk.all_done():
            await asyncio.sleep(0.01)
    assert effects(desk) == list(range(20))
    assert {*loops} == {asyncio.get_running_loop()}


@KINDS
def test_a_failed_event_leaves_no_effect_and_is_parked_while_the_effects_of_others_are_kept(
    desk: Any, handle: Any, transactional: Any
) -> None:
    refused = {2}

    async def failing(event: Any, given: Any) -> None:
        await handle(event, given)
        if hasattr(given, "flush"):
            await given.flush()
        if event.payload["number"] in refused:
            raise ValueError("no")

    failing.__annotations__["given"] = list(handle.__annotations__.values())[1]
    desk.outbox.register(failing, "Counted", transactional=transactional)
    desk.publish("k", 1, 2, 3)
    desk.publish("other", 4, 5)
    with desk.outbox.worker():
        desk.eventually(lambda: desk.parked() == [(2, "retrying", 1, True), (3, "held", 0, True)])
        desk.eventually(lambda: sorted(effects(desk)) == [1, 4, 5])
        refused.clear()
        desk.make_due()
        desk.eventually(desk.all_done)
    assert effects(desk, "k") == [1, 2, 3]
    assert dict(desk.conn.execute("select * from tally").fetchall()) == {"k": 3, "other": 2}


@KINDS
def test_a_lost_connection_repeats_no_effect(desk: Any, handle: Any, transactional: Any) -> None:
    desk.outbox.register(handle, "Counted", transactional=transactional)
    publish_fives(desk, 150)
    with desk.outbox.worker():
        lose_connections(desk, 4)
    assert is_of_fives(desk, 150)
    assert dict(desk.conn.execute("select * from tally").fetchall()) == {f"k{key}": 30 for key in range(5)}


@KINDS
def test_a_drain_of_the_test_kit_gives_handlers_what_a_worker_gives_them(
    desk: Any, handle: Any, transactional: Any
) -> None:
    desk.outbox.register(handle, "Counted", transactional=transactional)
    desk.publish("k", 1, 2)
    assert desk.drain().states == ["done", "done"]
    desk.publish("k", 3)
    assert desk.drain().states == ["done"]
    assert effects(desk) == [1, 2, 3]


@KINDS
def test_a_handler_over_its_timeout_is_cancelled_and_leaves_nothing(desk: Any, handle: Any, transactional: Any) -> None:
    """In the middle of a statement."""

    async def slow(event: Any, given: Any) -> None:
        await handle(event, given)
        if event.payload["number"] == 2:
            slowly = "select pg_sleep(60)"
            await (given.execute(slowly) if transactional is True else given.scalar(text(slowly)))

    slow.__annotations__["given"] = list(handle.__annotations__.values())[1]
    desk.outbox.register(slow, "Counted", transactional=transactional, timeout=0.3)
    desk.publish("k", 1)
    desk.publish("l", 2)
    desk.publish("m", 3)
    with desk.outbox.worker():
        desk.eventually(lambda: desk.parked() == [(2, "retrying", 1, True)] and sorted(effects(desk)) == [1, 3])
    (error,) = desk.conn.execute("select last_error from partbox.parked").fetchone()
    assert "ran longer than its timeout of 0.3 s" in error


def test_an_event_that_is_not_done_leaves_no_effect(desk: Any) -> None:
    answers = iter([RetryAfter(0.01), None])

    async def handle(event: Any, session: AsyncSession) -> Any:
        await write_orm(event, session)
        await session.flush()
        return next(answers)

    desk.outbox.register(handle, "Counted", transactional="sqlalchemy")
    desk.publish("k", 1)
    with desk.outbox.worker():
        desk.eventually(desk.all_done)
    assert effects(desk) == [1]


async def test_a_drain_in_the_loop_of_a_test_runs_async_handlers_in_that_loop(desk: Any) -> None:
    loops = []

    async def handle(event: Any, session: AsyncSession) -> None:
        loops.append(asyncio.get_running_loop())
        await write_orm(event, session)

    desk.outbox.register(handle, "Counted", transactional="sqlalchemy")
    desk.publish("k", 1, 2)
    assert (await desk.drain_async()).states == ["done", "done"]
    assert loops == [asyncio.get_running_loop()] * 2
    assert effects(desk) == [1, 2]


async def commit(session: AsyncSession) -> None:
    await session.commit()


async def roll_back(session: AsyncSession) -> None:
    await session.rollback()


async def close(session: AsyncSession) -> None:
    await session.close()


async def leave_the_block(session: AsyncSession) -> None:
    async with session:
        pass


async def begin(session: AsyncSession) -> None:
    async with session.begin():
        pass


async def say_rollback(session: AsyncSession) -> None:
    await session.execute(text("rollback"))


async def commit_the_connection(session: AsyncSession) -> None:
    await (await session.connection()).commit()


async def swallow(session: AsyncSession) -> None:
    session.add(Tally(key="there"))
    try:
        await session.flush()
    except IntegrityError:
        return


@pytest.mark.parametrize(
    "way", [commit, roll_back, close, leave_the_block, begin, say_rollback, commit_the_connection, swallow]
)
def test_ending_the_transaction_of_a_session_is_refused_and_charged_to_its_event_alone(desk: Any, way: Any) -> None:
    desk.conn.execute("insert into tally values ('there')")

    async def handle(event: Any, session: AsyncSession) -> None:
        await write_orm(event, session)
        if event.payload["number"] == 2:
            await session.flush()
            await way(session)

    desk.outbox.register(handle, "Counted", transactional="sqlalchemy", max_attempts=1)
    desk.publish("k", 1, 2, 3)
    desk.publish("other", 4, 5)
    with desk.outbox.worker():
        desk.eventually(lambda: desk.parked() == [(2, "dead", 1, False)] and sorted(effects(desk)) == [1, 3, 4, 5])
    (error,) = desk.conn.execute("select last_error from partbox.parked").fetchone()
    if way in (commit, roll_back, close, leave_the_block, begin):
        assert "the session of a transactional handler has no" in error


@pytest.mark.parametrize("way", ["commit", "rollback", "close"])
def test_ending_the_transaction_of_psycopg_is_charged_to_its_event_alone(desk: Any, way: str) -> None:
    async def handle(event: Any, conn: Any) -> None:
        await write_raw(event, conn)
        if event.payload["number"] == 2:
            await getattr(conn, way)()

    desk.outbox.register(handle, "Counted", transactional=True, max_attempts=1)
    desk.publish("k", 1, 2, 3)
    desk.publish("other", 4, 5)
    with desk.outbox.worker():
        desk.eventually(lambda: desk.parked() == [(2, "dead", 1, False)] and sorted(effects(desk)) == [1, 3, 4, 5])


def test_hooks_are_called_after_the_final_commit_and_not_if_it_fails(desk: Any) -> None:
    said: list[tuple[str, int, bool]] = []

    async def handle(happened: Any, session: AsyncSession) -> None:
        number = happened.payload["number"]
        session.add(Effect(key=happened.aggregate_id, number=number, tally="none" if number == 2 else None))

        def tell(what: str) -> Any:
            return lambda session: said.append((what, number, number in effects(desk)))

        event.listen(session.sync_session, "after_commit", tell("after"))
        event.listen(session.sync_session, "after_rollback", tell("rolled back"))
        if number == 3:
            raise ValueError("no")

    desk.outbox.register(handle, "Counted", transactional="sqlalchemy")
    with desk.conn.transaction():
        for key, number in ("k", 1), ("l", 2), ("m", 3):
            desk.publish(key, number)
    with desk.outbox.worker():
        desk.eventually(lambda: desk.states() == {2: "retrying", 3: "retrying"} and ("after", 1, True) in said)
    assert [each for each in said if each[0] == "after"] == [("after", 1, True)]
    assert {number for what, number, _ in said if what == "rolled back"} >= {2, 3}


def test_a_hook_that_fails_is_logged_and_keeps_no_other_from_being_called(desk: Any, caplog: Any) -> None:
    """They are called one after the other in one call of the loop."""
    said: list[int] = []

    async def handle(happened: Any, session: AsyncSession) -> None:
        number = happened.payload["number"]

        def hook(_: Any) -> None:
            said.append(number)
            if number == 1:
                raise ValueError("no")

        event.listen(session.sync_session, "after_commit", hook)

    desk.outbox.register(handle, "Counted", transactional="sqlalchemy")
    with desk.conn.transaction():
        for key, number in ("k", 1), ("l", 2), ("m", 3):
            desk.publish(key, number)
    with desk.outbox.worker():
        desk.eventually(lambda: len(said) == 3 and desk.all_done())
    told = [each for each in caplog.records if getattr(each, "event", "") == "partbox.transaction_hook_failed"]
    assert sorted(said) == [1, 2, 3]
    assert ["ValueError: no" in each.getMessage() for each in told] == [True]


def test_events_that_a_handler_publishes_commit_or_roll_back_with_its_event(desk: Any) -> None:
    ran: list[int] = []

    async def handle(event: Any, session: AsyncSession) -> None:
        await desk.outbox.publish_async(
            session, "Echo", event.payload, aggregate_type="Key", aggregate_id=event.aggregate_id
        )
        ran.append(event.payload["number"])
        if event.payload["number"] == 3 and ran.count(3) == 1:
            raise ValueError("no")

    desk.outbox.register(handle, "Counted", transactional="sqlalchemy", retry="fixed:0.01")
    desk.outbox.register(desk.note, "Echo")
    desk.publish("k", *range(6))
    with desk.outbox.worker():
        desk.eventually(lambda: len(desk.numbers()) == 6 and desk.all_done())
    assert desk.numbers() == list(range(6))
    assert ran.count(3) == 2


def test_a_scoped_session_is_the_session_of_the_event(desk: Any) -> None:
    async def handle(event: Any, sessions: async_scoped_session[AsyncSession]) -> None:
        assert isinstance(sessions, async_scoped_session)
        sessions.add(Effect(key=event.aggregate_id, number=event.payload["number"]))
        assert (await sessions.scalars(select(Effect.number))).all()[-1] == event.payload["number"]

    desk.outbox.register(handle, "Counted", transactional="sqlalchemy")
    desk.publish("k", 1, 2)
    with desk.outbox.worker():
        desk.eventually(desk.all_done)
    assert effects(desk) == [1, 2]


def test_a_stop_cancels_running_handlers_and_charges_no_event(desk_with: Any) -> None:
    desk = desk_with(drain_timeout=0.1)
    desk.conn.execute(TABLES)
    inside: list[int] = []

    async def handle(event: Any, conn: Any) -> None:
        inside.append(event.attempt)
        await write_raw(event, conn)
        if len(inside) == 1:
            await asyncio.sleep(3600)

    desk.outbox.register(handle, "Counted", transactional=True)
    desk.publish("k", 1)
    with desk.outbox.worker():
        desk.eventually(lambda: inside)
    assert effects(desk) == []
    with desk.outbox.worker():
        desk.eventually(desk.all_done)
    assert inside == [1, 1]
    assert effects(desk) == [1]


def test_handlers_of_several_kinds_take_turns_in_one_partition_each_in_its_own_transactions(desk: Any) -> None:
    desk.conn.execute("alter table effect add xid xid8 default pg_current_xact_id()")

    def sync(event: Any, conn: Any) -> None:
        conn.execute("insert into effect (key, number, tally) values (%s, %s, null)", values(event))

    desk.outbox.register(write_raw, "Counted", transactional=True)
    desk.outbox.register(write_orm, "Orm", transactional="sqlalchemy")
    desk.outbox.register(sync, "Sync", transactional=True)
    with desk.conn.transaction():
        for number in range(0, 30, 3):
            for at, kind in enumerate(("Counted", "Orm", "Sync")):
                desk.publish("k", number + at, event_type=kind)
    with desk.outbox.worker():
        desk.eventually(desk.all_done)
    assert effects(desk) == list(range(30))
    assert desk.conn.execute("select count(distinct xid) from effect").fetchone() == (30,)
