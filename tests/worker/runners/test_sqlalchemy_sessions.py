"""The sessions of SQLAlchemy that transactional handlers get: their classes, their hooks, and publishing by them."""

from typing import Any

import pytest
from effect_table import effects
from orm import TABLES, Effect, ModelEffect, OwnSession, write
from sqlalchemy import event, insert, select
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlmodel import Session as ModelSession

import partbox


@pytest.fixture
def desk(desk_with: Any) -> Any:
    desk = desk_with(retry="fixed:3600", max_attempts=5)
    desk.conn.execute(TABLES)
    return desk


def test_hooks_are_called_after_the_final_commit_and_not_at_the_savepoint(desk: Any) -> None:
    said: list[tuple[str, int, list[int]]] = []

    def handle(happened: Any, session: Session) -> None:
        number = happened.payload["number"]
        write(happened, session)

        def tell(what: str) -> Any:
            return lambda session: said.append((what, number, effects(desk)))

        event.listen(session, "before_commit", tell("before"))
        event.listen(session, "after_commit", tell("after"))
        event.listen(session, "after_rollback", tell("rolled back"))
        if number == 2:
            raise ValueError("no")

    desk.outbox.register(handle, "Counted", transactional="sqlalchemy")
    with desk.conn.transaction():
        desk.publish("k", 1)
        desk.publish("l", 2)
        desk.publish("m", 3)
    with desk.outbox.worker():
        desk.eventually(lambda: len(said) == 5)
    whats = {(what, number) for what, number, _ in said}
    assert whats == {("before", 1), ("before", 3), ("after", 1), ("after", 3), ("rolled back", 2)}
    for what, number, seen in said:
        assert (number in seen) is (what == "after")


def test_hooks_of_a_transaction_that_is_rolled_back_are_not_called(desk: Any) -> None:
    """The first attempt fails at the COMMIT, and takes the other event with it."""
    said: list[Any] = []

    def handle(happened: Any, session: Session) -> None:
        number = happened.payload["number"]
        session.add(Effect(key="k", number=number, tally="none" if number == 2 else None))
        event.listen(session, "after_commit", lambda _: said.append(("after", number)))
        event.listen(session, "after_rollback", lambda _: said.append(("rolled back", number)))

    desk.outbox.register(handle, "Counted", transactional="sqlalchemy")
    with desk.conn.transaction():
        desk.publish("k", 1)
        desk.publish("l", 2)
    with desk.outbox.worker():
        desk.eventually(lambda: desk.parked() == [(2, "retrying", 1, True)] and effects(desk) == [1])
        desk.eventually(lambda: ("after", 1) in said)
    assert said.count(("after", 1)) == 1
    assert ("after", 2) not in said
    assert ("rolled back", 2) in said


def test_a_hook_that_fails_is_logged_and_keeps_no_other_from_being_called(desk: Any, caplog: Any) -> None:
    said: list[int] = []

    def handle(happened: Any, session: Session) -> None:
        write(happened, session)

        def hook(_: Session) -> None:
            said.append(happened.payload["number"])
            raise ValueError("no mail")

        event.listen(session, "after_commit", hook)

    desk.outbox.register(handle, "Counted", transactional="sqlalchemy")
    desk.publish("k", 1, 2)
    with desk.outbox.worker():
        desk.eventually(lambda: desk.all_done() and said == [1, 2])
    assert effects(desk) == [1, 2]
    told = [each for each in caplog.records if getattr(each, "event", "") == "partbox.transaction_hook_failed"]
    assert len(told) == 2
    assert "ValueError: no mail" in told[0].getMessage()


@pytest.mark.parametrize(
    ("asked", "kind"), [(Session, Session), (ModelSession, ModelSession), (OwnSession, OwnSession), (Any, Session)]
)
def test_the_session_is_of_the_class_that_the_handler_asks_for(desk: Any, asked: Any, kind: Any) -> None:
    found = []

    def handle(event: Any, session: asked) -> None:
        found.append(type(session).__mro__)
        session.add(ModelEffect(key=event.aggregate_id, number=event.payload["number"]))

    desk.outbox.register(handle, "Counted", transactional="sqlalchemy")
    desk.publish("k", 1)
    with desk.outbox.worker():
        desk.eventually(desk.all_done)
    assert effects(desk) == [1]
    assert kind in found[0]


