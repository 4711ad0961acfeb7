"""Search for records in the log, with the history of each record."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import Enum
from functools import partial
from typing import Any, Final, TypedDict, Unpack
from uuid import UUID

from psycopg import IsolationLevel

from partbox.classes import Instance
from partbox.db.inspect import log_search
from partbox.db.inspect.found import FoundRecords, load_records
from partbox.db.inspect.log_search import RecordFilter, SearchPage
from partbox.db.operator.dead import resolve_time_span
from partbox.db.sql import Conn, fetch_one_row, fetch_rows
from partbox.errors import PartboxError
from partbox.operations import arguments
from partbox.operations.arguments import ArgumentError
from partbox.operations.session import OperatorCommands
from partbox.text.wording import format_hint

MAX_LIMIT: Final = 200  # records
DEFAULT_PERIOD: Final = 86_400.0  # seconds before now to which a search by ending is limited by default
AGGREGATE, EVENT, KEY, RECORD = "aggregate id", "event id", "idempotency key", "record id"
TYPED_AGGREGATE: Final = "aggregate"
# Lookups that read little, and so are tried even after another lookup has found records.
CHEAP_LOOKUPS: Final = (KEY, RECORD)
NAME_KEYWORDS: Final = ("aggregate", "event", "key", "record")
# The outcomes in the tables `attempt` and `cancellation` that each value of `ended` stands for. "unhandled" is the
# outcome of an event without a handler.
OUTCOMES_OF_ENDING: Final = {
    "dead": ("dead",),
    "discarded": ("discarded",),
    "cancelled": ("cancelled",),
    "skipped": ("skipped",),
    "replayed": ("replayed",),
    "ignored": ("ignored", "unhandled"),
    "twice": ("repeated",),
    "failed": ("failed", "dead", "ignored", "interrupted"),
}


class RecordChoice(TypedDict, total=False):
    """Keyword arguments that filter every search for records: types, tenant, publishing time, and ids below
    `before`."""

    event_type: str | Enum | type[Instance] | None
    aggregate_type: str | Enum | None
    tenant: str | None
    since: arguments.Bound | None
    until: arguments.Bound | None
    before: int | None


class RecordQuery(RecordChoice, total=False):
    """Keyword arguments of a record search: filters, and at most one of `aggregate`, `event`, `key` and `record`."""

    aggregate: arguments.AggregateId | None
    event: UUID | str | None
    key: str | None
    record: int | str | None


Lookup = Callable[[Conn, str, RecordFilter, int], SearchPage]
# Lookups by the meaning they give to the query, in the order in which they are tried.
Lookups = dict[str | None, Lookup]

CHECKS: Final[Mapping[str, Callable[[str, Any], Any]]] = {
    "event_type": arguments.event_type_name,
    "aggregate_type": arguments.check_kind,
    "tenant": arguments.check_text,
    "since": arguments.parse_bound,
    "until": arguments.parse_bound,
    "before": lambda name, value: _parse_record_id(name, value),
}


class RecordSearch(OperatorCommands):
    """A search for records in the log, with their delivery state in each subscription. Searches change nothing."""

    _group_name = "find"

    def find(
        self,
        what: str | int | UUID | None = None,
        *,
        limit: int = 20,
        ended: str | None = None,
        subscription: str | None = None,
        payload: bool = False,
        **query: Unpack[RecordQuery],
    ) -> FoundRecords:
        """Return at most `limit` (up to 200) records, newest first, with their delivery state in every subscription.

        `what` is an aggregate as logs name it (`Order/28`), an aggregate id, an event id, an idempotency key or a
        record id; the first meaning that finds records counts. The keywords `aggregate`, `event`, `key` and `record`
        state the meaning. Without any of them, all records match. The records also match `event_type`, `aggregate_type`
        and `tenant`, were published from `since` (inclusive) to `until` (exclusive), and have ids below `before`. A
        time is a datetime, or a length such as "2h" for two hours ago. `subscription` limits the states to one
        subscription, and `payload` includes the payloads.

        `ended` is one of dead, discarded, cancelled, skipped, replayed, ignored, twice and failed. With it, `since`
        (default: a day ago) and `until` bound the time of that ending, and the latest ending comes first. "twice" means
        that a record may have run twice, because a process died that ran it. "failed" means that any attempt failed.

        The work is bounded, and `read_since` of the result tells how far an incomplete search has read. Raise
        PartboxError with a remedy for invalid arguments, and psycopg.Error if the database cannot be reached."""
        if arguments.check_limit(limit) > MAX_LIMIT:
            raise PartboxError(
                f"limit {limit} is too much: give at most {MAX_LIMIT}, then search `before` the last record"
            )
        lookups, choice = _build_lookups(what, query), _check_query(query)
        if ended is not None:
            lookups = _build_outcome_lookup(ended, lookups, subscription)
            choice.setdefault("since", DEFAULT_PERIOD)
        with self._open_session(subscription) as conn:
            # All statements read one snapshot.
            conn.isolation_level = IsolationLevel.REPEATABLE_READ
            with conn.transaction():
                fetch_rows(conn, "stats_plan", self._schema, limit=None)
                record_filter = self._build_filter(conn, choice)
                return self._try_lookups(
                    conn, lookups or {None: log_search.find_newest}, record_filter, limit, subscription, payload
                )

    def _try_lookups(
        self,
        conn: Conn,
        lookups: Lookups,
        record_filter: RecordFilter,
        limit: int,
        subscription: str | None,
        payload: bool,
    ) -> FoundRecords:
        """Try several meanings of a search text in order, and load the records that the first match finds."""
        # The result also names the other meanings of the text under which a cheap lookup finds records.
        meant, search_page, others = None, SearchPage(), list[str]()
        for meaning, lookup in lookups.items():
            if not search_page.positions:
                found = lookup(conn, self._schema, record_filter, limit)
                meant, search_page = (
                    meaning,
                    found if found.positions or search_page.read_since is None else search_page,
                )
            elif meaning in CHEAP_LOOKUPS and lookup(conn, self._schema, record_filter, 1).positions:
                others.append(meaning)
        records = load_records(conn, self._schema, search_page.positions, subscription, payload=payload)
        (at,) = fetch_one_row(conn, "moment_ago", self._schema, ago=0)
        before = search_page.before if records or len(lookups) == 1 else None
        return FoundRecords(at, meant if records else None, records, before, search_page.read_since, tuple(others))

    def _build_filter(self, conn: Conn, choice: dict[str, Any]) -> RecordFilter:
        since, until = resolve_time_span(conn, self._schema, choice.get("since"), choice.get("until"))
        return RecordFilter(**choice | {"since": since, "until": until})


def _check_query(query: RecordQuery) -> dict[str, Any]:
    given = {name: query.get(name) for name in RecordChoice.__annotations__}
    meant = {name: CHECKS[name](name, value) for name, value in given.items() if value is not None}
    return {"tenant_id" if name == "tenant" else name: value for name, value in meant.items()}


def _build_lookups(what: str | int | UUID | None, query: RecordQuery) -> Lookups:
    named: dict[str, Any] = {name: query.get(name) for name in NAME_KEYWORDS} | {"what": what}
    given = {name: value for name, value in named.items() if value is not None}
    if unknown := query.keys() - RecordQuery.__annotations__.keys():
        raise TypeError(f"find() has no {', '.join(sorted(unknown))}")
    if len(given) > 1:
        raise PartboxError(f"{' and '.join(given)} are given: give one of them alone to search by")
    match given:
        case {"aggregate": value}:
            return {AGGREGATE: _build_aggregate_lookup(value)}
        case {"event": value}:
            return {EVENT: _build_event_lookup(_parse_event_id(value))}
        case {"key": value}:
            return {KEY: partial(log_search.find_by_key, key=arguments.check_text("key", value))}
        case {"record": value}:
            return {RECORD: partial(log_search.find_by_id, record_id=_parse_record_id("record", value))}
        case {"what": value}:
            typed = query.get("aggregate_type") is None
            return _build_text_lookups(arguments.check_aggregate_id(value), typed=typed)
    return {}


def _build_text_lookups(text: str, *, typed: bool) -> Lookups:
    """Return the possible interpretations of a search text, such as record id or idempotency key, in order of trial."""
    # If `typed` is set, the text may be TYPE/ID. An aggregate id may contain a slash too, so both are tried.
    kind, _, name = text.partition("/")
    if typed and kind and name:
        with suppress(PartboxError):
            lookup = _build_aggregate_lookup(name, arguments.check_kind("aggregate_type", kind))
            return {TYPED_AGGREGATE: lookup} | _build_text_lookups(text, typed=False)
    aggregate, key = _build_aggregate_lookup(text), partial(log_search.find_by_key, key=text)
    with suppress(ValueError):
        return {EVENT: _build_event_lookup(UUID(text)), KEY: key, AGGREGATE: aggregate}
    lookups: Lookups = {AGGREGATE: aggregate, KEY: key}
    with suppress(PartboxError):
        lookups[RECORD] = partial(log_search.find_by_id, record_id=_parse_record_id("record", text))
    return lookups


def _build_aggregate_lookup(value: arguments.AggregateId, aggregate_type: str | None = None) -> Lookup:
    aggregate_id = arguments.check_aggregate_id(value)
    return partial(log_search.find_by_aggregate, aggregate_id=aggregate_id, aggregate_type=aggregate_type)


def _build_event_lookup(event_id: UUID) -> Lookup:
    return partial(log_search.find_by_event, event_id=event_id)


def _parse_event_id(value: UUID | str) -> UUID:
    parsed = _parse_id(value)
    if not isinstance(parsed, UUID):
        raise ArgumentError("event", f"{value!r} is no event id: event ids are UUIDs")
    return parsed


def _parse_record_id(name: str, value: int | str) -> int:
    parsed = _parse_id(value)
    if not isinstance(parsed, int):
        raise ArgumentError(name, f"{value!r} is no record id, such as 42")
    return parsed


def _parse_id(value: arguments.Id) -> int | UUID | None:
    with suppress(PartboxError):
        return arguments.parse_record_or_event(value)
    return None


def _build_outcome_lookup(ended: str, lookups: Lookups, subscription: str | None) -> Lookups:
    if ended not in OUTCOMES_OF_ENDING:
        raise ArgumentError("ended", f"{ended!r} is no ending: {format_hint(ended, OUTCOMES_OF_ENDING)}")
    if lookups:
        raise ArgumentError("ended", f"{ended!r} lists all records that ended so: leave out the id or key")
    return {None: partial(log_search.find_by_outcome, outcomes=OUTCOMES_OF_ENDING[ended], subscription=subscription)}
