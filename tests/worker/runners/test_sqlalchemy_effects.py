"""Transactional handlers with a session of SQLAlchemy, in a worker of this process on a real database."""

import threading
from typing import Any

import psycopg
import pytest
from effect_table import effects, is_of_fives, lose_connections, publish_fives
from orm import TABLES, Effect, Tally, count, write
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from partbox import RetryAfter


@pytest.fixture
def desk(desk_with: Any) -> Any:
    desk = desk_with(retry="fixed:3600", max_attempts=5)
    desk.conn.execute(TABLES)
    return desk


def test_effects_happen_once_and_in_order(desk: Any) -> None:
    desk.outbox.register(count, "Counted", transactional="sqlalchemy")
    publish_fives(desk, 150)
    with desk.outbox.worker():
        desk.eventually(desk.all_done)
    assert is_of_fives(desk, 150)
    assert dict(desk.conn.execute("select * from tally").fetchall()) == {f"k{key}": 30 for key in range(5)}


def test_many_events_share_a_commit(desk: Any) -> None:
    desk.outbox.register(write, "Counted", transactional="sqlalchemy")
    desk.conn.execute("alter table effect add xid xid8 default pg_current_xact_id()")
    desk.publish("k", *range(40))
    with desk.outbox.worker():
        desk.eventually(desk.all_done)
    assert effects(desk) == list(range(40))
    (transactions,) = desk.conn.execute("select count(distinct xid) from effect").fetchone()
    assert transactions < 20


def test_a_failed_event_leaves_no_effect_and_is_parked_while_the_effects_of_others_are_kept(desk: Any) -> None:
    """Neither a row of its flush, nor an object that was never flushed, nor a change to one that others load."""
    refused = {2}

    def handle(event: Any, session: Session) -> None:
        assert not [*session.new, *session.dirty, *session.identity_map.values()]
        count(event, session)
        session.flush()
        session.add(Effect(key=event.aggregate_id, number=-event.payload["number"]))
        if event.payload["number"] in refused:
            session.get_one(Tally, event.aggregate_id).total = 1_000
            raise ValueError("no")

    desk.outbox.register(handle, "Counted", transactional="sqlalchemy")
    desk.publish("k", 1, 2, 3)
    desk.publish("other", 4, 5)
    with desk.outbox.worker():
        desk.eventually(lambda: desk.parked() == [(2, "retrying", 1, True), (3, "held", 0, True)])
        desk.eventually(lambda: sorted(effects(desk)) == [-5, -4, -1, 1, 4, 5])
        refused.clear()
        desk.make_due()
        desk.eventually(desk.all_done)
    assert effects(desk, "k") == [1, -1, 2, -2, 3, -3]
    assert dict(desk.conn.execute("select * from tally").fetchall()) == {"k": 3, "other": 2}


def test_an_event_that_is_not_done_leaves_no_effect(desk: Any) -> None:
    answers = iter([RetryAfter(0.01), None])

    def handle(event: Any, session: Session) -> Any:
        write(event, session)
        session.flush()
        return next(answers)

    desk.outbox.register(handle, "Counted", transactional="sqlalchemy")
    desk.publish("k", 1)
    with desk.outbox.worker():
        desk.eventually(desk.all_done)
    assert effects(desk) == [1]


def test_an_error_of_the_flush_is_charged_to_its_event_alone(desk: Any) -> None:
    desk.conn.execute("insert into tally values ('2', 1)")

    def handle(event: Any, session: Session) -> None:
        write(event, session)
        session.add(Tally(key=str(event.payload["number"])))

    desk.outbox.register(handle, "Counted", transactional="sqlalchemy")
    desk.publish("k", 1)
    desk.publish("other", 2)
    desk.publish("third", 3)
    with desk.outbox.worker():
        desk.eventually(lambda: desk.parked() == [(2, "retrying", 1, True)] and sorted(effects(desk)) == [1, 3])
    (error,) = desk.conn.execute("select last_error from partbox.parked").fetchone()
    assert "UniqueViolation" in error


