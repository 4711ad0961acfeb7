"""Publishing of the domain events that SQLAlchemy entities collect, before the commit of their session.

    sessions = collect(sessionmaker(engine), outbox)

    with sessions.begin() as session:
        order = Order(...)
        order.events.append(OrderPlaced(...))  # a list; EventsMixin gives one to entities that are loaded, too
        session.add(order)

A session tracks the lists of its entities as they join and leave it. Events are numbered, so that events of several
entities keep their order, and so that the rollback of a savepoint drops the events appended since."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from sqlalchemy import event, util
from sqlalchemy.orm import Session, SessionTransaction, object_mapper, scoped_session, sessionmaker

from partbox.errors import PublishError, RegistrationError
from partbox.events.gathering import EventList, EventsMixin, NumberedEvent, draw_number
from partbox.outbox import Outbox

__all__ = ["EventsMixin", "collect"]

Target = TypeVar("Target")
# Most rounds of publishing before a commit. Each round may add more events.
MAX_ROUNDS = 100
EVENTS = "events"


def collect(target: Target, outbox: Outbox) -> Target:
    """Make SQLAlchemy sessions publish the events in their entities' `events` lists before each commit. Return
    `target`.

    `target` is a sessionmaker, a scoped_session, a Session, a class of sessions, or the asynchronous variant of one.
    `events` has everything that `publish_many` takes: instances of classes decorated with `@partbox.event`, or Event
    objects. After the session has flushed, events are published in the order in which they were appended, and leave the
    list. A rollback drops them, unless their entity is no longer saved and may be added again. An error of publishing
    is raised by `commit()`, and nothing is committed. A second call with the same arguments changes nothing. Raise
    RegistrationError for another outbox, and for any other target."""
    if not isinstance(outbox, Outbox):
        raise RegistrationError(f"{outbox!r} is not an Outbox: write collect(sessions, outbox)")
    sessions = _find_listen_target(target)
    known = next((_collected[each] for each in _list_session_classes(sessions) if each in _collected), None)
    if known is None:
        _collected[sessions] = outbox
        Collector(outbox).listen(sessions)
    elif known is not outbox:
        raise RegistrationError("the events of these sessions go to another outbox: collect them once, for one outbox")
    return target


@dataclass(eq=False, slots=True)
class SessionEvents:
    """The unpublished events of all entities in one SQLAlchemy session.

    The state that a rollback needs is kept, too. `waiting` are the lists with events. `marks` has, for each savepoint,
    the first number of its events. `committed` has the transactions that are committed and have not ended yet. Both use
    the id of a transaction, because the object would keep its session alive. `published` are the events of this
    transaction, which go back to the lists of entities that its rollback makes `transient`. `commits` counts commits
    that began while a savepoint was open."""

    waiting: dict[int, EventList] = field(default_factory=dict)
    marks: dict[int, int] = field(default_factory=dict)
    committed: set[int] = field(default_factory=set)
    published: list[tuple[EventList, list[NumberedEvent]]] = field(default_factory=list)
    transient: set[int] = field(default_factory=set)
    commits: int = 0

    def track(self, events: EventList) -> None:
        """Watch an entity's list of events, so that its present and future events are published."""
        events.on_event = self.note
        self.transient.discard(id(events))
        if events:
            self.note(events)

    def note(self, events: EventList) -> None:
        self.waiting[id(events)] = events

    def leave(self, events: EventList) -> None:
        events.on_event = None
        self.waiting.pop(id(events), None)

    def take(self) -> list[tuple[EventList, list[NumberedEvent]]]:
        """Remove the unpublished events from the lists of all entities, and return the lists with their events."""
        taken = [(events, events.take_events()) for events in self.waiting.values()]
        self.waiting.clear()
        return taken

    def restore_taken(self, taken: list[tuple[EventList, list[NumberedEvent]]]) -> None:
        for events, gathered in taken:
            events.put_back(gathered)
            self.note(events)

    def end_savepoint(self, savepoint: SessionTransaction) -> bool:
        """Forget a savepoint that has ended, and its events if it was rolled back. Return True if the whole transaction
        commits."""
        # A commit that began while a savepoint was open is a commit of that savepoint, or of the whole transaction,
        # which ends the savepoint first.
        mark = self.marks.pop(id(savepoint))
        self.commits = max(0, self.commits - 1)
        if id(savepoint) in self.committed:
            self.committed.discard(id(savepoint))
            return not self.marks and self.commits > 0
        for events in self.waiting.values():
            events.forget_after(mark)
        return False

    def end_transaction(self, transaction: SessionTransaction) -> None:
        """Forget the events of a transaction that has ended. After a rollback, entities that are no longer saved get
        theirs back."""
        if id(transaction) not in self.committed:
            for events in self.waiting.values():
                events.clear()
            for events, gathered in self.published:
                if id(events) in self.transient:
                    events.put_back(gathered)
        for each in (self.waiting, self.marks, self.committed, self.published, self.transient):
            each.clear()
        self.commits = 0


