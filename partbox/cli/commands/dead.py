"""`partbox dead`: lists, replays and discards records that no worker tries any more."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal

import typer

from partbox.cli.shell.options import (
    ActionOptions,
    Group,
    OutboxOptions,
    Since,
    Subscription,
    Until,
    Yes,
    argument,
    flag,
    option,
    with_option_groups,
)
from partbox.cli.shell.output import (
    ListColumn,
    build_table,
    format_count,
    format_error,
    format_time,
    make_console,
    print_answer,
    print_json,
    print_list,
    shorten_text,
)
from partbox.cli.shell.progress import confirm_action, report_interrupt, show_progress_bar
from partbox.cli.views.payloads import convert_payload, list_payload_lines
from partbox.db.operator.dead import DeadDetail, DeadRecord
from partbox.errors import PartboxError
from partbox.operations.dead import DeadRecords

app = typer.Typer(
    help="Dead records, which no worker tries any more: look at them, replay them, discard them.",
    no_args_is_help=True,
)

Limit = Annotated[int, option("N", "Maximum number of records.")]
Id = argument("ID", "A record id, or an event id (UUID).")
Payload = Annotated[bool, flag("Show the payload too.", "--payload")]

MEANWHILE = (
    "workers deliver them before the waiting events of their aggregates; "
    "events delivered since they died stay delivered"
)


@dataclass(frozen=True, slots=True)
class DeadSelection:
    """Command-line options that select dead records of one subscription, by an id or by filters."""

    id: Annotated[str | None, Id] = None
    all: Annotated[bool, flag("All records that match the filters, instead of one.", "--all")] = False
    yes: Yes = False
    subscription: Subscription = "default"


@dataclass(frozen=True, slots=True)
class DeadOptions:
    type: Annotated[str | None, option("TYPE", "Only this event type.")] = None
    aggregate_type: Annotated[str | None, option("TYPE", "Only of this aggregate type.")] = None
    aggregate_id: Annotated[str | None, option("ID", "Only of this aggregate.")] = None
    older_than: Annotated[str | None, option("TIME", "Only records dead for longer, such as 2h or 7d.")] = None
    since: Since = None
    until: Until = None

    def collect_given(self) -> dict[str, Any]:
        # The keys are the names of the filters in Python. Filters that were not given are left out.
        named = {"event_type" if name == "type" else name: value for name, value in asdict(self).items()}
        return {name: value for name, value in named.items() if value is not None}

    def __str__(self) -> str:
        said = [f"{name.replace('_', ' ')} {value!r}" for name, value in self.collect_given().items()]
        return f" with {' and '.join(said)}" if said else ""


@app.command("list")
@with_option_groups
def list_(
    *,
    filters: DeadOptions,
    group: Group = False,
    limit: Limit = 100,
    subscription: Subscription = "default",
    outbox: OutboxOptions,
) -> None:
    """List dead records, oldest first, without payloads; with --group, count the records of each kind.

    Times are the database's, in UTC.

    Example: partbox dead list --type OrderPlaced --older-than 2h

    Example: partbox dead list --group --since 2h
    """
    records = outbox.create_operations(DeadRecords)
    found: Any = (records.groups if group else records.list)(
        **filters.collect_given(), limit=limit, subscription=subscription
    )
    more = f"the {limit:,} oldest: --limit shows more, `partbox dead count` counts them"
    more = more if len(found) == limit and not group else ""
    print_list(
        found,
        GROUP_COLUMNS if group else LIST_COLUMNS,
        outbox.json,
        nothing=_format_no_match(filters, subscription),
        more=more,
    )


@app.command()
@with_option_groups
def show(
    *, id: Annotated[str, Id], payload: Payload = False, subscription: Subscription = "default", outbox: OutboxOptions
) -> None:
    """Show one dead record whole; its payload only with --payload.

    Example: partbox dead show 4711 --payload
    """
    found = outbox.create_operations(DeadRecords).show(id, payload=payload, subscription=subscription)
    if outbox.json:
        print_json(convert_payload(asdict(found), payload))
        return
    details = build_table(("", ""), _list_details(found, payload), lines=True)
    details.show_header = False
    make_console().print(details)


@app.command()
@with_option_groups
def count(*, filters: DeadOptions, subscription: Subscription = "default", outbox: OutboxOptions) -> None:
    """Count dead records.

    Example: partbox dead count --aggregate-type Order
    """
    number = outbox.create_operations(DeadRecords).count(**filters.collect_given(), subscription=subscription)
    text = f"{format_count(number, 'dead record')}{filters} in subscription {subscription!r}"
    print_answer(outbox.json, {"dead": number}, text)


@app.command()
@with_option_groups
def replay(*, order: DeadSelection, filters: DeadOptions, outbox: ActionOptions) -> None:
    """Deliver dead records again in order, with all their attempts, before the waiting events of their aggregates.

    Later events of these aggregates may have been delivered since the records died. An interrupted replay has replayed
    whole aggregates, and the same command continues with the others.

    Example: partbox dead replay 4711

    Example: partbox dead replay --all --type OrderPlaced --older-than 2h
    """
    done, left = _change_records("replay", order, filters, outbox)
    text = f"replayed {format_count(done, 'dead record')}: {MEANWHILE}"
    if left:
        text += (
            f"; {format_count(left, 'dead record')} left, which no saved cursor has passed yet: try again in a moment"
        )
    nothing = f"{_format_no_match(filters, order.subscription)}: nothing to replay"
    print_answer(outbox.json, {"replayed": done, "left": left}, text if done or left else nothing)


@app.command()
@with_option_groups
def discard(*, order: DeadSelection, filters: DeadOptions, outbox: ActionOptions) -> None:
    """Give dead records up for good: they are never delivered, and purged like delivered records.

    Example: partbox dead discard 4711

    Example: partbox dead discard --all --older-than 30d --yes
    """
    done, _ = _change_records("discard", order, filters, outbox)
    nothing = f"{_format_no_match(filters, order.subscription)}: nothing to discard"
    print_answer(
        outbox.json, {"discarded": done}, f"discarded {format_count(done, 'dead record')}" if done else nothing
    )


def _change_records(
    verb: Literal["replay", "discard"], order: DeadSelection, filters: DeadOptions, outbox: OutboxOptions
) -> tuple[int, int]:
    """Change one record, or all that match after a confirmation. Return the numbers of changed and remaining ones."""
    # PartboxError is raised unless exactly one of an id and --all is given, so that nobody changes all records by
    # accident. Nothing is confirmed if no record matches.
    records, id, chosen = (
        outbox.create_operations(DeadRecords),
        order.id,
        {**filters.collect_given(), "subscription": order.subscription},
    )
    if id is not None and (order.all or filters.collect_given()):
        raise PartboxError(f"ID {id!r} is one record: leave out --all and the filters, or leave out the ID")
    if id is None and not order.all:
        raise PartboxError(f"which records? name one, `partbox dead {verb} 42`, or say --all (filters narrow it)")
    one, every = (records.replay, records.replay_all) if verb == "replay" else (records.discard, records.discard_all)
    if id is not None:
        return one(id, subscription=order.subscription), 0
    total = records.count(**chosen)
    if not total:
        return 0, 0
    confirm_action(
        f"{verb} {format_count(total, 'dead record')}{filters}{' for good' if verb == 'discard' else ''}", order.yes
    )
    reached, of = 0, total
    try:
        with show_progress_bar(verb, total) as show:

            def progress(now: int, most: int) -> None:
                nonlocal reached, of
                reached, of = now, most
                show(now, most)

            done = every(**chosen, progress=progress)
    except KeyboardInterrupt:
        rest = "the same command continues with the others"
        raise typer.Exit(report_interrupt(f"{verb}ed {reached:,} of {of:,} dead records; {rest}")) from None
    return done, max(0, total - done)


def _format_no_match(filters: DeadOptions, subscription: str) -> str:
    return f"no dead record{filters} in subscription {subscription!r}"


def _format_aggregate(each: DeadRecord) -> str:
    return each.aggregate_type if each.aggregate_id is None else f"{each.aggregate_type} {each.aggregate_id}"


LIST_COLUMNS = (
    ListColumn("record", lambda each: str(each.record_id), "number"),
    ListColumn("error", lambda each: shorten_text(format_error(each))),
    ListColumn("died", lambda each: format_time(each.died_at), "whole"),
    ListColumn("type", lambda each: each.event_type),
    ListColumn("aggregate", _format_aggregate),
    ListColumn("attempts", lambda each: str(each.attempts), "number"),
)
GROUP_COLUMNS = (
    ListColumn("records", lambda each: f"{each.records:,}", "number"),
    ListColumn("blocking", lambda each: f"{each.blocking:,}", "number"),
    ListColumn("first died", lambda each: format_time(each.died_from), "whole"),
    ListColumn("last died", lambda each: format_time(each.died_to), "whole"),
    ListColumn("type", lambda each: each.newest.event_type),
    ListColumn("newest", lambda each: str(each.newest.record_id), "number"),
    ListColumn("its error", lambda each: shorten_text(format_error(each.newest))),
)


def _list_details(found: DeadDetail, payload: bool) -> Iterator[tuple[str, str]]:
    yield "record", str(found.record_id)
    yield "event", str(found.event_id or "gone from the log")
    yield "type", found.event_type
    yield "aggregate", _format_aggregate(found) + (", which waits for it" if found.blocks else "")
    if found.tenant_id is not None:
        yield "tenant", found.tenant_id
    yield "occurred", format_time(found.occurred_at)
    yield "published", format_time(found.published_at)
    yield "died", format_time(found.died_at)
    yield "attempts", str(found.attempts)
    yield "error", format_error(found) or "-"
    if found.traceback is not None:
        yield "traceback", found.traceback
    for name, value in found.headers.items():
        yield "header", f"{name}: {value}"
    if payload:
        yield from list_payload_lines(found.payload)
