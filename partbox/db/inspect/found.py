"""Records found in the log, with their delivery status and history in each subscription."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import orjson

from partbox.db.inspect.log_search import LogPosition
from partbox.db.sql import Conn, fetch_rows
from partbox.events.checks import HEADER_PREFIX, IDEMPOTENCY_HEADER
from partbox.protocol.delivery_status import (
    Delivery,
    DeliveryFacts,
    DeliveryStatus,
    HistoryEntry,
    ParkedState,
    derive_status,
)
from partbox.text.secrets import mask_headers, mask_optional

MAX_AHEAD: Final = 1_000  # records before one that are counted
TRACE_HEADER: Final = "traceparent"


@dataclass(frozen=True, slots=True)
class FoundRecord:
    """A record found in the log: its event data, and its delivery status in each subscription."""

    # `size` is the number of bytes of the payload. `payload` is verbatim JSON text or bytes, None unless it was read.
    # `headers` are the publisher's own, with secrets masked as in errors. `trace_id` is from the header `traceparent`.

    record_id: int
    event_id: UUID
    event_type: str
    aggregate_type: str
    aggregate_id: str | None
    tenant_id: str | None
    partition: int
    published_at: datetime
    occurred_at: datetime
    available_at: datetime | None
    content_type: str | None
    size: int
    headers: dict[str, str]
    trace_id: str | None
    idempotency_key: str | None
    payload: str | bytes | None = field(repr=False)
    standings: tuple[DeliveryStatus, ...]


@dataclass(frozen=True, slots=True)
class FoundRecords:
    """The records that a search of the log has found at one moment of the database's clock, the newest first.

    - `meant`: how the text was understood, None if there was no text
    - `others`: other meanings of the text, whose records are not listed
    - `read_since`: None if the search is complete. Otherwise the search has read no further back than records that were
      published, or had their outcome, at this time.
    - `before`: an incomplete search continues below this record id, None if it cannot"""

    at: datetime
    meant: str | None
    records: tuple[FoundRecord, ...]
    before: int | None = None
    read_since: datetime | None = None
    others: tuple[str, ...] = ()


def load_records(
    conn: Conn, schema: str, positions: Sequence[LogPosition], subscription: str | None = None, *, payload: bool = False
) -> tuple[FoundRecord, ...]:
    """Load the records at the given log positions, with their delivery status by subscription."""
    # The records are in order. The status is for one or all subscriptions. Missing records are skipped.
    chosen = {"ids": [each.record_id for each in positions], "partitions": [each.partition for each in positions]}
    standings = _load_statuses(conn, schema, chosen | {"subscription": subscription})
    found = {row[0]: row for row in fetch_rows(conn, "find_records", schema, **chosen, payload=payload)}
    there = (found[place.record_id] for place in positions if place.record_id in found)
    return tuple(_build_record(row, tuple(standings[row[0]])) for row in there)


def _build_record(row: tuple[Any, ...], standings: tuple[DeliveryStatus, ...]) -> FoundRecord:
    *known, headers, text, data = row
    all_headers: dict[str, str] = orjson.loads(headers) if headers else {}
    own = {name: value for name, value in all_headers.items() if not name.startswith(HEADER_PREFIX)}
    payload = data if text is None else text
    values = (
        *known,
        mask_headers(own),
        _trace_id(all_headers),
        all_headers.get(IDEMPOTENCY_HEADER),
        payload,
        standings,
    )
    return FoundRecord(*values)


def _trace_id(headers: dict[str, str]) -> str | None:
    # The parts of the W3C header `traceparent` are version, trace id, parent id and flags.
    parts = str(headers.get(TRACE_HEADER, "")).split("-")
    return parts[1] if len(parts) >= 4 and len(parts[1]) == 32 else None


def _load_statuses(conn: Conn, schema: str, chosen: dict[str, Any]) -> dict[int, list[DeliveryStatus]]:
    history: dict[tuple[int, str], list[HistoryEntry]] = defaultdict(list)
    for record_id, subscription, *entry, error, who in fetch_rows(conn, "find_history", schema, **chosen):
        values = (*entry, mask_optional(error), who)
        history[record_id, subscription].append(HistoryEntry(*values))
    made: dict[int, list[DeliveryStatus]] = defaultdict(list)
    for record_id, *row in fetch_rows(conn, "find_standings", schema, **chosen, most=MAX_AHEAD + 1):
        made[record_id].append(derive_status(_build_facts(row, tuple(history[record_id, row[0]]))))
    return made


def _build_facts(row: list[Any], history: tuple[HistoryEntry, ...]) -> DeliveryFacts:
    known, parked, delivery = row[:9], row[9:15], row[15:]
    # The last two columns are the error and the traceback.
    parked[-2:] = map(mask_optional, parked[-2:])
    state = None if parked[0] is None else ParkedState(*parked)
    values = (*known, state, None if delivery[0] is None else Delivery(*delivery), history)
    return DeliveryFacts(*values)
