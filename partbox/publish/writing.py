"""Write events into the log: one event by an INSERT, several by an INSERT from JSON, many by COPY.

COPY is used from `COPY_FROM_EVENTS` events or `COPY_FROM_BYTES` bytes on. It has the lowest CPU cost per event, and
takes two round trips, or three to ask whether a worker sleeps. A trigger or rule of the application may silently keep a
row out of the log, so each answer contains the number of written events. If there are too few, the transaction
fails."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from itertools import compress
from operator import not_
from uuid import UUID

from partbox.db import statements
from partbox.errors import PublishError
from partbox.events import Event
from partbox.observe.logs.log_event import log_event
from partbox.protocol.bell import RING_ALL
from partbox.publish.bell import FlagQuery
from partbox.publish.fields import (
    COLUMNS,
    UNTIMED_COLUMNS,
    EventColumns,
    add_times,
    build_publish_parameters,
    count_column_bytes,
    events_to_json,
    has_own_times,
)
from partbox.publish.steps import Copy, Insert, Query, Row, Steps

COPY_FROM_EVENTS = 200
COPY_FROM_BYTES = 1 << 16
MAX_RUNG_SINGLY = 16  # partitions; more are rung by one ring for all

log = logging.getLogger("partbox.publish")


def write_events(
    schema: str, events: list[Event], batch: list[EventColumns], flag_query: FlagQuery | None, *, copies: bool
) -> Steps[list[UUID | None]]:
    """Write encoded events into the log. Return their ids, or None for a used idempotency key."""
    # The INSERT of several events takes one round trip. Below two hundred events of 200 bytes, its CPU cost is no
    # higher than that of COPY. Other ways were measured. Single INSERTs in a pipeline cost two to ten times as much,
    # from two events on, and arrays with `unnest` hardly less. COPY in the binary format saves a tenth of the server's
    # CPU time and costs psycopg a tenth more. Where COPY is impossible, as in a pipeline, a large batch takes several
    # INSERTs.
    # `batch` has the columns of the events. With `flag_query`, ring (notify) if a worker sleeps. `copies` means that
    # COPY is possible on this connection.
    if len(events) == 1:
        fresh = [(yield from _write_one(schema, events[0], batch[0], flag_query))]
    else:
        fresh = yield from _take_keys(schema, events)
        yield from _write_many(schema, [*compress(events, fresh)], [*compress(batch, fresh)], flag_query, copies)
    for event in () if all(fresh) else compress(events, map(not_, fresh)):
        text = "event %s of type %r is not published: its idempotency key %r was used before"
        id, kind = str(event.event_id), event.event_type
        log_event(log, "duplicate", text, id, kind, event.idempotency_key, event_id=id, event_type=kind)
    return [event.event_id if is_fresh else None for event, is_fresh in zip(events, fresh, strict=True)]


def _write_one(schema: str, event: Event, fields: EventColumns, flag_query: FlagQuery | None) -> Steps[bool]:
    values = build_publish_parameters(event, fields)
    if event.idempotency_key is not None:
        statement = statements.publish_once if flag_query is None else statements.publish_once_ringing
        ((is_fresh, _),) = yield Query(statement(schema), values)
        if not is_fresh:
            yield from _check_keys_used(schema, [event.idempotency_key])
        return bool(is_fresh)
    rows = yield Insert(schema, values, flag_query is not None)
    if flag_query is not None:
        flag_query.note_answer(rows)
    if rows is not None and not rows:
        yield from _fail_unwritten(schema)
    return True


def _take_keys(schema: str, events: list[Event]) -> Steps[list[bool]]:
    """Reserve the events' idempotency keys, and return for each event whether it may be published."""
    # This is one round trip for the whole list. The first transaction to commit owns a key, and a concurrent
    # transaction with the same key waits for it. In a REPEATABLE READ or SERIALIZABLE transaction, PostgreSQL raises a
    # serialization failure if the owner has committed since the transaction's snapshot.
    # The answer is True without a key, and for the first event with an unused key.
    first: dict[str, int] = {}
    for place, event in enumerate(events):
        if event.idempotency_key is not None:
            first.setdefault(event.idempotency_key, place)
    if not first:
        return [True] * len(events)
    places = [*first.values()]
    given = {"keys": [*first], "event_ids": [events[place].event_id for place in places], "places": places}
    taken = {place for (place,) in (yield Query(statements.take_keys(schema), given))}
    if used := [key for key, place in first.items() if place not in taken]:
        yield from _check_keys_used(schema, used)
    return [event.idempotency_key is None or place in taken for place, event in enumerate(events)]


