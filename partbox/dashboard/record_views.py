"""Records as the page shows them, as plain data. Each call opens a connection of its own, and raises PartboxError and
psycopg.Error. Only `payload` reads payloads."""

import re
from collections.abc import Callable
from typing import Any

from partbox.dashboard.page_text import LONG, cut, plain, visible
from partbox.dashboard.payload_tree import tree
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

    def find(self, what: str | None, before: int | None, filters: dict[str, Any]) -> Plain:
        """Search for records, and return a page of results, newest first. `before` is null if there are no more."""
        found = self._search.find(what, limit=PAGE, before=before, **filters)
        records = [_row(each) for each in found.records]
        return plain(found, "at", "meant", "before", "read_since", others=[*found.others], records=records)

    def show(self, record_id: int) -> Plain:
        """Return the details of one record with its full texts, history and headers, but without its payload."""
        record = self._find_one(record_id)
        names = ("tenant_id", "partition", "published_at", "occurred_at", "available_at", "content_type", "size")
        return _row(record) | plain(
            record,
            *names,
            "idempotency_key",
            event=str(record.event_id),
            aggregate_type=visible(record.aggregate_type),
            aggregate_id=record.aggregate_id and visible(record.aggregate_id),
            event_type=visible(record.event_type),
            trace=record.trace_id if TRACE_ID.fullmatch(record.trace_id or "") else None,
            headers=[[cut(name), _whole(value)] for name, value in record.headers.items()],
            standings=[_plain_status(each) for each in record.standings],
            timeline=[plain(each, "at", "subscription", text=cut(each.text, 2 * LONG)) for each in timeline(record)],
        )

    def payload(self, record_id: int) -> Plain:
        return tree(self._find_one(record_id, payload=True).payload)

    def _find_one(self, record_id: int, *, payload: bool = False) -> FoundRecord:
        found = self._search.find(record=record_id, payload=payload)
        if not found.records:
            raise PartboxError(f"record {record_id} is not in the log: a purge has removed it, or it never was there")
        return found.records[0]


def _row(record: FoundRecord) -> Plain:
    states = [plain(each, "subscription", "state", "attempts") for each in record.standings]
    names = ("event_type", "aggregate_type", "aggregate_id", "published_at")
    return plain(record, *names, record=record.record_id, states=states)


def _plain_status(each: DeliveryStatus) -> Plain:
    said = cut(summary(each), 2 * LONG)
    return plain(
        each,
        "state",
        "attempts",
        # Not shortened, because actions name the subscription.
        subscription=each.subscription,
        label=cut(each.subscription),
        summary=said,
        error=_whole(each.error),
        traceback=_whole(each.traceback),
    )


def _whole(text: str | None) -> str | None:
    return text and visible(text, keep="\n\t")
