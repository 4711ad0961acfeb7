"""Domain events that entities gather are published before the commit of the session that saves them."""

import weakref
from typing import Any

import pytest
from collected import Log, Order, Product, engine, outbox, published, sessions
from sqlalchemy import event, text
from sqlalchemy.exc import IntegrityError

from partbox import Event
from partbox.errors import PublishError

__all__ = ["engine", "outbox", "published", "sessions"]


def test_events_are_published_with_the_commit_once_and_in_the_order_in_which_they_were_gathered(sessions, published):
    with sessions.begin() as session:
        one, other = Order(), Order()
        one.tell("A")
        other.tell("B")
        one.tell("C")
        session.add_all([other, one])
        session.flush()
        other.tell("D")
        assert published() == []
        assert [each.event_type for each in one.events] == ["A", "C"]
    assert published() == ["A", "B", "C", "D"]
    assert one.events == other.events == []
    with sessions.begin() as session:
        session.add(one)
    assert published() == ["A", "B", "C", "D"]


def test_events_of_an_entity_that_was_loaded_and_not_kept_are_not_forgotten(sessions, published):
    with sessions.begin() as session:
        session.add(Order(id=1))
    with sessions.begin() as session:
        session.get(Order, 1).events.append(Event("A", None))  # nothing is changed, so nothing else keeps it
    assert published() == ["A"]


def test_plain_lists_of_events_are_followed_even_when_another_list_replaces_them(sessions, published):
    with sessions.begin() as session:
        product = Product("chair")
        product.events.append(Event("A", None))
        session.add(product)
        product.events.append(Event("B", None))
    with sessions.begin() as session:
        product = session.get(Product, "chair")
        product.events = [Event("C", None)]
        session.get(Product, "chair").events.append(Event("D", None))
    assert published() == ["A", "B", "C", "D"]


def test_a_column_called_events_is_not_taken_for_a_list_of_events(sessions, published):
    with sessions.begin() as session:
        session.add(Log(events="many"))
    assert published() == []


def test_an_event_may_be_of_an_id_that_the_flush_gives(sessions, conn):
    @event.listens_for(Order, "after_insert")
    def inserted(mapper: Any, connection: Any, order: Order) -> None:
        order.events.append(Event("Placed", None, aggregate_type="Order", aggregate_id=order.id))

    try:
        with sessions.begin() as session:
            session.add(Order(id=7))
    finally:
        event.remove(Order, "after_insert", inserted)
    assert conn.execute("select event_type, aggregate_id from partbox.record").fetchall() == [("Placed", "7")]


def test_the_events_of_a_deleted_entity_are_published_too(sessions, published):
    with sessions.begin() as session:
        session.add(Order(id=1))
    with sessions.begin() as session:
        order = session.get(Order, 1)
        order.events.append(Event("Gone", None))
        session.delete(order)
        session.flush()
    assert published() == ["Gone"]


def test_a_savepoint_that_is_rolled_back_takes_its_events_with_it(sessions, published):
    with sessions.begin() as session:
        session.add(order := Order())
        order.tell("A")
        for kept in (True, False):
            inner = session.begin_nested()
            order.tell("kept" if kept else "undone")
            session.add(new := Order())
            new.tell("kept too" if kept else "undone too")
            inner.commit() if kept else inner.rollback()
            assert published() == []
        order.tell("B")
    assert published() == ["A", "kept", "kept too", "B"]
    assert [each.event_type for each in new.events] == ["undone too"]  # it is no entity, and may be added once more


def test_a_commit_releases_open_savepoints_first(sessions, published):
    with sessions.begin() as session:
        session.add(order := Order())
        session.begin_nested()
        order.tell("A")
        session.begin_nested()
        order.tell("B")
    assert published() == ["A", "B"]
    with sessions() as session:
        session.add(order)
        session.begin_nested()
        order.tell("C")
        session.commit()
    assert published() == ["A", "B", "C"]


