"""`partbox dead`: records that no worker tries any more: list, replay, discard."""

from base64 import b64encode
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import orjson
import typer

from partbox.cli.shell.confirm import confirm, progressing
from partbox.cli.shell.options import Group, OutboxOptions, Since, Subscription, Until, Yes, bundled
from partbox.cli.shell.output import (
    Listing,
    console,
    counted,
    in_short,
    moment,
    print_answer,
    print_json,
    print_list,
    table,
)
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
Payload = Annotated[bool, typer.Option("--payload", help="Show the payload too.")]

MEANWHILE = "workers deliver them before what waits of their aggregates; what was delivered since they died stays so"


@dataclass(frozen=True, slots=True)
class DeadFilters:
    """The filters of the dead records that a command is about."""

    type: Type = None
    aggregate_type: AggregateType = None
    aggregate_id: AggregateId = None
    older_than: OlderThan = None
    since: Since = None
    until: Until = None

    def given(self) -> dict[str, Any]:
        """The filters that were given, by their names in Python."""
        named = {"event_type" if name == "type" else name: value for name, value in asdict(self).items()}
        return {name: value for name, value in named.items() if value is not None}

    def __str__(self) -> str:
        said = [f"{name.replace('_', ' ')} {value!r}" for name, value in self.given().items()]
        return f" with {' and '.join(said)}" if said else ""


@app.command("list")
@bundled
def list_(
    *,
    filters: DeadFilters,
    group: Group = False,
    limit: Limit = 100,
    subscription: Subscription = "default",
    outbox: OutboxOptions,
) -> None:
    """List dead records, oldest first, without payloads; with --group how many there are of each kind.

    Times are the database's, in UTC.

    Example: partbox dead list --type OrderPlaced --older-than 2h

    Example: partbox dead list --group --since 2h
    """
    records = outbox.verbs(DeadRecords)
    found: Any = (records.groups if group else records.list)(**filters.given(), limit=limit, subscription=subscription)
    more = f"the {limit:,} oldest: --limit shows more, `partbox dead count` counts them"
    more = more if len(found) == limit and not group else ""
    print_list(found, GROUPED if group else LISTED, outbox.json, nothing=_none(filters, subscription), more=more)


@app.command()
@bundled
def show(*, id: Id, payload: Payload = False, subscription: Subscription = "default", outbox: OutboxOptions) -> None:
    """Show one dead record whole; its payload only with --payload.

    Example: partbox dead show 4711 --payload
    """
    found = outbox.verbs(DeadRecords).show(id, payload=payload, subscription=subscription)
    if outbox.json:
        print_json(_plain(found, payload))
        return
    details = table(("", ""), _details(found, payload), lines=True)
    details.show_header = False
    console().print(details)


@app.command()
@bundled
def count(*, filters: DeadFilters, subscription: Subscription = "default", outbox: OutboxOptions) -> None:
    """Count dead records.

    Example: partbox dead count --aggregate-type Order
    """
    number = outbox.verbs(DeadRecords).count(**filters.given(), subscription=subscription)
    text = f"{counted(number, 'dead record')}{filters} in subscription {subscription!r}"
    print_answer(outbox.json, {"dead": number}, text)


@app.command()
@bundled
def replay(
    *,
    id: OneId = None,
    all: All = False,
    filters: DeadFilters,
    yes: Yes = False,
    subscription: Subscription = "default",
    outbox: OutboxOptions,
) -> None:
    """Deliver dead records again, with all their attempts, in order and before what waits of their aggregates.

    Later events of those aggregates may have been delivered since they died. Stopped half-way, it has replayed whole
    aggregates, and the same command goes on.

    Example: partbox dead replay 4711

    Example: partbox dead replay --all --type OrderPlaced --older-than 2h
    """
    records = outbox.verbs(DeadRecords)
    _check_choice("replay", id, all, filters)
    done = left = 0
    if id is not None:
        done = records.replay(id, subscription=subscription)
    elif total := _confirmed(records, "replay", filters, subscription, yes):
        with progressing("replay", "replayed", total) as progress:
            done = records.replay_all(**filters.given(), subscription=subscription, progress=progress)
        left = max(0, total - done)
    text = f"replayed {counted(done, 'dead record')}: {MEANWHILE}{_left(left)}"
    nothing = f"{_none(filters, subscription)}: nothing to replay"
    print_answer(outbox.json, {"replayed": done, "left": left}, text if done or left else nothing)


@app.command()
@bundled
def discard(
    *,
    id: OneId = None,
    all: All = False,
    filters: DeadFilters,
    yes: Yes = False,
    subscription: Subscription = "default",
    outbox: OutboxOptions,
) -> None:
    """Give dead records up for good: they are never delivered, and purged as if they were done.

    Example: partbox dead discard 4711

    Example: partbox dead discard --all --older-than 30d --yes
    """
    records = outbox.verbs(DeadRecords)
    _check_choice("discard", id, all, filters)
    done = 0
    if id is not None:
        done = records.discard(id, subscription=subscription)
    elif total := _confirmed(records, "discard", filters, subscription, yes):
        with progressing("discard", "discarded", total) as progress:
            done = records.discard_all(**filters.given(), subscription=subscription, progress=progress)
    nothing = f"{_none(filters, subscription)}: nothing to discard"
    print_answer(outbox.json, {"discarded": done}, f"discarded {counted(done, 'dead record')}" if done else nothing)


def _confirmed(records: DeadRecords, verb: str, filters: DeadFilters, subscription: str, yes: bool) -> int:
    """The number of records that match, once the user has confirmed to `verb` them; without any nobody is asked."""
    total = records.count(**filters.given(), subscription=subscription)
    if total:
        for_good = " for good" if verb == "discard" else ""
        confirm(f"{verb} {counted(total, 'dead record')}{filters}{for_good}", yes)
    return total


def _check_choice(what: str, id: str | None, all: bool, filters: DeadFilters) -> None:
    """Require either one id or --all: never both, never all by accident."""
    if id is not None and (all or filters.given()):
        raise PartboxError(f"ID {id!r} is one record: leave out --all and the filters, or leave out the ID")
    if id is None and not all:
        raise PartboxError(f"which records? name one, `partbox dead {what} 42`, or say --all (filters narrow it)")


def _none(filters: DeadFilters, subscription: str) -> str:
    return f"no dead record{filters} in subscription {subscription!r}"


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


LISTED = Listing(("record", "died", "type", "aggregate", "attempts", "error"), _row, ("record", "attempts"), ("died",))
GROUPED = Listing(
    ("records", "blocking", "first died", "last died", "type", "newest", "its error"),
    _group_row,
    ("records", "blocking", "newest"),
    ("first died", "last died"),
)


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
