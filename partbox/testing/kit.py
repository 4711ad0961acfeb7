"""The test kit of an outbox: see the published events, deliver them, advance time, inject failures."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any, TypeVar, Unpack, overload
from uuid import UUID

from psycopg import AsyncConnection, Connection

from partbox.classes import Instance
from partbox.db.connect import DsnSource
from partbox.db.schema.outbox_database import OutboxDatabase
from partbox.errors import PartboxError, UnrecoverableError
from partbox.events import DeliveredEvent, Event
from partbox.events.declaration import type_name_of
from partbox.events.event import NOT_GIVEN, EventFields
from partbox.handlers.argument_plan import UNKNOWN_STATE
from partbox.handlers.lifespan import Lifespan
from partbox.operations.arguments import check_text, parse_length
from partbox.outbox import Outbox
from partbox.publish.arguments import build_event
from partbox.sinks.message import DEFAULT, Message
from partbox.sinks.sink import Result, Sink
from partbox.testing import statements
from partbox.testing.drain import Drainer
from partbox.testing.outcomes import Drained
from partbox.testing.published import EventFilter, FilterFields, Published, decode_events
from partbox.testing.sessions import Sessions
from partbox.testing.statements import RecordPlacement, State, find_psycopg, place
from partbox.testing.stepping import call_handlers


class RecordingSink(Sink):
    """A sink for tests that records messages in the list `messages` instead of sending them.

    It records every message that it accepts, in order. `delay` is the number of seconds before the sink answers."""

    def __init__(self, topic: str = DEFAULT, *, delay: float = 0.0) -> None:
        super().__init__(topic)
        self.messages: list[Message] = []
        self.delay = delay
        self._results: deque[Result] = deque()
        self._failures: deque[BaseException] = deque()

    def fail_next(self, error: BaseException, times: int = 1) -> None:
        """Make the next `times` calls of `send` fail with this error, for all of their messages.

        DownstreamUnavailable stands for an outage."""
        _check_times(times)
        self._failures.extend([error] * times)

    def reject_next(self, times: int = 1, reason: str = "the broker refuses it") -> None:
        """Make the sink refuse the next `times` messages for good, so that their events become dead."""
        _check_times(times)
        self._results.extend([UnrecoverableError(reason)] * times)

    def sent(self, topic: str | None = None, key: object = None) -> list[Message]:
        """Return the recorded messages with this topic and key. None stands for any."""
        wanted = None if key is None else str(key)
        return [each for each in self.messages if topic in (None, each.topic) and wanted in (None, each.key)]

    def clear(self) -> None:
        """Forget the recorded messages, and cancel the failures that were set up for the next sends."""
        self.messages.clear()
        self._results.clear()
        self._failures.clear()

    async def send(self, messages: Sequence[Message]) -> Sequence[Result]:
        await asyncio.sleep(self.delay)
        if self._failures:
            raise self._failures.popleft()
        results = [self._results.popleft() if self._results else None for _ in messages]
        self.messages += [message for message, result in zip(messages, results, strict=True) if result is None]
        return results


class StandIn(Sink):
    """A replacement for an application's sink that passes its messages, with their topics, to a recording sink."""

    def __init__(self, original: Sink, recording: RecordingSink) -> None:
        super().__init__()
        self._original = original
        self._recording = recording
        self.gapless = original.gapless  # type: ignore[misc]

    def message(self, event: DeliveredEvent) -> Message:
        return self._original.message(event)

    async def send(self, messages: Sequence[Message]) -> Sequence[Result]:
        return await self._recording.send(messages)


# Events that one call of `handle` follows at most.
MOST_FOLLOWED = 1_000

Type = str | Enum
Kind = str | Enum | type[Instance]
AnyInstance = TypeVar("AnyInstance", bound=Instance)
Error = BaseException | type[BaseException]


def _is_due(event: DeliveredEvent) -> bool:
    return event.available_at is None or event.available_at <= datetime.now(UTC)