def test_an_error_that_the_handler_undoes_by_a_savepoint_is_no_failure(desk: Any) -> None:
    desk.conn.execute("insert into tally values ('k', 1)")

    def handle(event: Any, session: Session) -> None:
        write(event, session)
        try:
            with session.begin_nested():
                session.add(Tally(key="k"))
                session.flush()
        except IntegrityError:
            session.execute(text("update tally set total = total + 1"))

    desk.outbox.register(handle, "Counted", transactional="sqlalchemy")
    desk.publish("k", *range(3))
    with desk.outbox.worker():
        desk.eventually(desk.all_done)
    assert effects(desk) == [0, 1, 2]
    assert desk.conn.execute("select total from tally").fetchone() == (4,)


def test_a_database_error_that_the_handler_swallows_is_a_failure_all_the_same(desk: Any) -> None:
    desk.conn.execute("insert into tally values ('k', 1)")

    def handle(event: Any, session: Session) -> None:
        write(event, session)
        session.add(Tally(key="k"))
        try:
            session.flush()
        except IntegrityError:
            return

    desk.outbox.register(handle, "Counted", transactional="sqlalchemy")
    desk.publish("k", 1)
    with desk.outbox.worker():
        desk.eventually(lambda: desk.parked() == [(1, "retrying", 1, True)])
    assert effects(desk) == []


ENDS = {
    "commit": lambda session: session.commit(),
    "rollback": lambda session: session.rollback(),
    "close": lambda session: session.close(),
    "begin": lambda session: session.begin().__enter__(),
    "with": lambda session: session.__exit__(None, None, None),
    "reset": lambda session: session.reset(),
    "invalidate": lambda session: session.invalidate(),
    "prepare": lambda session: session.prepare(),
}
RUINS = {
    "the connection's commit": lambda session: session.connection().commit(),
    "the connection's rollback": lambda session: session.connection().rollback(),
    "the connection's close": lambda session: session.connection().close(),
    "the transaction's commit": lambda session: session.get_transaction().commit(),
    "the transaction's rollback": lambda session: session.get_transaction().rollback(),
    "SQL": lambda session: session.execute(text("rollback")),
    "the driver's rollback": lambda session: session.connection().connection.driver_connection.rollback(),
    "a savepoint left open": lambda session: session.connection().begin_nested(),
}


@pytest.mark.parametrize("way", [*ENDS, *RUINS])
def test_ending_the_transaction_of_a_session_is_refused_and_charged_to_its_event_alone(desk: Any, way: str) -> None:
    def handle(event: Any, session: Session) -> None:
        write(event, session)
        session.flush()
        if event.payload["number"] == 2:
            (ENDS | RUINS)[way](session)

    desk.outbox.register(handle, "Counted", transactional="sqlalchemy", max_attempts=1)
    desk.publish("k", 1, 2, 3)
    desk.publish("other", 4, 5)
    with desk.outbox.worker():
        desk.eventually(lambda: desk.parked() == [(2, "dead", 1, False)] and sorted(effects(desk)) == [1, 3, 4, 5])
    (error,) = desk.conn.execute("select last_error from partbox.parked").fetchone()
    if way in ENDS:
        assert "the session of a transactional handler has no" in error
        assert "use `with session.begin_nested():`" in error
        assert "\n" not in error


def leave_a_stream_open(session: Any) -> None:
    session.streams = session.execute(text("select generate_series(1, 10000)").execution_options(yield_per=10))
    next(session.streams)


def expire_and_expunge(session: Any) -> None:
    session.flush()
    session.expire_all()
    session.expunge_all()


