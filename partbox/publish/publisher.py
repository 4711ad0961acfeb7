"""Publish one or many events on a synchronous or asynchronous connection. On psycopg, one event without an idempotency
key or hooks takes a fast path. The general path, through an adapter, takes a fifth more CPU time."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any
from uuid import UUID

from partbox.classes import Instance
from partbox.codecs import Codecs
from partbox.db import statements
from partbox.db.statements import AnyAsync, AnySync
from partbox.db.type_conversion import AsyncOwnCursor, OwnCursor
from partbox.errors import PublishError
from partbox.events import Event
from partbox.events.event import EventFields
from partbox.observe import Observers
from partbox.publish import integrations, steps, transaction, transaction_outcome
from partbox.publish.adapter import COMMIT, ROLLBACK, BaseAdapter
from partbox.publish.arguments import build_event, build_events
from partbox.publish.bell import Bell, EmbeddedWorkers, database_key_of
from partbox.publish.failures import ErrorExplainer
from partbox.publish.fields import build_publish_parameters, encode_event, encode_events
from partbox.publish.hooks import HookMoment, PublishHooks
from partbox.publish.integrations.psycopg import is_async_psycopg, is_psycopg
from partbox.publish.transaction_outcome import EndReporter
from partbox.publish.writing import write_events

# The events after hooks, and the id of each event, or None if its idempotency key was used before.
PublishedBatch = tuple[list[Event], list[UUID | None]]


@dataclass(frozen=True, slots=True)
class Publisher:
    """A writer of events into the outbox of one schema, as part of the caller's transactions."""

    # Its methods raise PublishError before anything is written. A publisher neither commits nor changes the connection
    # in any other way. `max_payload` is in bytes. `workers` are the embedded workers of this process, which are woken
    # after a commit that the connection reports.

    schema: str
    codecs: Codecs
    max_payload: int
    hooks: PublishHooks
    workers: EmbeddedWorkers
    observers: Observers = field(default_factory=Observers)
    bell: Bell = field(default_factory=Bell)

    def publish(
        self, conn: AnySync, given: Event | str | Enum | Instance, payload: Any, fields: EventFields
    ) -> UUID | None:
        """Write an event in the caller's transaction. Return its id, or None if it was not published."""
        # An event is not published if a hook removed it or its idempotency key was used before.
        event = build_event(given, payload, fields, is_borrowed=not self.hooks.has_any)
        if not is_psycopg(conn) or self._needs_general_path(event):
            return _published_id(event, self._publish(conn, [event]))
        values = build_publish_parameters(event, encode_event(event, self.codecs, self.max_payload))
        transaction.refresh_status(conn)
        transaction.check_open(conn)
        flag_query = self.bell.start_query(database_key_of(conn))
        with ErrorExplainer(self.schema), OwnCursor(conn) as cursor:
            rows = steps.Insert(self.schema, values, flag_query is not None).run(cursor)
        if flag_query is not None:
            flag_query.note_answer(rows)
        self._wake_after_commit(conn)
        self.observers.published((event,))
        return event.event_id

    async def publish_async(
        self, conn: AnyAsync, given: Event | str | Enum | Instance, payload: Any, fields: EventFields
    ) -> UUID | None:
        """Write an event in an asynchronous connection's transaction. Return its id, or None if it was not
        published."""
        # An event is not published if a hook removed it or its idempotency key was used before.
        event = build_event(given, payload, fields, is_borrowed=not self.hooks.has_any)
        if not is_async_psycopg(conn) or self._needs_general_path(event):
            return _published_id(event, await self._publish_async(conn, [event]))
        values = build_publish_parameters(event, encode_event(event, self.codecs, self.max_payload))
        await transaction.refresh_status_async(conn)
        transaction.check_open(conn)
        flag_query = self.bell.start_query(database_key_of(conn))
        with ErrorExplainer(self.schema):
            async with AsyncOwnCursor(conn) as cursor:
                rows = await steps.Insert(self.schema, values, flag_query is not None).run_async(cursor)
        if flag_query is not None:
            flag_query.note_answer(rows)
        self._wake_after_commit(conn)
        self.observers.published((event,))
        return event.event_id

    def publish_many(self, conn: AnySync, events: Iterable[Event | Instance]) -> list[UUID | None]:
        """Write all events or none, in order, and return their ids, or None for a used idempotency key."""
        # The events are written into the log in the caller's transaction.
        return self._publish(conn, build_events(events, is_borrowed=not self.hooks.has_any))[1]

    async def publish_many_async(self, conn: AnyAsync, events: Iterable[Event | Instance]) -> list[UUID | None]:
        """Write all events or none in an asynchronous connection's transaction, and return their ids."""
        # The events are written in order, in the connection's transaction. An id is None if the idempotency key was
        # used before.
        return (await self._publish_async(conn, build_events(events, is_borrowed=not self.hooks.has_any)))[1]

    def _publish(self, conn: AnySync, events: list[Event]) -> PublishedBatch:
        adapter = integrations.sync_adapter_of(conn)
        self.hooks.check_sync()
        adapter.require_transaction()
        reporter = self._find_reporter(adapter)
        events = self.hooks.run_before(events)
        with self._with_observer_headers(events) as events, ErrorExplainer(self.schema):
            ids, published = adapter.run(self._write_steps(events, adapter, reporter, self.hooks.notify))
        if published:
            self.observers.published(published)
            self.hooks.notify(HookMoment.AFTER_PUBLISH, published)
        return events, ids

    async def _publish_async(self, conn: AnyAsync, events: list[Event]) -> PublishedBatch:
        adapter = integrations.async_adapter_of(conn)
        await adapter.require_transaction()
        reporter = self._find_reporter(adapter)
        events = await self.hooks.run_before_async(events)
        with self._with_observer_headers(events) as events, ErrorExplainer(self.schema):
            writing = self._write_steps(events, adapter, reporter, self.hooks.notify_async)
            ids, published = await adapter.run(writing)
        if published:
            self.observers.published(published)
            await self.hooks.notify_async(HookMoment.AFTER_PUBLISH, published)
        return events, ids

    def _needs_general_path(self, event: Event) -> bool:
        return self.hooks.has_any or event.idempotency_key is not None or self.observers.has_hook("publishing")

    @contextmanager
    def _with_observer_headers(self, events: list[Event]) -> Iterator[list[Event]]:
        # The block runs inside the observers' `publishing` context.
        if not events:
            yield events
            return
        with self.observers.publishing(events) as headers:
            yield [event.with_headers(headers) for event in events] if headers else events

    def _find_reporter(self, adapter: BaseAdapter) -> EndReporter | None:
        """Return the object that reports the end of the transaction, or None if nothing needs it."""
        # Hooks and embedded workers may need it. PublishError is raised if a hook needs an end that cannot be reported.
        if not self.hooks.needs_end:
            return adapter.end_reporter() if COMMIT in adapter.tells and self.workers else None
        wanted = {
            COMMIT: self.hooks.by_moment[HookMoment.AFTER_COMMIT],
            ROLLBACK: self.hooks.by_moment[HookMoment.AFTER_ROLLBACK],
        }
        if any(hooks and end not in adapter.tells for end, hooks in wanted.items()):
            raise PublishError(
                "there are after_commit or after_rollback hooks, and this connection cannot report how its "
                f"transaction ends: {adapter.untold}"
            )
        return adapter.end_reporter()

    def _write_steps(
        self, events: list[Event], adapter: BaseAdapter, reporter: EndReporter | None, notify: Callable[..., Any]
    ) -> steps.Steps[tuple[list[UUID | None], list[Event]]]:
        batch = encode_events(events, self.codecs, self.max_payload)
        flag_query = self.bell.start_query(adapter.database()) if events else None
        ids = yield from write_events(self.schema, events, batch, flag_query, copies=adapter.copies)
        published = [event for event, event_id in zip(events, ids, strict=True) if event_id is not None]
        if reporter is not None and published:
            if self.workers:
                reporter.wake_after_commit(self.workers.wake)
            if self.hooks.needs_end:
                yield from self._register_hooks(reporter, partial(notify, events=published))
        return ids, published

    def _wake_after_commit(self, conn: transaction.AnyConnection) -> None:
        reporter = transaction_outcome.find_transaction_end(conn)
        if reporter is not None:
            reporter.wake_after_commit(self.workers.wake)

    def _register_hooks(self, reporter: EndReporter, notify: Callable[[HookMoment], Any]) -> steps.Steps[None]:
        # The `after_commit` and `after_rollback` hooks are called for the events just published when the transaction
        # ends.
        # The mark goes into the transaction before the calls are registered, so that a rollback to a savepoint removes
        # the mark together with the events.
        mark = reporter.draw_savepoint_mark()
        if mark is not None:
            yield steps.Query(statements.publish_mark(self.schema), {"mark": str(mark)}, wants_rows=False)
        if self.hooks.by_moment[HookMoment.AFTER_COMMIT]:
            reporter.on_commit(partial(notify, HookMoment.AFTER_COMMIT))
        if self.hooks.by_moment[HookMoment.AFTER_ROLLBACK]:
            reporter.on_rollback(partial(notify, HookMoment.AFTER_ROLLBACK))


def _published_id(event: Event, batch: PublishedBatch) -> UUID | None:
    # A hook may have put several events in the place of the event. Then the id is the id of the first.
    events, ids = batch
    own = (place for place, each in enumerate(events) if each.event_id == event.event_id)
    return ids[next(own, 0)] if ids else None
