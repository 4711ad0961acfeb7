"""Writes events into the log: one by a statement, few by a pipeline of statements, many by COPY.

COPY is used from `COPY_FROM` events: below it single inserts in one pipeline are as fast (they share a prepared
statement), above it COPY wins, threefold at two hundred; arrays with `unnest` lose to both. Delays count from the
database's clock; COPY evaluates no expressions, so the time is read first. A staging table would save that round trip
and cost every publisher a change of the catalog.

Who inserts asks inline whether a worker sleeps, and rings; COPY cannot, so a statement follows it.

Idempotency keys cost no further round trip for one event, and one for all events of a list. The first to commit owns a
key: a concurrent holder is waited for. (In a REPEATABLE READ or SERIALIZABLE transaction PostgreSQL raises a
serialization failure where the holder has committed since its snapshot.)
"""

import logging
from itertools import compress
from uuid import UUID

from partbox.db import statements
from partbox.events import Event
from partbox.observe.logs.log_event import log_event
from partbox.publish.bell import Inquirer, payloads
from partbox.publish.fields import COLUMNS, UNTIMED, Fields, is_timed, parameters, timed
from partbox.publish.steps import Copy, Execute, Inquiry, Query, Repeat, Steps

COPY_FROM = 8

log = logging.getLogger("partbox.publish")


def write(
    schema: str, events: list[Event], batch: list[Fields], asked: Inquirer | None, *, copies: bool
) -> Steps[list[UUID | None]]:
    """Write the events, whose fields are in `batch`; return their ids, None if the idempotency key was used before.

    `asked`: ring, if anybody sleeps. `copies` = COPY is possible on this connection.
    """
    if len(events) == 1:
        fresh = [(yield from _one(schema, events[0], batch[0], asked))]
    else:
        fresh = yield from _take_keys(schema, events)
        yield from _many(schema, [*compress(events, fresh)], [*compress(batch, fresh)], asked, copies)
    return [_id(event, is_fresh) for event, is_fresh in zip(events, fresh, strict=True)]


def _one(schema: str, event: Event, fields: Fields, asked: Inquirer | None) -> Steps[bool]:
    if event.idempotency_key is None and asked is None:
        yield Execute(statements.publish(schema), parameters(event, fields))
        return True
    if event.idempotency_key is None and asked is not None:
        asked.heard((yield Inquiry(statements.publish_ringing(schema), parameters(event, fields))))
        return True
    return bool((yield Query(statements.publish_once(schema), parameters(event, fields))))


def _take_keys(schema: str, events: list[Event]) -> Steps[list[bool]]:
    """Take the keys of the events; True for each event without a key, or the first to use it."""
    first: dict[str, int] = {}
    for place, event in enumerate(events):
        if event.idempotency_key is not None:
            first.setdefault(event.idempotency_key, place)
    if not first:
        return [True] * len(events)
    places = [*first.values()]
    given = {"keys": [*first], "event_ids": [events[place].event_id for place in places], "places": places}
    taken = {place for (place,) in (yield Query(statements.take_keys(schema), given))}
    return [event.idempotency_key is None or place in taken for place, event in enumerate(events)]


def _many(schema: str, events: list[Event], batch: list[Fields], asked: Inquirer | None, copies: bool) -> Steps[None]:
    if not events:
        return
    if not copies or len(events) < COPY_FROM:
        statement = statements.publish(schema) if asked is None else statements.publish_ringing(schema)
        yield Repeat(statement, map(parameters, events, batch))
        return
    yield from _copy(schema, events, batch)
    if asked is not None:  # once the ids are drawn, so not before: see `partbox.rules.bell`
        partitions = payloads([fields[0] for fields in batch])
        asked.heard((yield Query(statements.ring(schema), {"partitions": partitions})))


def _copy(schema: str, events: list[Event], batch: list[Fields]) -> Steps[None]:
    if any(map(is_timed, events)):
        ((clock,),) = yield Query(statements.publish_clock(schema), {})
        yield Copy(statements.publish_copy_timed(schema), schema, COLUMNS, timed(events, batch, clock))
    else:
        yield Copy(statements.publish_copy(schema), schema, UNTIMED, batch)


def _id(event: Event, is_fresh: bool) -> UUID | None:
    if is_fresh:
        return event.event_id
    text = "event %s of type %r is not published: its idempotency key %r was used before"
    id, kind = str(event.event_id), event.event_type
    log_event(log, "duplicate", text, id, kind, event.idempotency_key, event_id=id, event_type=kind)
    return None
