"""Dead records of a subscription: list, group, show, replay and discard them."""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any, cast
from uuid import UUID

import orjson

from partbox.db.operator import actions
from partbox.db.sql import Conn, fetch_first_row, fetch_one_row, fetch_records, fetch_rows
from partbox.errors import PartboxError
from partbox.events.checks import HEADER_PREFIX
from partbox.text.secrets import mask_headers, mask_optional
from partbox.text.wording import format_time

Bound = datetime | float | None

CHUNK_SIZE = 500  # records of one transaction, about

# A type begins with a capital letter. A reason that a handler gives, such as "address: unknown", has no type.
_TYPED = re.compile(r"((?:[\w<>]+\.)*[A-Z]\w*|skipped): ?(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class DeadFilters:
    """Conditions that choose dead records (events given up after failures). None means any."""

    # `older_than` is the seconds since death, and `group` is as in `DeadGroup`. The records died at `since` or later,
    # and before `until`. Both are times, or seconds ago until `resolve_times` converts them.

    event_type: str | None = None
    aggregate_type: str | None = None
    aggregate_id: str | None = None
    older_than: float | None = None
    group: int | None = None
    since: datetime | float | None = None
    until: datetime | float | None = None

    def __str__(self) -> str:
        given = {name: value for name, value in asdict(self).items() if value is not None}
        asked = [f"{name} {value if isinstance(value, datetime) else repr(value)}" for name, value in given.items()]
        return f" with {', '.join(asked)}" if asked else ""


@dataclass(frozen=True, slots=True)
class DeadRecord:
    """An event given up after failures in one subscription, with its error but without its payload.

    - `event_id`: None only if the record was removed from the log
    - `error`: at most 4,000 characters. `error_type` is None for a reason without a type.
    - `blocks`: later events of the aggregate wait for it
    - `traceback`: the end of the error's, with the application's frames only. None if no handler raised the error."""

    record_id: int
    event_id: UUID | None
    event_type: str
    aggregate_type: str
    aggregate_id: str | None
    tenant_id: str | None
    attempts: int
    died_at: datetime
    published_at: datetime | None
    error_type: str | None
    error: str | None
    blocks: bool
    traceback: str | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class DeadDetail(DeadRecord):
    """An event given up after failures, with all data that the log holds about it.

    - `payload`: verbatim JSON text or bytes, None unless read"""

    occurred_at: datetime | None
    content_type: str | None
    headers: dict[str, str]
    payload: str | bytes | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class DeadGroup:
    """Events given up after failures that have the same event type and error.

    - Numbers and quoted parts of errors are ignored.
    - `group`: names the group in filters
    - `blocking`: how many of the records block their aggregate
    - `newest`: the record with the highest id"""

    group: int
    records: int
    blocking: int
    died_from: datetime
    died_to: datetime
    newest: DeadRecord


def resolve_times(conn: Conn, schema: str, filters: DeadFilters) -> DeadFilters:
    """Return a copy of the filters in which bounds given in seconds ago are replaced by times."""
    # The database's clock decides.
    since, until = resolve_time_span(conn, schema, filters.since, filters.until)
    return replace(filters, since=since, until=until)


def resolve_time_span(conn: Conn, schema: str, since: Bound, until: Bound) -> tuple[datetime | None, datetime | None]:
    """Convert the bounds of a period to times. Raise `PartboxError` if the period is empty."""
    # The bounds are given as times or seconds ago.
    first, last = _resolve_time(conn, schema, since), _resolve_time(conn, schema, until)
    if first is not None and last is not None and first >= last:
        length = f"from {format_time(first)} until {format_time(last)}"
        raise PartboxError(f'the period {length} is empty: give the earlier time first ("2h" is two hours ago)')
    return first, last


def _resolve_time(conn: Conn, schema: str, bound: Bound) -> datetime | None:
    if bound is None or isinstance(bound, datetime):
        return bound
    (when,) = fetch_one_row(conn, "moment_ago", schema, ago=bound)
    return cast(datetime, when)


def list_records(
    conn: Conn, schema: str, subscription: str, filters: DeadFilters, limit: int, after: int | None = None
) -> list[DeadRecord]:
    """List at most `limit` dead records that match the filters and have ids above `after`, the oldest first."""
    values = _build_filter_values(subscription, filters) | {"limit": limit, "after": after}
    return fetch_records(conn, _build_record, "dead_list", schema, **values)


def list_groups(conn: Conn, schema: str, subscription: str, filters: DeadFilters, limit: int) -> list[DeadGroup]:
    """Group the events given up after failures by event type and error, the largest group first."""
    # The dead records match the filters. At most `limit` groups are returned.
    return fetch_records(
        conn, _build_group, "dead_groups", schema, limit=limit, **_build_filter_values(subscription, filters)
    )


def count_records(conn: Conn, schema: str, subscription: str, filters: DeadFilters) -> int:
    """Count the events of a subscription that were given up after failures and match the filters."""
    return int(fetch_one_row(conn, "dead_count", schema, **_build_filter_values(subscription, filters))[0])


def list_id_chunks(conn: Conn, schema: str, subscription: str, filters: DeadFilters, size: int) -> list[list[int]]:
    """Return the ids of all matching dead records, in chunks of about `size`."""
    # The records of one aggregate stay in one chunk. All ids are read at once, so that a record that dies again after
    # its replay is not replayed again.
    return [
        ids
        for (ids,) in fetch_rows(conn, "dead_chunks", schema, size=size, **_build_filter_values(subscription, filters))
    ]


def list_ids_of_event(conn: Conn, schema: str, subscription: str, event_id: UUID) -> list[int]:
    """Return the ids of a subscription's dead records that carry this event id."""
    found = fetch_rows(conn, "dead_of_event", schema, subscription=subscription, event_id=event_id)
    return [record_id for (record_id,) in found]


def load_detail(conn: Conn, schema: str, subscription: str, record_id: int, *, payload: bool) -> DeadDetail | None:
    """Return the details of one dead record, or None if it is not dead in this subscription."""
    # The payload is read only with `payload`.
    values = {"subscription": subscription, "record_id": record_id, "payload": payload}
    return next(iter(fetch_records(conn, _build_detail, "dead_show", schema, **values)), None)


def replay(
    conn: Conn, schema: str, subscription: str, record_ids: Sequence[int], filters: DeadFilters | None = None
) -> int:
    """Deliver events again that were given up after failures. Return their number."""
    # The records among `record_ids` that are dead are made ready. The action is recorded with `filters` as the choice.
    return _change_records(conn, "dead_replay", schema, subscription, record_ids, filters)


def discard(
    conn: Conn, schema: str, subscription: str, record_ids: Sequence[int], filters: DeadFilters | None = None
) -> int:
    """Mark events that were given up after failures as discarded for good. Return their number."""
    # The records among `record_ids` that are dead are discarded. The action is recorded with `filters` as the choice.
    return _change_records(conn, "dead_discard", schema, subscription, record_ids, filters)


def _change_records(
    conn: Conn, act: str, schema: str, subscription: str, record_ids: Sequence[int], filters: DeadFilters | None
) -> int:
    ids = list(record_ids)
    target = {"record_ids": ids, "filters": filters and asdict(filters)}
    return int(actions.run_action(conn, act, schema, target, subscription=subscription, record_ids=ids)[0][0])


def find_parked_state(conn: Conn, schema: str, subscription: str, record_id: int) -> str | None:
    """Return the state of an event that a subscription has set aside, such as "dead", or None."""
    # None means that the record is not parked (set aside).
    found = fetch_first_row(conn, "parked_state", schema, subscription=subscription, record_id=record_id)
    return found[0] if found else None


def split_error(stored_text: str | None) -> tuple[str | None, str | None]:
    """Split a stored error into its type and its text, without secrets."""
    # The stored text is "Type: text", or a text alone.
    shown = mask_optional(stored_text)
    match = _TYPED.fullmatch(shown) if shown is not None else None
    return (match[1], match[2]) if match else (None, shown)


def _build_record(*row: Any) -> DeadRecord:
    *known, error, blocks, traceback = row
    values = (*known, *split_error(error), blocks, mask_optional(traceback))
    return DeadRecord(*values)


def _build_detail(*row: Any) -> DeadDetail:
    *known, error, blocks, traceback, occurred_at, content_type, headers, text, data = row
    payload = data if text is None else text
    more = (occurred_at, content_type, _parse_headers(headers), payload)
    values = (*known, *split_error(error), blocks, mask_optional(traceback), *more)
    return DeadDetail(*values)


def _build_group(*row: Any) -> DeadGroup:
    values = (*row[:5], _build_record(*row[5:]))
    return DeadGroup(*values)


def _parse_headers(text: str | None) -> dict[str, str]:
    headers = orjson.loads(text) if text else {}
    return mask_headers({name: value for name, value in headers.items() if not name.startswith(HEADER_PREFIX)})


def _build_filter_values(subscription: str, filters: DeadFilters) -> dict[str, Any]:
    return {"subscription": subscription, **asdict(filters)}
