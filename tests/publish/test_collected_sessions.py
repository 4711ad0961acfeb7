"""Every kind of session publishes the events of its entities, whatever becomes of its savepoints."""

from functools import partial
from typing import Any

import asyncpg
import psycopg
import pytest
from collected import Order, engine, outbox, published, sessions
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from partbox import Event, Outbox
from partbox.errors import RegistrationError
from partbox.sqlalchemy import collect

__all__ = ["engine", "outbox", "published", "sessions"]


KINDS = {
    "sessionmaker": lambda engine, outbox: collect(sessionmaker(engine), outbox)(),
    "scoped_session": lambda engine, outbox: collect(scoped_session(sessionmaker(engine)), outbox)(),
    "session": lambda engine, outbox: collect(Session(engine), outbox),
    "class": lambda engine, outbox: collect(type("Own", (Session,), {}), outbox)(engine),
}


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_session_is_collected_once_however_often_it_is_asked_for(kind, engine, outbox, published):
    session = KINDS[kind](engine, outbox)
    collect(session, outbox)
    session.add(order := Order())
    order.tell("A")
    session.commit()
    session.close()
    with Session(engine) as other:  # of no such kind
        other.add(order := Order())
        order.tell("B")
        other.commit()
    assert published() == ["A"]


@pytest.mark.parametrize("given", ["engine", "an outbox", "twice"])
def test_collecting_from_something_unsuitable_is_refused_with_the_remedy(engine, outbox, dsn, given):
    if given == "engine":
        with pytest.raises(RegistrationError, match="makes no SQLAlchemy sessions: give a sessionmaker"):
            collect(engine, outbox)
    elif given == "an outbox":
        with pytest.raises(RegistrationError, match=r"is not an Outbox: write collect\(sessions, outbox\)"):
            collect(sessionmaker(engine), "outbox")  # type: ignore[arg-type]
    else:
        maker = collect(sessionmaker(engine), outbox)
        with pytest.raises(RegistrationError, match="go to another outbox"):
            collect(maker, Outbox(dsn))


ASYNC_KINDS = {
    "async_sessionmaker": lambda engine, outbox: collect(async_sessionmaker(engine), outbox)(),
    "async_scoped_session": lambda engine, outbox: collect(
        async_scoped_session(async_sessionmaker(engine), scopefunc=lambda: 1), outbox
    )(),
    "session": lambda engine, outbox: collect(AsyncSession(engine), outbox),
    "class": lambda engine, outbox: collect(type("Own", (AsyncSession,), {}), outbox)(engine),
}


async def connected(driver: str, dsn: str) -> Any:
    if driver == "psycopg":
        return await psycopg.AsyncConnection.connect(dsn)
    given = conninfo_to_dict(dsn)
    return await asyncpg.connect(**{name: given[name] for name in ("host", "port", "user")}, database=given["dbname"])


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
@pytest.mark.parametrize("hook", ["sync", "async"])
@pytest.mark.parametrize("kind", ASYNC_KINDS)
async def test_events_of_asynchronous_sessions_are_collected_too(kind, hook, driver, engine, outbox, published, dsn):
    ends = []

    async def heard(events: list[Event]) -> None:
        ends.append([each.event_type for each in events])

    outbox.after_commit(heard if hook == "async" else lambda events: ends.append([each.event_type for each in events]))
    asynchronous = create_async_engine(f"postgresql+{driver}://", async_creator=partial(connected, driver, dsn))
    async with ASYNC_KINDS[kind](asynchronous, outbox) as session:
        session.add(order := Order())
        order.tell("A")
        savepoint = await session.begin_nested()
        order.tell("undone")
        await savepoint.rollback()
        async with session.begin_nested():
            order.tell("B")
        await session.commit()
        assert published() == ["A", "B"]
        order.events.append(Event("C", None))
        await session.rollback()
    async with AsyncSession(asynchronous) as other:
        other.add(order := Order())
        order.tell("D")
        await other.commit()
    await asynchronous.dispose()
    assert published() == ["A", "B"]
    assert ends == [["A", "B"]]


STEPS = st.lists(
    st.sampled_from(["new", "known", "begin", "release", "undo", "flush", "commit", "rollback"]), max_size=14
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_exactly_the_committed_events_are_published_whatever_savepoints_and_rollbacks_there_are(
    sessions, published, steps
):
    before = len(published())
    expected: list[str] = []
    stack: list[list[str]] = [[]]
    with sessions() as session:
        session.add(known := Order())
        session.commit()
        savepoints: list[Any] = []
        for number, step in enumerate([*steps, "commit"]):
            name = f"E{number}"
            if step == "new":
                session.add(order := Order())
                order.tell(name)
                stack[-1].append(name)
            elif step == "known":
                known.tell(name)
                stack[-1].append(name)
            elif step == "flush":
                session.flush()
            elif step == "begin":
                savepoints.append(session.begin_nested())
                stack.append([])
            elif step in ("release", "undo") and savepoints:
                savepoint, top = savepoints.pop(), stack.pop()
                if step == "release":
                    savepoint.commit()
                    stack[-1] += top
                else:
                    savepoint.rollback()
            elif step == "commit":
                session.commit()
                expected += [each for level in stack for each in level]
                stack, savepoints = [[]], []
            elif step == "rollback":
                session.rollback()
                stack, savepoints = [[]], []
    assert published()[before:] == expected
