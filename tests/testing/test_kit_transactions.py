"""Events that are handed to transactional handlers without the log, in the transaction of a test."""

from typing import Any

import psycopg
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from partbox import PartboxError, RetryAfter
from partbox.testing import Kit, delivered


@pytest.fixture
def session(kit: Kit, dsn: str) -> Any:
    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(dsn))
    with engine.connect() as conn, conn.begin() as transaction, Session(conn) as session:
        yield session
        transaction.rollback()
    engine.dispose()


def write(event: Any, session: Session) -> Any:
    session.execute(text("insert into effect values (:number)"), {"number": event.payload})
    match event.payload:
        case 2:
            raise ValueError("no")
        case 3:
            return RetryAfter(1)


def test_a_handler_with_a_session_writes_into_the_transaction_of_the_test(kit: Kit, session: Session) -> None:
    kit.outbox.on("Written", transactional="sqlalchemy")(write)
    session.execute(text("create table if not exists effect (number int)"))
    handed = kit.handle(*(delivered("Written", number) for number in (1, 2, 3, 4)), conn=session)
    assert handed.states == ["done", "retrying", "deferred", "done"]
    assert session.scalars(text("select number from effect order by 1")).all() == [1, 4]
    kit.handle(delivered("Written", 5), conn=scoped_session(sessionmaker(session.connection()))).assert_done()
    kit.handle(delivered("Written", 6), conn=session.connection()).assert_done()
    assert session.scalars(text("select number from effect order by 1")).all() == [1, 4, 5, 6]


def test_handling_an_event_with_a_session_requires_a_session_or_connection_of_sqlalchemy(kit: Kit, conn: Any) -> None:
    kit.outbox.on("Written", transactional="sqlalchemy")(write)
    with pytest.raises(PartboxError, match="pass the connection that the handler is to use"):
        kit.handle(delivered("Written", 1))
    with pytest.raises(PartboxError, match="takes a session of SQLAlchemy: pass the SQLAlchemy session or connection"):
        kit.handle(delivered("Written", 1), conn=conn)


def test_an_async_handler_cannot_use_the_transaction_of_the_test(kit: Kit, session: Session) -> None:
    async def handle(event: Any, session: Any) -> None: ...

    kit.outbox.on("Written", transactional="sqlalchemy")(handle)
    with pytest.raises(PartboxError, match=r"is async and transactional, .*: commit .*, and use drain\(\)"):
        kit.handle(delivered("Written", 1), conn=session)


def test_a_drain_gives_handlers_sessions_too_and_a_new_one_after_a_failed_commit(kit: Kit, conn: Any) -> None:
    conn.execute("create table fate (number int unique deferrable initially deferred)")
    conn.execute("insert into fate values (2)")

    def handle(event: Any, session: Session) -> None:
        session.execute(text("insert into fate values (:number)"), {"number": event.payload})

    kit.outbox.on("Fated", transactional="sqlalchemy")(handle)
    for number in (1, 2, 3):
        kit.publish("Fated", number)
    assert kit.drain().states == ["done", "retrying", "done"]
    assert conn.execute("select number from fate order by 1").fetchall() == [(1,), (2,), (3,)]