def _check_times(times: int) -> None:
    if type(times) is not int or times < 1:
        raise ValueError(f"times must be 1 or more, not {times!r}")


@dataclass(slots=True)
class _Fault:
    event_type: str | None
    error: Error
    times: int


class Faults:
    """An interceptor for tests that raises prepared errors instead of running a handler."""

    def __init__(self) -> None:
        self._faults: deque[_Fault] = deque()

    def inject(self, event_type: Kind | None, error: Error, times: int) -> None:
        """Make the next `times` deliveries of an event type fail with this error. None stands for any type."""
        if not isinstance(error, BaseException) and not (isinstance(error, type) and issubclass(error, BaseException)):
            raise TypeError(f"{error!r} is not an exception: give the exception to raise")
        _check_times(times)
        self._faults.append(
            _Fault(None if event_type is None else type_name_of("event_type", event_type), error, times)
        )

    def before(self, event: DeliveredEvent) -> None:
        for fault in self._faults:
            if fault.event_type in (None, event.event_type):
                fault.times -= 1
                if not fault.times:
                    self._faults.remove(fault)
                raise fault.error


def _override_outbox(outbox: Outbox, dsn: str, faults: Faults) -> Callable[[], None]:
    """Make the outbox use a test's database, and return the function that undoes this."""
    # The ordered faults are put around its handlers, too.
    before = dict(vars(outbox))
    outbox._database = OutboxDatabase(dsn, outbox.settings)
    outbox._hooks, outbox.handlers = copy(outbox._hooks), copy(outbox.handlers)
    outbox._hooks.by_moment = dict(outbox._hooks.by_moment)
    outbox._publisher = replace(outbox._publisher, hooks=outbox._hooks)
    outbox.handlers._registered = dict(outbox.handlers._registered)
    outbox.codecs = copy(outbox.codecs)
    outbox.codecs.upcasts = dict(outbox.codecs.upcasts)
    outbox.handlers.interceptors = (*outbox.handlers.interceptors, faults)

    def restore() -> None:
        vars(outbox).clear()
        vars(outbox).update(before)

    return restore


