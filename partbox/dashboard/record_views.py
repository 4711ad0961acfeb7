"""Records as the page shows them, as plain data. Each call opens a connection of its own, and raises PartboxError and
psycopg.Error. Only `payload` reads payloads."""

import re
from collections.abc import Callable
from typing import Any

from partbox.dashboard.page_text import LONG, build_plain, cut_text, escape_invisible
from partbox.dashboard.payload_tree import build_tree
from partbox.db.inspect.found import FoundRecord
from partbox.errors import PartboxError
from partbox.operations.records import RecordSearch
from partbox.operations.timeline import summary, timeline
from partbox.protocol.delivery_status import DeliveryStatus
from partbox.settings import Settings

PAGE = 50
TRACE_ID = re.compile(r"[0-9a-f]{32}")

Plain = dict[str, Any]


class RecordViews:
    def __init__(self, dsn: Callable[[], str], settings: Settings) -> None:
        self._search = RecordSearch(dsn, settings)

    def find_records(self, what: str | None, before: int | None, filters: dict[str, Any]) -> Plain:
        """Search for records, and return one page of results, newest first."""
        # In the page, `before` is null if there are no more results.
        found = self._search.find(what, limit=PAGE, before=before, **filters)
        records = [_build_row(each) for each in found.records]
        return build_plain(found, "at", "meant", "before", "read_since", others=[*found.others], records=records)

    def show_record(self, record_id: int) -> Plain:
        """Return the details of one record with its full texts, history and headers, but without its payload."""
        record = self._find_one(record_id)
        names = ("tenant_id", "partition", "published_at", "occurred_at", "available_at", "content_type", "size")
        return _build_row(record) | build_plain(
            record,
            *names,
            "idempotency_key",
            event=str(record.event_id),
            aggregate_type=escape_invisible(record.aggregate_type),
            aggregate_id=record.aggregate_id and escape_invisible(record.aggregate_id),
            event_type=escape_invisible(record.event_type),
            trace=record.trace_id if TRACE_ID.fullmatch(record.trace_id or "") else None,
            headers=[[cut_text(name), _escape_lines(value)] for name, value in record.headers.items()],
            standings=[_build_status(each) for each in record.standings],
            timeline=[
                build_plain(each, "at", "subscription", text=cut_text(each.text, 2 * LONG)) for each in timeline(record)
            ],
        )

    def read_payload(self, record_id: int) -> Plain:
        return build_tree(self._find_one(record_id, payload=True).payload)

    def _find_one(self, record_id: int, *, payload: bool = False) -> FoundRecord:
        found = self._search.find(record=record_id, payload=payload)
        if not found.records:
            raise PartboxError(f"record {record_id} is not in the log: a purge has removed it, or it never was there")
        return found.records[0]


def _build_row(record: FoundRecord) -> Plain:
    states = [build_plain(each, "subscription", "state", "attempts") for each in record.standings]
    names = ("event_type", "aggregate_type", "aggregate_id", "published_at")
    return build_plain(record, *names, record=record.record_id, states=states)


def _build_status(each: DeliveryStatus) -> Plain:
    said = cut_text(summary(each), 2 * LONG)
    return build_plain(
        each,
        "state",
        "attempts",
        # Not shortened, because actions name the subscription.
        subscription=each.subscription,
        label=cut_text(each.subscription),
        summary=said,
        error=_escape_lines(each.error),
        traceback=_escape_lines(each.traceback),
    )


def _escape_lines(text: str | None) -> str | None:
    return text and escape_invisible(text, keep="\n\t")