def _check_keys_used(schema: str, keys: list[str]) -> Steps[None]:
    """Raise unless every idempotency key that could not be reserved exists already."""
    # A trigger may have kept one of them out of its table.
    if (yield Query(statements.used_keys(schema), {"keys": keys})) != [(len(keys),)]:
        yield from _fail_unwritten(schema)


def _fail_unwritten(schema: str) -> Steps[None]:
    yield Query(statements.refuse_unwritten(schema), {})
    # Reached only if the library did not raise PostgreSQL's error.
    raise PublishError("an event was not written")


def _write_many(
    schema: str, events: list[Event], batch: list[EventColumns], flag_query: FlagQuery | None, copies: bool
) -> Steps[None]:
    if not copies or (len(batch) < COPY_FROM_EVENTS and sum(map(count_column_bytes, batch)) < COPY_FROM_BYTES):
        for piece in _split_batch(batch):
            yield from _insert_several(schema, events[piece], batch[piece], flag_query)
        return
    if any(map(has_own_times, events)):
        ((clock,),) = yield Query(statements.publish_clock(schema), {})
        yield from copy_events(schema, COLUMNS, add_times(events, batch, clock), len(batch))
    else:
        yield from copy_events(schema, UNTIMED_COLUMNS, batch, len(batch))
    # The flag must be read after the ids are drawn; see `partbox.protocol.bell`.
    if flag_query is not None:
        flag_query.note_answer((yield Query(statements.ring(schema), _partitions_to_ring(batch))))


def _split_batch(batch: list[EventColumns]) -> Iterator[slice]:
    """Yield slices of a batch, each small enough for one INSERT."""
    # A slice has at most `COPY_FROM_EVENTS` events, and fewer than `COPY_FROM_BYTES` bytes unless it has only one
    # event.
    begin = size = 0
    for end, fields in enumerate(batch):
        size += count_column_bytes(fields)
        if end > begin and (size >= COPY_FROM_BYTES or end - begin == COPY_FROM_EVENTS):
            yield slice(begin, end)
            begin, size = end, count_column_bytes(fields)
    if batch:
        yield slice(begin, len(batch))


def _insert_several(
    schema: str, events: list[Event], batch: list[EventColumns], flag_query: FlagQuery | None
) -> Steps[None]:
    given = {"events": events_to_json(events, batch), "number": len(batch)}
    if flag_query is None:
        yield Query(statements.publish_several(schema), given, wants_rows=False)
    else:
        ringing = Query(
            statements.publish_several_ringing(schema), given | _partitions_to_ring(batch), wants_rows=False
        )
        flag_query.note_answer((yield ringing))


def _partitions_to_ring(batch: list[EventColumns]) -> dict[str, list[str]]:
    different = sorted({fields[0] for fields in batch})
    return {"partitions": [RING_ALL] if len(different) > MAX_RUNG_SINGLY else [*map(str, different)]}


def copy_events(schema: str, columns: Sequence[str], rows: Iterable[Row], number: int) -> Steps[None]:
    """Copy the rows of `number` events into the log by COPY. Raise unless all were written."""
    statement = statements.publish_copy if columns is UNTIMED_COLUMNS else statements.publish_copy_timed
    copied = yield Copy(statement(schema), schema, columns, rows)
    # A third-party adapter may return no number.
    if copied is not None and copied != number:
        yield from _fail_unwritten(schema)
