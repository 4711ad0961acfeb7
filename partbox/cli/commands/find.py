"""`partbox find`: finds records, and shows their history in every subscription."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer

from partbox.cli.shell.options import OutboxOptions, Since, Until, flag, option, with_option_groups
from partbox.cli.shell.output import ListColumn, build_table, format_time, make_console, print_json, print_list
from partbox.cli.views.payloads import convert_payload, list_payload_lines
from partbox.db.inspect.found import FoundRecord, FoundRecords
from partbox.operations.arguments import parse_bound
from partbox.operations.records import OUTCOMES_OF_ENDING, RecordSearch
from partbox.operations.timeline import summary, timeline
from partbox.text.printing import shorten_line
from partbox.text.wording import format_size

What = Annotated[
    str | None,
    typer.Argument(
        metavar="ID", help="An aggregate (Order/28), aggregate id, event id (UUID), idempotency key or record id."
    ),
]
Payload = Annotated[bool, flag("Show the payloads too.", "--payload")]
Limit = Annotated[int, option("N", "Maximum number of records, up to 200.")]


@dataclass(frozen=True, slots=True)
class RecordNames:
    """Command-line options of `partbox find` that say which kind of id to search for, such as an aggregate's.

    Each option takes the place of the argument ID."""

    aggregate: Annotated[str | None, option("ID", "The records of this aggregate.")] = None
    event: Annotated[str | None, option("UUID", "The record of this event.")] = None
    key: Annotated[str | None, option("KEY", "The record of this idempotency key.")] = None
    record: Annotated[str | None, option("ID", "This record.")] = None


@dataclass(frozen=True, slots=True)
class RecordFilters:
    type: Annotated[str | None, option("TYPE", "Only this event type.")] = None
    aggregate_type: Annotated[str | None, option("TYPE", "Only of this aggregate type.")] = None
    tenant: Annotated[str | None, option("ID", "Only of this tenant.")] = None
    since: Since = None
    until: Until = None
    before: Annotated[str | None, option("ID", "Only records with lower ids: goes on where a list was cut.")] = None
    ended: Annotated[
        str | None,
        option("ENDING", f"Only records that ended so, --since a day ago by default: {', '.join(OUTCOMES_OF_ENDING)}."),
    ] = None
    failed_between: Annotated[
        tuple[str, str] | None, option("FROM TO", "Only records that failed between these times, like --ended failed.")
    ] = None

    def collect_given(self) -> dict[str, Any]:
        # The keys are the names of the filters in Python. Filters that were not given are left out.
        named = asdict(self)
        named["event_type"] = named.pop("type")
        if between := named.pop("failed_between"):
            if clash := [name for name in ("since", "until", "ended") if named[name] is not None]:
                raise typer.BadParameter(f"--failed-between sets --{clash[0]} itself: leave out --{clash[0]}")
            since, until = (parse_bound("--failed-between", each) for each in between)
            named |= {"ended": "failed", "since": since, "until": until}
        return {name: value for name, value in named.items() if value is not None}


@with_option_groups
def find(
    *,
    what: What = None,
    names: RecordNames,
    filters: RecordFilters,
    payload: Payload = False,
    limit: Limit = 20,
    subscription: Annotated[str | None, option("NAME", "Show the states in this subscription only.")] = None,
    outbox: OutboxOptions,
) -> None:
    """Find records, newest first, and show the state of each in every subscription, or the history of a single one.

    A delivery lies between two times: it was not done before the first, and it was saved by the second. Nothing is
    changed, and the work is bounded: a search that ends early says so. Times are the database's, in UTC.

    Example: partbox find 4711

    Example: partbox find Order/28

    Example: partbox find --type OrderPlaced --tenant acme --since 10m

    Example: partbox find --failed-between 2026-01-31T03:00Z 2026-01-31T04:00Z

    Example: partbox find --ended discarded --since 1h
    """
    query = filters.collect_given() | {name: value for name, value in asdict(names).items() if value is not None}
    found = outbox.create_operations(RecordSearch).find(
        what, **query, payload=payload, limit=limit, subscription=subscription
    )
    if outbox.json:
        print_json(_to_json(found, payload))
        return
    if len(found.records) == 1:
        _print_timeline(found.records[0], payload)
    else:
        pairs = [(record, standing) for record in found.records for standing in record.standings]
        print_list(pairs, LIST_COLUMNS, False, nothing=_format_not_found(what))
    for line in _list_hints(found, limit):
        typer.echo(f"\n{line}")


def _to_json(found: FoundRecords, payload: bool) -> dict[str, Any]:
    plain = asdict(found)
    return plain | {"records": [convert_payload(record, payload) for record in plain["records"]]}


def _format_not_found(what: str | None) -> str:
    return "no record" if what is None else f"no record has {shorten_line(what)!r} as its {ANY_ID}"


def _list_hints(found: FoundRecords, limit: int) -> Iterator[str]:
    # The hints name other meanings of the id, how far the search has read, and the options that continue the search.
    for other in found.others:
        yield f"ID was read as {found.meant}; a record with this {other} exists, too: --{OPTION[other]} shows it"
    if found.read_since is None:
        return
    full = len(found.records) >= limit
    stopped = f"the {limit:,} newest" if full else "the work of a search is bounded"
    further = f"--before {found.before} goes on" if found.before is not None else "--since and --until choose a time"
    yield f"{stopped}: nothing from before {format_time(found.read_since)} was read; {further}"


def _print_timeline(record: FoundRecord, payload: bool) -> None:
    details = build_table(("", ""), _list_details(record, payload), lines=True)
    details.show_header = False
    make_console().print(details)
    several = len(record.standings) > 1
    rows = (
        (format_time(each.at) if each.at else "now", *([each.subscription or ""] if several else []), each.text)
        for each in timeline(record)
    )
    columns = ("when", *(["subscription"] if several else []), "what")
    make_console().print(build_table(columns, rows, whole=("when",)))


def _format_aggregate(record: FoundRecord) -> str:
    return record.aggregate_type if record.aggregate_id is None else f"{record.aggregate_type} {record.aggregate_id}"


def _list_details(record: FoundRecord, payload: bool) -> Iterator[tuple[str, str]]:
    yield "record", f"{record.record_id} in partition {record.partition}"
    yield "event", str(record.event_id)
    yield "type", record.event_type
    yield "aggregate", _format_aggregate(record)
    known = {"tenant": record.tenant_id, "trace": record.trace_id, "idempotency key": record.idempotency_key}
    yield from ((name, value) for name, value in known.items() if value is not None)
    yield "occurred", format_time(record.occurred_at)
    yield "payload size", format_size(record.size) + (f" of {record.content_type}" if record.content_type else "")
    yield from (("header", f"{name}: {value}") for name, value in record.headers.items())
    yield from (("traceback", each.traceback) for each in record.standings if each.traceback is not None)
    if payload:
        yield from list_payload_lines(record.payload)
    yield "", ""


ANY_ID = "aggregate (TYPE/ID), aggregate id, event id, idempotency key or record id"
OPTION = {"record id": "record", "idempotency key": "key"}
LIST_COLUMNS = (
    ListColumn("record", lambda pair: str(pair[0].record_id), "number"),
    ListColumn("published", lambda pair: format_time(pair[0].published_at), "whole"),
    ListColumn("type", lambda pair: pair[0].event_type),
    ListColumn("aggregate", lambda pair: _format_aggregate(pair[0])),
    ListColumn("size", lambda pair: format_size(pair[0].size), "number"),
    ListColumn("trace", lambda pair: pair[0].trace_id or "-"),
    ListColumn("subscription", lambda pair: pair[1].subscription),
    ListColumn("what became of it", lambda pair: summary(pair[1])),
)