# The outbox that gets the events of a class of sessions, or of one session.
_collected: WeakKeyDictionary[Any, Outbox] = WeakKeyDictionary()
_sessions: WeakKeyDictionary[Session, SessionEvents] = WeakKeyDictionary()


def _events_of_session(session: Session) -> SessionEvents:
    found = _sessions.get(session)
    if found is None:
        found = _sessions[session] = SessionEvents()
    return found


class Collector:
    """A listener that publishes the events of entities in SQLAlchemy sessions through one outbox."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox

    def listen(self, sessions: Any) -> None:
        calls: dict[str, Callable[..., Any]] = {
            "after_attach": _on_attach,
            "loaded_as_persistent": _on_attach,
            "persistent_to_detached": _on_detach,
            "deleted_to_detached": _on_detach,
            "pending_to_transient": _on_transient,
            "persistent_to_transient": _on_transient,
            "after_transaction_create": _on_begin,
            "before_commit": self._before_commit,
            "after_commit": _on_commit,
            "after_transaction_end": self._on_transaction_end,
        }
        for name, call in calls.items():
            event.listen(sessions, name, call)

    def _before_commit(self, session: Session) -> None:
        """Publish the collected events before the commit of the whole transaction."""
        # This does not happen before the release of a savepoint, which may still be undone. SQLAlchemy fires the same
        # hook for both. If a savepoint is open, its end shows which one it was.
        if session.in_nested_transaction():
            _events_of_session(session).commits += 1
        else:
            self._publish_events(session)

    def _on_transaction_end(self, session: Session, transaction: SessionTransaction) -> None:
        if transaction.nested:
            if _events_of_session(session).end_savepoint(transaction):
                self._publish_events(session)
        elif transaction.parent is None:
            _events_of_session(session).end_transaction(transaction)

    def _publish_events(self, session: Session) -> None:
        """Flush the session and publish the events of its entities, until no more events are added."""
        # The flush gives entities their ids. Both are repeated as long as events are added.
        gathered = _events_of_session(session)
        for _ in range(MAX_ROUNDS):
            session.flush()
            for entity in session:
                # The entity has a new list in the place of the tracked one.
                if type(vars(entity).get(EVENTS)) is list:
                    _on_attach(session, entity)
            if not any(gathered.waiting.values()):
                return
            taken = gathered.take()
            events = sorted((each for _, some in taken for each in some), key=_number_of)
            try:
                self._write_events(session, [each.event for each in events])
            except BaseException:
                gathered.restore_taken(taken)
                raise
            gathered.published += taken
        raise PublishError(
            f"each of {MAX_ROUNDS} rounds of publishing has added more events: a hook must not always add one"
        )

    def _write_events(self, session: Session, events: list[Any]) -> None:
        aio = _find_loaded_asyncio()
        if aio is None or (asynchronous := aio.async_session(session)) is None:
            self._outbox.publish_many(session, events)
        else:
            util.await_only(self._outbox.publish_many_async(asynchronous, events))


def _number_of(gathered: NumberedEvent) -> int:
    return gathered.number


def _find_listen_target(target: Any) -> Any:
    """Return the SQLAlchemy session or session class behind a target. Raise RegistrationError if there is none."""
    if isinstance(target, scoped_session):
        target = target.session_factory
    if isinstance(target, sessionmaker):
        return target.class_
    if isinstance(target, Session) or (isinstance(target, type) and issubclass(target, Session)):
        return target
    if (aio := _find_loaded_asyncio()) and (found := _find_async_target(aio, target)):
        return found
    raise RegistrationError(
        f"{target!r} makes no SQLAlchemy sessions: give a sessionmaker, a Session, a class of sessions, or an "
        "asynchronous variant of one"
    )


def _find_async_target(aio: Any, target: Any) -> Any:
    """Return the synchronous session or session class behind an asynchronous one, or None."""
    # None is returned for a target that is not an asynchronous one of SQLAlchemy.
    if isinstance(target, aio.async_scoped_session):
        target = target.session_factory
    if isinstance(target, aio.AsyncSession):
        return target.sync_session
    if isinstance(target, aio.async_sessionmaker):
        own = _make_private_subclass(target.kw.get("sync_session_class") or target.class_.sync_session_class)
        target.configure(sync_session_class=own)
        return own
    if not (isinstance(target, type) and issubclass(target, aio.AsyncSession)):
        return None
    kind: Any = target
    kind.sync_session_class = _make_private_subclass(kind.sync_session_class)
    return kind.sync_session_class


def _find_loaded_asyncio() -> Any:
    """Return SQLAlchemy's asyncio module if the application has imported it, else None."""
    # Only then there are asynchronous sessions. The module needs greenlet, which SQLAlchemy 2.1 does not install by
    # default.
    return sys.modules.get("sqlalchemy.ext.asyncio")