def test_a_commit_within_the_block_of_a_savepoint_publishes_or_fails(sessions, published):
    """SQLAlchemy takes no statement of a session between the end of such a savepoint and the end of its block."""
    with sessions() as session:
        session.add(order := Order(id=1))
        order.tell("A")
        with pytest.raises(PublishError, match="complete the context manager"), session.begin_nested():
            session.commit()
    assert published() == []


def test_a_rollback_drops_the_events_of_known_entities_and_keeps_those_of_new_ones(sessions, published):
    session = sessions()
    session.add(known := Order(id=1))
    session.commit()
    known.tell("undone")
    session.add(new := Order(id=2))
    new.tell("A")
    session.rollback()
    assert known.events == []
    session.add(new)
    session.commit()
    assert published() == ["A"]
    session.close()


def test_a_commit_that_fails_after_publishing_publishes_when_it_is_tried_again(sessions, published, engine):
    """A constraint that is checked at COMMIT: the events were written, and are rolled back with all else."""
    with engine.begin() as conn:
        conn.execute(text("create table one (id int unique deferrable initially deferred)"))
        conn.execute(text("insert into one values (1)"))
    session = sessions()
    session.add(order := Order())
    order.tell("A")
    session.execute(text("insert into one values (1)"))
    with pytest.raises(IntegrityError):
        session.commit()
    session.rollback()
    assert published() == []
    session.add(order)
    session.commit()
    assert published() == ["A"]
    session.close()


def test_a_refused_event_leaves_everything_as_it_was(sessions, published):
    session = sessions()
    session.add(order := Order(id=1))
    order.tell("A")
    order.events.append("no event")
    with pytest.raises((PublishError, AttributeError)):
        session.commit()
    assert len(order.events) == 2
    del order.events[1]
    session.commit()
    assert published() == ["A"]
    session.close()


def test_events_of_an_entity_that_was_expunged_from_a_session_are_not_published_with_it(sessions, published):
    session = sessions()
    session.add_all([new := Order(), old := Order()])
    session.flush()
    old.tell("old")
    session.expunge(old)
    session.expunge(new)
    new.tell("new")
    session.commit()
    assert published() == []
    session.add(new)
    session.commit()
    assert published() == ["new"]
    session.close()


def test_a_session_that_is_closed_without_a_commit_publishes_nothing(sessions, published):
    with sessions() as session:
        session.add(order := Order())
        order.tell("A")
        session.flush()
    with sessions.begin() as session:
        session.add(Order())
    assert published() == []


def test_a_session_that_is_dropped_with_an_open_savepoint_is_not_kept(sessions, engine, collect):
    session = sessions()
    session.add(order := Order())
    order.tell("A")
    with session.begin_nested():
        order.tell("B")
    session.begin_nested()
    gone = weakref.ref(session)
    del session
    collect()
    assert gone() is None
    assert engine.pool.checkedout() == 0  # type: ignore[attr-defined]


def test_hooks_see_the_events_and_may_bring_about_more(sessions, outbox, published):
    session = sessions()
    session.add(order := Order())
    order.tell("A")
    ends = []

    @outbox.after_publish
    def more(events: list[Event]) -> None:
        if events[0].event_type == "A":
            order.tell("B")

    outbox.after_commit(lambda events: ends.append([each.event_type for each in events]))
    session.commit()
    assert published() == ["A", "B"]
    assert ends == [["A"], ["B"]]
    session.close()


def test_an_event_that_was_withdrawn_is_not_published_and_no_hook_hears_of_it(sessions, outbox, published):
    heard = []
    outbox.before_publish(lambda events: heard.append(events))
    with sessions.begin() as session:
        session.add(order := Order())
        order.tell("A")
        order.events.clear()
    assert published() == heard == []


def test_a_hook_that_causes_another_event_each_time_makes_the_commit_fail(sessions, outbox, published):
    session = sessions()
    session.add(order := Order())
    order.tell("A")
    outbox.after_publish(lambda events: order.tell("A"))
    with pytest.raises(PublishError, match="a hook must not always add one"):
        session.commit()
    session.close()
    assert published() == []
