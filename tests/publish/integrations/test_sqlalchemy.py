"""SQLAlchemy's own traps: what its events and states say that is not so."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from kits import async_engine_of, engine_of
from reading import count, delivered
from sqlalchemy import Engine, create_engine, event, text
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from waiting import eventually

from partbox import Event, Outbox
from partbox.errors import PublishError
from partbox.publish.integrations import sqlalchemy_end
from partbox.publish.writing import COPY_FROM_EVENTS

EVENT = Event("OrderPlaced", {"id": 42})
MANY = [Event("T", n) for n in range(COPY_FROM_EVENTS)]
DRIVERS = ["psycopg", "psycopg2"]
ASYNC_DRIVERS = ["psycopg_async", "asyncpg"]


@pytest.fixture
def ends() -> list[tuple[str, list[Any]]]:
    return []


@pytest.fixture
def outbox(dsn: str, ends: list[tuple[str, list[Any]]]) -> Iterator[Outbox]:
    outbox = Outbox(dsn)
    outbox.after_commit(lambda events: ends.append(("commit", [event.payload for event in events])))
    outbox.after_rollback(lambda events: ends.append(("rollback", [event.payload for event in events])))
    yield outbox
    assert not sqlalchemy_end._open_ends  # whoever waited for an end has been told


@pytest.fixture(params=DRIVERS)
def engine(request: pytest.FixtureRequest, dsn: str) -> Iterator[Engine]:
    engine = engine_of(request.param, dsn)
    yield engine
    engine.dispose()


@pytest.mark.parametrize("mode", ["create_savepoint", "conditional_savepoint", "rollback_only", "control_fully"])
@pytest.mark.parametrize("nested", [False, True])
def test_a_session_that_joined_a_transaction_reports_how_the_whole_transaction_ended(
    outbox: Outbox, engine: Engine, conn: psycopg.Connection[Any], ends: Any, mode: Any, nested: bool
) -> None:
    with engine.connect() as outer, outer.begin():
        if nested:
            outer.begin_nested()
        with Session(outer, join_transaction_mode=mode) as session:
            outbox.publish(session, EVENT)
            session.commit()
        assert ends == [("commit", [{"id": 42}])] * (mode == "control_fully" and not nested)
        if not outer.closed and outer.in_transaction():
            outer.get_transaction().rollback()  # type: ignore[union-attr]
    assert ends == [("commit" if count(conn) else "rollback", [{"id": 42}])]


def test_a_transaction_that_a_session_joined_is_reported_when_it_commits(
    outbox: Outbox, engine: Engine, conn: psycopg.Connection[Any], ends: Any
) -> None:
    with engine.connect() as outer:
        with outer.begin():
            with Session(outer, join_transaction_mode="create_savepoint") as session:
                outbox.publish(session, "T", "kept")
                session.commit()
                outbox.publish(session, "T", "taken back")
                session.rollback()
            assert ends == []
        assert ends == [("commit", ["kept"]), ("rollback", ["taken back"])]
    assert count(conn) == 1


def test_a_savepoint_in_plain_sql_is_respected_too(outbox: Outbox, engine: Engine, ends: Any) -> None:
    with Session(engine) as session:
        session.execute(text("savepoint before"))
        outbox.publish(session, EVENT)
        session.execute(text("rollback to before"))
        outbox.publish(session, "T", "kept")
        session.commit()
    assert ends == [("rollback", [{"id": 42}]), ("commit", ["kept"])]


def test_commit_as_you_go_is_reported_at_each_commit(
    outbox: Outbox, engine: Engine, conn: psycopg.Connection[Any], ends: Any
) -> None:
    for open_ in (Session, Engine.connect):
        with open_(engine) as given:
            for n in range(2):
                outbox.publish(given, "T", n)
                assert given.in_transaction()
                given.commit()
            outbox.publish(given, "T", "rolled back")
            given.rollback()
            outbox.publish_many(given, [Event("T", "left"), *MANY])
        payloads = ["left", *range(COPY_FROM_EVENTS)]
        assert ends == [("commit", [0]), ("commit", [1]), ("rollback", ["rolled back"]), ("rollback", payloads)]
        ends.clear()
    assert count(conn) == 4


def test_a_session_commits_its_own_rows_with_the_event(
    outbox: Outbox, engine: Engine, conn: psycopg.Connection[Any]
) -> None:
    class Base(DeclarativeBase): ...

    class Order(Base):
        __tablename__ = "orders"
        id: Mapped[int] = mapped_column(primary_key=True)

    Base.metadata.create_all(engine)
    with Session(engine) as session:
        order = Order()
        session.add(order)
        session.flush()
        outbox.publish(session, "OrderPlaced", None, aggregate_id=order.id)
        session.commit()
        session.add(Order())
        outbox.publish(session, "OrderPlaced", None, aggregate_id=2)
        session.rollback()
    assert [each.aggregate_id for each in delivered(conn)] == ["1"]
    assert conn.execute("select id from orders").fetchall() == [(1,)]


def test_statements_go_through_sqlalchemy_where_its_listeners_see_them(outbox: Outbox, engine: Engine) -> None:
    seen: list[str] = []
    event.listen(engine, "before_cursor_execute", lambda *args: seen.append(args[2]))
    with engine.begin() as given:
        outbox.publish(given, EVENT)
    assert any('insert into "partbox".record' in statement for statement in seen)


def test_autocommit_of_one_connection_is_refused_as_that_of_an_engine(
    outbox: Outbox, engine: Engine, conn: psycopg.Connection[Any]
) -> None:
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as given, given.begin():
        assert given.in_transaction()  # says SQLAlchemy
        with pytest.raises(PublishError, match=r"there is no transaction.* the isolation level is AUTOCOMMIT"):
            outbox.publish(given, EVENT)
    with Session(engine) as session:
        session.connection(execution_options={"isolation_level": "AUTOCOMMIT"})
        with pytest.raises(PublishError, match="the isolation level is AUTOCOMMIT"):
            outbox.publish_many(session, MANY)
    assert count(conn) == 0


def test_a_hook_cannot_write_into_the_transaction_that_has_ended(
    dsn: str, engine: Engine, conn: psycopg.Connection[Any], caplog: pytest.LogCaptureFixture
) -> None:
    outbox, plain = Outbox(dsn), Outbox(dsn)
    with engine.connect() as given:
        outbox.after_commit(lambda events: plain.publish(given, "T", "too late") and None)
        with given.begin():
            outbox.publish(given, EVENT)
    assert "the transaction has ended, and its hooks are being called" in caplog.text
    assert count(conn) == 1


def test_a_two_phase_transaction_takes_events_without_hooks_and_refuses_them_with_hooks(
    dsn: str, outbox: Outbox, engine: Engine, ends: Any
) -> None:
    with engine.connect() as given, given.begin_twophase() as two:
        with pytest.raises(PublishError, match="cannot report how its transaction ends: it uses two-phase commit"):
            outbox.publish(given, EVENT)
        Outbox(dsn).publish(given, EVENT)
        two.rollback()
    assert ends == []


def _terminate(conn: psycopg.Connection[Any], pid: int) -> None:
    conn.execute("select pg_terminate_backend(%s)", [pid])
    eventually(lambda: conn.execute("select from pg_stat_activity where pid = %s", [pid]).fetchone() is None)


def test_a_lost_connection_is_reported_as_a_rollback(
    outbox: Outbox, engine: Engine, conn: psycopg.Connection[Any], ends: Any
) -> None:
    with Session(engine) as session:
        outbox.publish(session, EVENT)
        _terminate(conn, session.scalar(text("select pg_backend_pid()")))
        with pytest.raises(Exception, match="connection"):
            session.commit()
    assert (ends, count(conn)) == ([("rollback", [{"id": 42}])], 0)


def test_after_a_lost_connection_nothing_is_published_until_a_rollback(
    outbox: Outbox, engine: Engine, conn: psycopg.Connection[Any]
) -> None:
    with engine.connect() as given:
        outbox.publish(given, EVENT)
        _terminate(conn, given.scalar(text("select pg_backend_pid()")))
        with pytest.raises(Exception, match="connection"):
            given.execute(text("select 1"))
        with pytest.raises(PublishError, match="the transaction has failed: roll back"):
            outbox.publish(given, EVENT)
        given.rollback()
        outbox.publish(given, EVENT)
        given.commit()
    assert count(conn) == 1


@pytest.mark.parametrize("driver", ASYNC_DRIVERS)
async def test_a_lost_connection_is_reported_to_asynchronous_hooks_too(
    dsn: str, conn: psycopg.Connection[Any], driver: str
) -> None:
    outbox, told = Outbox(dsn), []

    @outbox.after_rollback
    async def tell(events: list[Event]) -> None:
        told.append(len(events))

    engine = async_engine_of(driver, dsn)
    async with AsyncSession(engine) as session:
        await outbox.publish_async(session, EVENT)
        _terminate(conn, await session.scalar(text("select pg_backend_pid()")))
        with pytest.raises(Exception, match="connection"):
            await session.commit()
    await engine.dispose()
    assert told == [1]


@pytest.mark.parametrize("driver", ASYNC_DRIVERS)
async def test_a_synchronous_session_in_run_sync_is_published_on(
    outbox: Outbox, dsn: str, conn: psycopg.Connection[Any], ends: Any, driver: str
) -> None:
    def work(session: Session) -> None:
        outbox.publish(session, EVENT)
        outbox.publish_many(session, MANY)

    engine = async_engine_of(driver, dsn)
    async with AsyncSession(engine) as session:
        await session.run_sync(work)
        await session.commit()
    await engine.dispose()
    assert ends == [("commit", [{"id": 42}]), ("commit", [*range(COPY_FROM_EVENTS)])]
    assert count(conn) == 1 + COPY_FROM_EVENTS


@pytest.mark.parametrize("driver", ASYNC_DRIVERS)
async def test_an_event_published_before_any_other_statement_shares_the_fate_of_the_rest(
    dsn: str, conn: psycopg.Connection[Any], driver: str
) -> None:
    """With asyncpg SQLAlchemy sends BEGIN before its first statement: a raw write before it would be committed."""
    outbox, engine = Outbox(dsn), async_engine_of(driver, dsn)
    for publish in (outbox.publish_async, outbox.publish_many_async):
        async with engine.connect() as given:
            await publish(given, EVENT if publish == outbox.publish_async else MANY)  # type: ignore[operator]
            assert given.in_transaction()
            await given.rollback()
            await publish(given, EVENT if publish == outbox.publish_async else MANY)  # type: ignore[operator]
    await engine.dispose()
    assert count(conn) == 0


def test_an_error_says_why_a_session_or_connection_cannot_be_published_on(outbox: Outbox, engine: Engine) -> None:
    with Session(engine, autobegin=False) as closed, pytest.raises(PublishError, match="Autobegin is disabled"):
        outbox.publish(closed, EVENT)
    with Session() as unbound, pytest.raises(PublishError, match=r"session.connection\(bind_arguments="):
        outbox.publish(unbound, EVENT)
    given = engine.connect()
    given.close()
    with pytest.raises(PublishError, match="the connection is closed: take another"):
        outbox.publish(given, EVENT)
    lite = create_engine("sqlite://")
    with lite.connect() as elsewhere, pytest.raises(PublishError, match="this database is sqlite: publish on a"):
        outbox.publish(elsewhere, EVENT)
    lite.dispose()


def test_a_session_whose_flush_failed_is_refused_as_failed(outbox: Outbox, engine: Engine) -> None:
    class Base(DeclarativeBase): ...

    class Nowhere(Base):
        __tablename__ = "nowhere"
        id: Mapped[int] = mapped_column(primary_key=True)

    with Session(engine) as session:
        session.add(Nowhere())
        with pytest.raises(Exception, match="nowhere"):
            session.flush()
        with pytest.raises(PublishError, match="the transaction has failed: roll back"):
            outbox.publish(session, EVENT)


def test_a_connection_that_is_dropped_without_an_end_is_reported_as_a_rollback(
    outbox: Outbox, engine: Engine, ends: Any
) -> None:
    given = engine.connect()
    outbox.publish(given, EVENT)
    given.invalidate()
    assert ends == [("rollback", [{"id": 42}])]
    given.close()