def _make_private_subclass(kind: type[Session]) -> type[Session]:
    """Return a new subclass of a session class, for listening to its own sessions only."""
    # Listening to `kind` itself would include unrelated sessions.
    return kind if kind in _collected else type(f"Collecting{kind.__name__}", (kind,), {})


def _list_session_classes(sessions: Any) -> tuple[Any, ...]:
    return sessions.__mro__ if isinstance(sessions, type) else (sessions, *type(sessions).__mro__)


def _events_of(entity: object) -> EventList | None:
    """Return an entity's list of unpublished events, or None if it has none."""
    # The list is converted to an EventList. None is returned, too, if the entity's `events` is mapped to the database.
    if isinstance(entity, EventsMixin):
        return entity.events
    found = vars(entity).get(EVENTS)
    if type(found) is list and EVENTS not in object_mapper(entity).attrs:
        vars(entity)[EVENTS] = found = EventList(found)
    return found if isinstance(found, EventList) else None


def _on_attach(session: Session, entity: object) -> None:
    if (events := _events_of(entity)) is not None:
        _events_of_session(session).track(events)


def _on_detach(session: Session, entity: object) -> None:
    if (events := _events_of(entity)) is not None:
        _events_of_session(session).leave(events)


def _on_transient(session: Session, entity: object) -> None:
    """Remember that an entity is no longer saved in the database, and stop publishing its events."""
    # The entity is transient again because a rollback undid its save or because it left the session.
    if (events := _events_of(entity)) is not None:
        _events_of_session(session).leave(events)
        _events_of_session(session).transient.add(id(events))


def _on_begin(session: Session, transaction: SessionTransaction) -> None:
    if transaction.nested:
        _events_of_session(session).marks[id(transaction)] = draw_number()


def _on_commit(session: Session) -> None:
    end_transaction = session.get_nested_transaction() or session.get_transaction()
    if end_transaction is not None:
        _events_of_session(session).committed.add(id(end_transaction))