def test_a_scoped_session_is_the_session_of_the_event(desk: Any) -> None:
    def handle(event: Any, sessions: scoped_session[Session]) -> None:
        assert isinstance(sessions, scoped_session)
        sessions.add(Effect(key=event.aggregate_id, number=event.payload["number"]))
        assert sessions.scalars(select(Effect.number)).all()[-1] == event.payload["number"]
        sessions().get_bind()

    desk.outbox.register(handle, "Counted", transactional="sqlalchemy")
    desk.publish("k", 1, 2)
    with desk.outbox.worker():
        desk.eventually(desk.all_done)
    assert effects(desk) == [1, 2]


def test_a_global_scoped_session_can_be_the_session_of_the_event(desk: Any) -> None:
    sessions = scoped_session(sessionmaker())

    def handle(event: Any, session: Session) -> None:
        sessions.registry.set(session)
        try:
            sessions.add(Effect(key="k", number=event.payload["number"]))
        finally:
            sessions.registry.clear()
        assert not sessions.registry.has()

    desk.outbox.register(handle, "Counted", transactional="sqlalchemy")
    desk.publish("k", 1, 2)
    with desk.outbox.worker():
        desk.eventually(desk.all_done)
    assert effects(desk) == [1, 2]


def test_a_session_that_has_engines_of_its_own_writes_into_the_transaction_all_the_same(desk: Any) -> None:
    class Routing(Session):
        def get_bind(self, *_: Any, **__: Any) -> Any:
            raise AssertionError("another database")

    def handle(event: Any, session: Routing) -> None:
        session.execute(insert(Effect).values(key="k", number=1))

    desk.outbox.register(handle, "Counted", transactional="sqlalchemy")
    desk.publish("k", 1)
    with desk.outbox.worker():
        desk.eventually(desk.all_done)
    assert effects(desk) == [1]


def test_events_that_a_handler_publishes_commit_or_roll_back_with_its_event(desk: Any) -> None:
    ran: list[int] = []

    def handle(event: Any, session: Session) -> None:
        desk.outbox.publish(session, "Echo", event.payload, aggregate_type="Key", aggregate_id=event.aggregate_id)
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


def test_hooks_of_a_publish_are_called_behind_the_commit(desk: Any) -> None:
    said: list[Any] = []

    def handle(event: Any, session: Session) -> None:
        number = event.payload["number"]
        write(event, session)
        desk.outbox.publish(session, "Echo", event.payload)
        if number == 2:
            raise ValueError("no")

    desk.outbox.register(handle, "Counted", transactional="sqlalchemy")
    desk.outbox.register(desk.note, "Echo")
    with desk.conn.transaction():
        desk.publish("k", 1)
        desk.publish("l", 2)
    desk.outbox.after_commit(lambda events: said.append(effects(desk)))
    with desk.outbox.worker():
        desk.eventually(lambda: effects(desk) == [1] and desk.parked() == [(2, "retrying", 1, True)])
        desk.eventually(lambda: said)
    assert said == [[1]]


def test_events_that_entities_gather_are_published_with_the_event(desk: Any) -> None:
    from partbox.sqlalchemy import collect

    class Collecting(Session):
        pass

    collect(Collecting, desk.outbox)

    def handle(event: Any, session: Collecting) -> None:
        effect = Effect(key="k", number=event.payload["number"])
        effect.events = [partbox.Event("Echo", event.payload, aggregate_type="Key", aggregate_id="k")]
        session.add(effect)
        if event.payload["number"] == 2 and event.attempt == 1:
            raise ValueError("no")

    desk.outbox.register(handle, "Counted", transactional="sqlalchemy", retry="fixed:0.01")
    desk.outbox.register(desk.note, "Echo")
    desk.publish("k", 1, 2, 3)
    with desk.outbox.worker():
        desk.eventually(lambda: len(desk.numbers()) == 3 and desk.all_done())
    assert desk.numbers() == [1, 2, 3] == effects(desk)