MISUSES = {
    "the engine disposed": lambda session: session.get_bind().engine.dispose(),
    "the connection invalidated": lambda session: session.connection().invalidate(),
    "the connection detached": lambda session: session.connection().detach(),
    "another isolation level": lambda session: session.connection().execution_options(isolation_level="AUTOCOMMIT"),
    "autocommit of the driver": lambda session: setattr(
        session.connection().connection.driver_connection, "autocommit", True
    ),
    "no bind": lambda session: setattr(session, "bind", None),
    "a stream left open": leave_a_stream_open,
    "all expunged": expire_and_expunge,
    "a savepoint by SQL": lambda session: session.execute(text("savepoint mine")),
    "settings of the session": lambda session: session.execute(text("set statement_timeout = 1")),
    "a read-only transaction": lambda session: session.execute(text("set transaction read only")),
}


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of the stream that nobody closes
@pytest.mark.parametrize("way", MISUSES)
def test_misuse_of_a_session_harms_at_most_the_event_of_its_handler(desk: Any, way: str) -> None:
    def handle(event: Any, session: Session) -> None:
        write(event, session)
        if event.payload["number"] == 3 and event.attempt == 1:
            MISUSES[way](session)

    desk.outbox.register(handle, "Counted", transactional="sqlalchemy", max_attempts=1)
    for key, number in ("k", 1), ("l", 2), ("m", 3), ("n", 4), ("o", 5):
        desk.publish(key, number)
    with desk.outbox.worker():
        desk.eventually(lambda: {1, 2, 4, 5} <= {*effects(desk)})
        desk.publish("k", 6, 7)
        desk.eventually(lambda: {6, 7} <= {*effects(desk)})
        desk.eventually(lambda: 3 in effects(desk) or desk.states() == {3: "dead"})
    assert len(effects(desk)) == len({*effects(desk)})
    assert (3 in effects(desk)) is (desk.states() == {})


def test_a_lost_connection_repeats_no_effect(desk: Any) -> None:
    desk.outbox.register(count, "Counted", transactional="sqlalchemy")
    publish_fives(desk, 150)
    with desk.outbox.worker():
        lose_connections(desk, 4)
    assert is_of_fives(desk, 150)
    assert dict(desk.conn.execute("select * from tally").fetchall()) == {f"k{key}": 30 for key in range(5)}


def test_handlers_of_several_kinds_take_turns_in_one_partition_each_in_its_own_transactions(desk: Any) -> None:
    """The events of one aggregate alternate between the kinds, and each transaction has those of one kind alone."""
    desk.conn.execute("alter table effect add xid xid8 default pg_current_xact_id(), add kind text")
    kinds: list[str] = []

    def raw(event: Any, conn: psycopg.Connection[Any]) -> None:
        assert isinstance(conn, psycopg.Connection)
        assert conn.autocommit
        values = [event.aggregate_id, event.payload["number"]]
        conn.execute("insert into effect (key, number, kind) values (%s, %s, 'raw')", values)
        kinds.append("raw")

    def orm(event: Any, session: Session) -> None:
        values = {"key": event.aggregate_id, "number": event.payload["number"]}
        session.execute(text("insert into effect (key, number, kind) values (:key, :number, 'orm')"), values)
        kinds.append("orm")

    desk.outbox.register(raw, "Counted", transactional=True)
    desk.outbox.register(orm, "Other", transactional="sqlalchemy")
    with desk.conn.transaction():
        for number in range(0, 30, 2):
            for key in ("k", "l", "m"):
                desk.publish(key, number)
                desk.publish(key, number + 1, event_type="Other")
    with desk.outbox.worker():
        desk.eventually(desk.all_done)
    for key in ("k", "l", "m"):
        assert effects(desk, key) == list(range(30))
    assert {*kinds} == {"raw", "orm"}
    mixed = desk.conn.execute("select xid from effect group by 1 having count(distinct kind) > 1").fetchall()
    assert mixed == []


def test_a_worker_whose_session_begins_anew_goes_on_with_sessions(desk: Any) -> None:
    """What the poller reads anew is on new connections, and so are the sessions."""
    inside, go_on = threading.Event(), threading.Event()

    def handle(event: Any, session: Session) -> None:
        write(event, session)
        session.flush()
        inside.set()
        go_on.wait(60)

    desk.outbox.register(handle, "Counted", transactional="sqlalchemy")
    desk.publish("k", 1, 2)
    with desk.outbox.worker():
        desk.eventually(inside.is_set)
        desk.conn.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'partbox poller'"
        )
        go_on.set()
        desk.eventually(desk.all_done)
    assert effects(desk) == [1, 2]
