"""Publishes one or many events on a synchronous or asynchronous connection.

Fast path: one event without a key, without hooks, on a connection of psycopg. The general path, through an adapter,
takes a fifth more CPU time.
"""

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
from partbox.publish.adapter import COMMIT, ROLLBACK, Library
from partbox.publish.arguments import event_of, events_of
from partbox.publish.bell import Bell, EmbeddedWorkers, place_of
from partbox.publish.failures import Explained
from partbox.publish.fields import all_fields, fields_of, parameters
from partbox.publish.hooks import Moment, PublishHooks
from partbox.publish.integrations.psycopg import is_async_psycopg, is_psycopg
from partbox.publish.transaction_outcome import EndReporter
from partbox.publish.writing import write

Batch = tuple[list[Event], list[UUID | None]]
"""The events after hooks, and the id of each; None if its idempotency key was used before."""


@dataclass(frozen=True, slots=True)
class Publisher:
    """Publishes into one schema. Every method raises PublishError before anything is written.

    It leaves the connection as it was: it neither commits nor changes it. `max_payload` is in bytes; `workers` are
    those of this process, which are woken after a commit that the connection reports.
    """

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
        """Write the event in the caller's transaction; its id, or None if a hook or its key prevented that."""
        event = event_of(given, payload, fields, lent=not self.hooks.exist)
        if not is_psycopg(conn) or self._is_special(event):
            return _id_of(event, self._publish(conn, [event]))
        values = parameters(event, fields_of(event, self.codecs, self.max_payload))
        transaction.settle(conn)
        transaction.check(conn)
        asked = self.bell.asking(place_of(conn))
        with Explained(self.schema), OwnCursor(conn) as cursor:
            rows = steps.Insert(self.schema, values, asked is not None).run(cursor)
        if asked is not None:
            asked.heard(rows)
        self._wake_after(conn)
        self.observers.published((event,))
        return event.event_id

    async def publish_async(
        self, conn: AnyAsync, given: Event | str | Enum | Instance, payload: Any, fields: EventFields
    ) -> UUID | None:
        event = event_of(given, payload, fields, lent=not self.hooks.exist)
        if not is_async_psycopg(conn) or self._is_special(event):
            return _id_of(event, await self._publish_async(conn, [event]))
        values = parameters(event, fields_of(event, self.codecs, self.max_payload))
        await transaction.settle_async(conn)
        transaction.check(conn)
        asked = self.bell.asking(place_of(conn))
        with Explained(self.schema):
            async with AsyncOwnCursor(conn) as cursor:
                rows = await steps.Insert(self.schema, values, asked is not None).run_async(cursor)
        if asked is not None:
            asked.heard(rows)
        self._wake_after(conn)
        self.observers.published((event,))
        return event.event_id

    def publish_many(self, conn: AnySync, events: Iterable[Event | Instance]) -> list[UUID | None]:
        """Write the events in order, all of them or none; their ids in that order, None if an idempotency key was used
        before."""
        return self._publish(conn, events_of(events, lent=not self.hooks.exist))[1]

    async def publish_many_async(self, conn: AnyAsync, events: Iterable[Event | Instance]) -> list[UUID | None]:
        return (await self._publish_async(conn, events_of(events, lent=not self.hooks.exist)))[1]

    def _publish(self, conn: AnySync, events: list[Event]) -> Batch:
        adapter = integrations.sync_of(conn)
        self.hooks.check_sync()
        adapter.require_transaction()
        reports = self._reports(adapter)
        events = self.hooks.before(events)
        with self._observed(events) as events, Explained(self.schema):
            ids, published = adapter.run(self._writing(events, adapter, reports, self.hooks.tell))
        if published:
            self.observers.published(published)
            self.hooks.tell(Moment.AFTER_PUBLISH, published)
        return events, ids

    async def _publish_async(self, conn: AnyAsync, events: list[Event]) -> Batch:
        adapter = integrations.async_of(conn)
        await adapter.require_transaction()
        reports = self._reports(adapter)
        events = await self.hooks.before_async(events)
        with self._observed(events) as events, Explained(self.schema):
            writing = self._writing(events, adapter, reports, self.hooks.tell_async)
            ids, published = await adapter.run(writing)
        if published:
            self.observers.published(published)
            await self.hooks.tell_async(Moment.AFTER_PUBLISH, published)
        return events, ids

    def _is_special(self, event: Event) -> bool:
        """True if the event must take the general path."""
        return self.hooks.exist or event.idempotency_key is not None or self.observers.hears("publishing")

    @contextmanager
    def _observed(self, events: list[Event]) -> Iterator[list[Event]]:
        """The events with the headers that observers add."""
        if not events:
            yield events
            return
        with self.observers.publishing(events) as headers:
            yield [event.with_headers(headers) for event in events] if headers else events

    def _reports(self, adapter: Library) -> EndReporter | None:
        """The reporter of the end of the transaction, if needed; PublishError if a hook needs an end that cannot be
        reported."""
        if not self.hooks.follow:
            return adapter.end_reporter() if COMMIT in adapter.tells and self.workers else None
        wanted = {COMMIT: self.hooks.of[Moment.AFTER_COMMIT], ROLLBACK: self.hooks.of[Moment.AFTER_ROLLBACK]}
        if any(hooks and end not in adapter.tells for end, hooks in wanted.items()):
            raise PublishError(
                "there are after_commit or after_rollback hooks, and this connection cannot report how its "
                f"transaction ends: {adapter.untold}"
            )
        return adapter.end_reporter()

    def _writing(
        self, events: list[Event], adapter: Library, reports: EndReporter | None, tell: Callable[..., Any]
    ) -> steps.Steps[tuple[list[UUID | None], list[Event]]]:
        """Write the events; their ids, and those that were published."""
        batch = all_fields(events, self.codecs, self.max_payload)
        asked = self.bell.asking(adapter.database()) if events else None
        ids = yield from write(self.schema, events, batch, asked, copies=adapter.copies)
        published = [event for event, event_id in zip(events, ids, strict=True) if event_id is not None]
        if reports is not None and published:
            if self.workers:
                reports.wake_after_commit(self.workers.wake)
            if self.hooks.follow:
                yield from self._follow(reports, partial(tell, events=published))
        return ids, published

    def _wake_after(self, conn: transaction.AnyConnection) -> None:
        reports = transaction_outcome.of(conn)
        if reports is not None:
            reports.wake_after_commit(self.workers.wake)

    def _follow(self, reports: EndReporter, tell: Callable[[Moment], Any]) -> steps.Steps[None]:
        """Register the hooks with the end of the transaction for the events just published."""
        mark = reports.savepoint_mark()
        if mark is not None:
            yield steps.Query(statements.publish_mark(self.schema), {"mark": str(mark)}, waits=False)
        if self.hooks.of[Moment.AFTER_COMMIT]:
            reports.on_commit(partial(tell, Moment.AFTER_COMMIT))
        if self.hooks.of[Moment.AFTER_ROLLBACK]:
            reports.on_rollback(partial(tell, Moment.AFTER_ROLLBACK))


def _id_of(event: Event, batch: Batch) -> UUID | None:
    """The id of the event, or of the first of those that replace it."""
    events, ids = batch
    own = (place for place, each in enumerate(events) if each.event_id == event.event_id)
    return ids[next(own, 0)] if ids else None