class Kit:
    """A test kit that publishes and delivers the events of an outbox in a test database.

    Use it by `with Kit(outbox, dsn) as kit:`. Until it closes, the outbox uses the database of `dsn`, by default its
    own. Registrations made meanwhile are undone. A kit is for one thread or task at a time. The connections of
    `sessions` stay open for the next kit."""

    def __init__(self, outbox: Outbox, dsn: str | None = None, *, sessions: Sessions | None = None) -> None:
        self.outbox = outbox
        self.dsn = outbox.dsn if dsn is None else DsnSource(dsn)()
        self._faults = Faults()
        self._restore: Callable[[], None] | None = _override_outbox(outbox, self.dsn, self._faults)
        self._drainer = Drainer(outbox, self.dsn, sessions)
        self._handled: set[UUID] = set()

    @overload
    def publish(self, event: Event | Instance, **fields: Unpack[EventFields]) -> UUID | None: ...

    @overload
    def publish(self, event: Type, payload: Any, **fields: Unpack[EventFields]) -> UUID | None: ...

    def publish(self, event: Any, payload: Any = NOT_GIVEN, **fields: Unpack[EventFields]) -> UUID | None:
        """Publish an event in a transaction of its own, commit, and return the event's id."""
        with self.outbox.transaction(self._open_connection()) as conn:
            return self.outbox.publish(conn, event, payload, **fields)

    # Public API: all parameters after the event are keywords.
    def record(
        self,
        event: Event | Instance,
        *,
        state: State = "pending",
        attempts: int | None = None,
        due: float | timedelta | str | datetime | None = None,
        error: str | None = None,
        subscription: str = "default",
    ) -> int:
        """Publish an event and put it into a delivery state, such as dead. Return its record id.

        The state is as if delivery had led there. `due` of a retrying, deferred or scheduled record is a time, or a
        length of time from now, by default 0. A dead record with a due time is still owed to the dead-letter hook.
        `attempts` is by default 1 for retrying, dead and discarded records and 0 for others. Raise PartboxError while a
        worker delivers from this database."""
        check_text("subscription", subscription)
        placement = RecordPlacement(state, attempts, due, error)
        event = build_event(event, NOT_GIVEN, {})
        event_id = self.publish(event)
        if event_id is None:
            raise PartboxError(
                "the event was not published: its idempotency key is already used, or a hook suppressed it"
            )
        return place(self._open_connection(), self.outbox, event_id, event, placement, subscription)

    @overload
    def published(
        self, event_type: type[AnyInstance], *, conn: Any = None, **fields: Unpack[FilterFields]
    ) -> Published[AnyInstance]: ...

    @overload
    def published(
        self, event_type: Type | None = None, *, conn: Any = None, **fields: Unpack[FilterFields]
    ) -> Published: ...

    def published(self, event_type: Any = None, *, conn: Any = None, **fields: Unpack[FilterFields]) -> Published[Any]:
        """Return the events that the test has published so far, in order.

        `event_type` and `fields` filter by type, aggregate and tenant. Only committed events are found, unless `conn`
        (a connection of psycopg or Django, a Session …) is given: then also the events of its open transaction."""
        chosen = self._open_connection() if conn is None else find_psycopg(conn)
        if not isinstance(chosen, Connection):
            raise PartboxError("this connection is asynchronous: use `await kit.published_async(…)`")
        rows = statements.published(chosen, self._schema)
        wanted = EventFilter(event_type, **fields)
        return Published(wanted, decode_events(rows, self.outbox.codecs))

    @overload
    async def published_async(
        self, event_type: type[AnyInstance], *, conn: Any, **fields: Unpack[FilterFields]
    ) -> Published[AnyInstance]: ...

    @overload
    async def published_async(
        self, event_type: Type | None = None, *, conn: Any, **fields: Unpack[FilterFields]
    ) -> Published: ...

    async def published_async(
        self, event_type: Any = None, *, conn: Any, **fields: Unpack[FilterFields]
    ) -> Published[Any]:
        """Return the events that the test has published so far, in order, by an asynchronous connection.

        Events in the open transaction of the connection are included."""
        chosen = find_psycopg(conn)
        if not isinstance(chosen, AsyncConnection):
            raise PartboxError("this connection is synchronous: use `kit.published(…)`")
        rows = await statements.published_async(chosen, self._schema)
        wanted = EventFilter(event_type, **fields)
        return Published(wanted, decode_events(rows, self.outbox.codecs))

    def drain(self, subscription: str = "default") -> Drained:
        """Deliver the events that are due now, one by one in the order of their ids, and return the outcome of each.

        Handlers run in this thread. Due events that handlers publish are included. A retry waits for another drain,
        even if it is due at once. Uncommitted events are not seen. Raise RegistrationError if the subscription has no
        handler, and PartboxError if a worker delivers from this database too."""
        return self._drainer.drain(subscription)

    async def drain_async(self, subscription: str = "default") -> Drained:
        """Deliver the events that are due now, without blocking the event loop, and return the outcome of each.

        `async def` handlers run in this event loop, and all other handlers in a thread."""
        return await self._drainer.drain_async(subscription)

    def handle(self, *events: DeliveredEvent, conn: Any = None) -> Drained:
        """Call the handlers of these events as a worker would, without saving outcomes or retrying.

        Events that handlers publish meanwhile follow, each once, until nothing new is left; delayed ones do not. Raise
        PartboxError if handlers publish without end. This is for events that no worker can see: from
        `published(conn=…)` in a transaction, or from `delivered(…)`. `conn` is for transactional handlers: a
        connection, or for handlers of SQLAlchemy a session or a connection of SQLAlchemy. Handlers of Django use
        Django's own connection."""
        for each in events:
            if not isinstance(each, DeliveredEvent):
                raise TypeError(f"{each!r} is not a delivered event: pass events from `published(…)` or `delivered(…)`")
        drained = call_handlers(self.outbox, self._follow(events, conn), conn, self._drainer.await_it)
        self._handled.update(each.event.event_id for each in drained)
        return drained

    def has_handled(self, event: DeliveredEvent) -> bool:
        """Return True if `handle` of this kit has called the handler of this event."""
        return event.event_id in self._handled

    def _follow(self, events: Sequence[DeliveredEvent], conn: Any) -> Iterator[DeliveredEvent]:
        """Yield these events, and then those that were published since, until there are none."""
        if not events:
            return
        try:
            found = find_psycopg(conn)
        # None, or a session over another driver, which shows committed events alone.
        except PartboxError:
            found = None
        seeing = found if isinstance(found, Connection) else self._open_connection()
        codecs = self.outbox.codecs
        last = max((each.id for each in decode_events(statements.published(seeing, self._schema), codecs)), default=0)
        yield from events
        subscriptions, followed = dict.fromkeys(event.subscription for event in events), 0
        while rows := statements.published(seeing, self._schema, last):
            newest = decode_events(rows[-1:], codecs)[0]
            last, followed = newest.id, followed + len(rows)
            if followed > MOST_FOLLOWED:
                raise PartboxError(
                    f"handle() has followed {MOST_FOLLOWED} events that handlers published, and more come, the next of "
                    f"type {newest.event_type!r}: a handler publishes what leads back to itself"
                )
            for subscription in subscriptions:
                yield from filter(_is_due, decode_events(rows, codecs, subscription))

    def advance(self, seconds: float | timedelta | str) -> None:
        """Move the due times of all waiting events earlier, as if this time had passed.

        Waiting events are retries, deferred and delayed events. No clock changes."""
        statements.advance(self._open_connection(), self._schema, parse_length("seconds", seconds))

    def fail_next(self, event_type: Kind | None, error: Error, times: int = 1) -> None:
        """Make the next `times` deliveries of an event type fail with this error before the handler runs. None stands
        for any type."""
        self._faults.inject(event_type, error, times)

    def give_state(self, state: Any) -> None:
        """Give handlers this object as their state, instead of the state that the outbox's lifespan yields.

        The lifespan of the outbox is not entered."""

        def lifespan() -> Iterator[Any]:
            yield state

        handlers = self.outbox.handlers
        before = handlers.process_lifespan
        handlers.process_lifespan = Lifespan(lifespan, is_async=False, state=before.state if before else UNKNOWN_STATE)

    def record_sinks(self) -> RecordingSink:
        """Replace all sinks by one that only records messages, and return it. Raise PartboxError if the outbox has no
        sinks."""
        sink, registered = RecordingSink(), self.outbox.handlers._registered
        sinks = {key: getattr(each.call, "__self__", None) for key, each in registered.items()}
        found = {key: StandIn(original, sink) for key, original in sinks.items() if isinstance(original, Sink)}
        if not found:
            raise PartboxError("no sink is registered with this outbox: register one, or a RecordingSink itself")
        for key, each in found.items():
            registered[key] = replace(registered[key], call=each.handle, close=None, observed_by=each.observed_by)
        return sink

    def forget(self) -> None:
        """Delete everything in the outbox, as if nothing was ever published.

        This is for a database that several tests share."""
        statements.forget(self._open_connection(), self._schema)

    def close(self) -> None:
        """End the test kit and restore the outbox as it was before. A second call does nothing."""
        self._drainer.close()
        if self._restore is not None:
            self._restore()
            self._restore = None

    @property
    def _schema(self) -> str:
        return self.outbox.settings.schema_name

    def _open_connection(self) -> Connection[Any]:
        if self._restore is None:
            raise PartboxError("this kit is closed, and its outbox is restored: make a new kit")
        return self._drainer.connection()

    def __enter__(self) -> "Kit":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
