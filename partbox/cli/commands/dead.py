"""`partbox dead`: records that no worker tries any more: list, replay, discard."""

from base64 import b64encode
from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated, Any

import orjson
import typer

from partbox.cli.shell.confirm import confirm, progressing
from partbox.cli.shell.database import database
from partbox.cli.shell.flags import load
from partbox.cli.shell.options import Dsn, Group, Json, Schema, Since, Subscription, Until
from partbox.cli.shell.output import console, counted, in_short, moment, print_json, table
from partbox.db.operator.dead import DeadDetail, DeadGroup, DeadRecord
from partbox.errors import PartboxError
from partbox.operations.dead import DeadRecords

app = typer.Typer(
    help="Dead records: those that no worker tries any more. Look at them, replay them, discard them.",
    no_args_is_help=True,
)

Type = Annotated[str | None, typer.Option("--type", metavar="TYPE", show_default=False, help="Only this event type.")]
AggregateType = Annotated[
    str | None, typer.Option(metavar="TYPE", show_default=False, help="Only of this aggregate type.")
]
AggregateId = Annotated[str | None, typer.Option(metavar="ID", show_default=False, help="Only of this aggregate.")]
OlderThan = Annotated[
    str | None, typer.Option(metavar="TIME", show_default=False, help="Only records dead for longer, such as 2h or 7d.")
]
Limit = Annotated[int, typer.Option(metavar="N", help="Maximum number of records.")]
Id = Annotated[str, typer.Argument(metavar="ID", show_default=False, help="A record id, or an event id (UUID).")]
OneId = Annotated[
    str | None, typer.Argument(metavar="ID", show_default=False, help="A record id, or an event id (UUID).")
]
All = Annotated[bool, typer.Option("--all", help="All that match the filters, instead of one.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
Payload = Annotated[bool, typer.Option("--payload", help="Show the payload too.")]

COLUMNS = ("record", "died", "type", "aggregate", "attempts", "error")
GROUPED = ("records", "blocking", "first died", "last died", "type", "newest", "its error")
MEANWHILE = "workers deliver them before what waits of their aggregates; what was delivered since they died stays so"

Filters = dict[str, str | None]


@app.command("list")
def list_(  # its parameters are its options
    type: Type = None,
    aggregate_type: AggregateType = None,
    aggregate_id: AggregateId = None,
    older_than: OlderThan = None,
    since: Since = None,
    until: Until = None,
    group: Group = False,
    limit: Limit = 100,
    subscription: Subscription = "default",
    dsn: Dsn = None,
    schema: Schema = None,
    json: Json = False,
) -> None:
    """List dead records, oldest first, without payloads; with --group how many there are of each kind.

    Times are the database's, in UTC.

    Example: partbox dead list --type OrderPlaced --older-than 2h

    Example: partbox dead list --group --since 2h
    """
    filters = _filters(type, aggregate_type, aggregate_id, older_than, since, until)
    records = _records(dsn, schema)
    found: Any = (records.groups if group else records.list)(**filters, limit=limit, subscription=subscription)
    if json:
        print_json(found)
    elif not found:
        typer.echo(_none(filters, subscription))
    elif group:
        console().print(table(GROUPED, map(_group_row, found), ("records", "blocking", "newest"), GROUPED[2:4]))
    else:
        console().print(table(COLUMNS, map(_row, found), ("record", "attempts"), ("died",)))
        if len(found) == limit:
            typer.echo(f"\nthe {limit:,} oldest: --limit shows more, `partbox dead count` counts them")


@app.command()
def show(
    id: Id,
    payload: Payload = False,
    subscription: Subscription = "default",
    dsn: Dsn = None,
    schema: Schema = None,
    json: Json = False,
) -> None:
    """Show one dead record whole; its payload only with --payload.

    Example: partbox dead show 4711 --payload
    """
    found = _records(dsn, schema).show(id, payload=payload, subscription=subscription)
    if json:
        print_json(_plain(found, payload))
        return
    details = table(("", ""), _details(found, payload), lines=True)
    details.show_header = False
    console().print(details)


@app.command()
def count(  # its parameters are its options
    type: Type = None,
    aggregate_type: AggregateType = None,
    aggregate_id: AggregateId = None,
    older_than: OlderThan = None,
    since: Since = None,
    until: Until = None,
    subscription: Subscription = "default",
    dsn: Dsn = None,
    schema: Schema = None,
    json: Json = False,
) -> None:
    """Count dead records.

    Example: partbox dead count --aggregate-type Order
    """
    filters = _filters(type, aggregate_type, aggregate_id, older_than, since, until)
    number = _records(dsn, schema).count(**filters, subscription=subscription)
    if json:
        print_json({"dead": number})
    else:
        typer.echo(f"{counted(number, 'dead record')}{_said(filters)} in subscription {subscription!r}")


@app.command()
def replay(  # its parameters are its options
    id: OneId = None,
    all: All = False,
    type: Type = None,
    aggregate_type: AggregateType = None,
    aggregate_id: AggregateId = None,
    older_than: OlderThan = None,
    since: Since = None,
    until: Until = None,
    yes: Yes = False,
    subscription: Subscription = "default",
    dsn: Dsn = None,
    schema: Schema = None,
    json: Json = False,
) -> None:
    """Deliver dead records again, with all their attempts, in order and before what waits of their aggregates.

    Later events of those aggregates may have been delivered since they died. Stopped half-way, it has replayed whole
    aggregates, and the same command goes on.

    Example: partbox dead replay 4711

    Example: partbox dead replay --all --type OrderPlaced --older-than 2h
    """
    records, filters = _records(dsn, schema), _filters(type, aggregate_type, aggregate_id, older_than, since, until)
    _check_choice("replay", id, all, filters)
    done = left = 0
    if id is not None:
        done = records.replay(id, subscription=subscription)
    elif total := records.count(**filters, subscription=subscription):
        confirm(f"replay {counted(total, 'dead record')}{_said(filters)}", yes)
        with progressing("replay", "replayed", total) as progress:
            done = records.replay_all(**filters, subscription=subscription, progress=progress)
        left = max(0, total - done)
    if json:
        print_json({"replayed": done, "left": left})
    elif not done and not left:
        typer.echo(f"{_none(filters, subscription)}: nothing to replay")
    else:
        typer.echo(f"replayed {counted(done, 'dead record')}: {MEANWHILE}{_left(left)}")


@app.command()
def discard(  # its parameters are its options
    id: OneId = None,
    all: All = False,
    type: Type = None,
    aggregate_type: AggregateType = None,
    aggregate_id: AggregateId = None,
    older_than: OlderThan = None,
    since: Since = None,
    until: Until = None,
    yes: Yes = False,
    subscription: Subscription = "default",
    dsn: Dsn = None,
    schema: Schema = None,
    json: Json = False,
) -> None:
    """Give dead records up for good: they are never delivered, and purged as if they were done.

    Example: partbox dead discard 4711

    Example: partbox dead discard --all --older-than 30d --yes
    """
    records, filters = _records(dsn, schema), _filters(type, aggregate_type, aggregate_id, older_than, since, until)
    _check_choice("discard", id, all, filters)
    if id is not None:
        done = records.discard(id, subscription=subscription)
    elif total := records.count(**filters, subscription=subscription):
        confirm(f"discard {counted(total, 'dead record')}{_said(filters)} for good", yes)
        with progressing("discard", "discarded", total) as progress:
            done = records.discard_all(**filters, subscription=subscription, progress=progress)
    else:
        done = 0
    if json:
        print_json({"discarded": done})
    elif not done:
        typer.echo(f"{_none(filters, subscription)}: nothing to discard")
    else:
        typer.echo(f"discarded {counted(done, 'dead record')}")


def _records(dsn: str | None, schema: str | None) -> DeadRecords:
    settings = load(flags={"dsn": dsn, "schema": schema})
    return DeadRecords(lambda: database(settings), settings)


def _filters(*given: str | None) -> Any:
    return dict(
        zip(("event_type", "aggregate_type", "aggregate_id", "older_than", "since", "until"), given, strict=True)
    )


def _check_choice(what: str, id: str | None, all: bool, filters: Filters) -> None:
    """Require either one id or --all: never both, never all by accident."""
    if id is not None and (all or any(value is not None for value in filters.values())):
        raise PartboxError(f"ID {id!r} is one record: leave out --all and the filters, or leave out the ID")
    if id is None and not all:
        raise PartboxError(f"which records? name one, `partbox dead {what} 42`, or say --all (filters narrow it)")


def _said(filters: Filters) -> str:
    given = [f"{name.replace('_', ' ')} {value!r}" for name, value in filters.items() if value is not None]
    return f" with {' and '.join(given)}" if given else ""


def _none(filters: Filters, subscription: str) -> str:
    return f"no dead record{_said(filters)} in subscription {subscription!r}"


def _left(number: int) -> str:
    if not number:
        return ""
    return f"; {counted(number, 'dead record')} left, which no saved cursor has passed yet: try again in a moment"


def _row(each: DeadRecord) -> tuple[str, ...]:
    error = ": ".join(part for part in (each.error_type, each.error) if part)
    aggregate = _aggregate(each)
    return str(each.record_id), moment(each.died_at), each.event_type, aggregate, str(each.attempts), in_short(error)


def _group_row(each: DeadGroup) -> tuple[str, ...]:
    record, _, kind, *_, error = _row(each.newest)
    died = moment(each.died_from), moment(each.died_to)
    return f"{each.records:,}", f"{each.blocking:,}", *died, kind, record, error


def _aggregate(each: DeadRecord) -> str:
    return each.aggregate_type if each.aggregate_id is None else f"{each.aggregate_type} {each.aggregate_id}"


def _details(found: DeadDetail, payload: bool) -> Iterator[tuple[str, str]]:
    yield "record", str(found.record_id)
    yield "event", str(found.event_id or "gone from the log")
    yield "type", found.event_type
    yield "aggregate", _aggregate(found) + (", which waits for it" if found.blocks else "")
    if found.tenant_id is not None:
        yield "tenant", found.tenant_id
    yield "occurred", moment(found.occurred_at)
    yield "published", moment(found.published_at)
    yield "died", moment(found.died_at)
    yield "attempts", str(found.attempts)
    yield "error", ": ".join(part for part in (found.error_type, found.error) if part) or "-"
    if found.traceback is not None:
        yield "traceback", found.traceback
    for name, value in found.headers.items():
        yield "header", f"{name}: {value}"
    if payload:
        yield "payload", _payload(found)


def _payload(found: DeadDetail) -> str:
    if isinstance(found.payload, bytes):
        return f"{len(found.payload):,} bytes: --json prints them as base64"
    return "gone from the log" if found.payload is None else found.payload


def _plain(found: DeadDetail, payload: bool) -> dict[str, object]:
    """As JSON: a payload that is JSON stands there as such, verbatim."""
    plain: dict[str, object] = asdict(found)
    value = plain.pop("payload")
    if isinstance(value, bytes):
        plain["payload_base64"] = b64encode(value).decode()
    elif payload:
        plain["payload"] = None if value is None else orjson.Fragment(str(value))
    return plain
