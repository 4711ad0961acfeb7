"""`partbox blocked`: aggregates whose events wait for one that cannot be finished, and how to get them going."""

from typing import Annotated, Any

import typer

from partbox.cli.shell.options import Group, OutboxOptions, Since, Subscription, Until, bundled
from partbox.cli.shell.output import Listing, in_short, moment, print_answer, print_list, printable
from partbox.db.operator.blocked import BlockedGroup, BlockedKey
from partbox.operations.blocked import BlockedKeys

app = typer.Typer(
    help="Blocked aggregates: their events wait, in order, for one that failed, is deferred or is dead.",
    no_args_is_help=True,
)

Limit = Annotated[int, typer.Option(metavar="N", help="Maximum number of aggregates.")]
AggregateType = Annotated[str, typer.Argument(metavar="AGGREGATE_TYPE", show_default=False, help="Such as Order.")]
AggregateId = Annotated[str, typer.Argument(metavar="AGGREGATE_ID", show_default=False, help="Such as 7.")]
Reason = Annotated[
    str | None, typer.Option(metavar="TEXT", show_default=False, help="Kept with the error of the skipped record.")
]


@app.command("list")
@bundled
def list_(
    *,
    since: Since = None,
    until: Until = None,
    group: Group = False,
    limit: Limit = 100,
    subscription: Subscription = "default",
    outbox: OutboxOptions,
) -> None:
    """List blocked aggregates, the longest blocked first: the record they wait for, and how many are parked behind it.

    With --group how many there are of each kind. Times are the database's, in UTC.

    Example: partbox blocked list --limit 10

    Example: partbox blocked list --group --since 2h
    """
    keys = outbox.verbs(BlockedKeys)
    found: Any = (keys.groups if group else keys.list)(limit, since=since, until=until, subscription=subscription)
    between = "".join(f" {name} {value!r}" for name, value in (("since", since), ("until", until)) if value)
    nothing = f"no blocked aggregate{between} in subscription {subscription!r}"
    more = (
        f"the {limit:,} that are blocked the longest: --limit shows more" if len(found) == limit and not group else ""
    )
    print_list(found, GROUPED if group else LISTED, outbox.json, nothing=nothing, more=more)


@app.command()
@bundled
def retry(
    *,
    aggregate_type: AggregateType,
    aggregate_id: AggregateId,
    subscription: Subscription = "default",
    outbox: OutboxOptions,
) -> None:
    """Let the record that an aggregate waits for run now, instead of when it is due; a dead one is replayed.

    Example: partbox blocked retry Order 7
    """
    head = outbox.verbs(BlockedKeys).retry_now(aggregate_type, aggregate_id, subscription=subscription)
    if not head.changed:
        text = f"nothing to do: record {head.record_id} is {head.state} and waits only for a worker"
    elif head.state == "dead":
        text = f"record {head.record_id} was dead and is replayed: a worker runs it now"
    else:
        text = f"record {head.record_id}, which was {head.state}, is due now"
    print_answer(outbox.json, head._asdict(), text)


@app.command()
@bundled
def skip(
    *,
    aggregate_type: AggregateType,
    aggregate_id: AggregateId,
    reason: Reason = None,
    subscription: Subscription = "default",
    outbox: OutboxOptions,
) -> None:
    """Let an aggregate go on without the record it waits for, which becomes dead and can be replayed.

    Example: partbox blocked skip Order 7 --reason "customer is gone"
    """
    head = outbox.verbs(BlockedKeys).skip(aggregate_type, aggregate_id, reason, subscription=subscription)
    name = printable(f"{aggregate_type} {aggregate_id}")
    text = (
        f"skipped record {head.record_id}, which was {head.state}: what waited behind it in {name} is delivered; "
        f"`partbox dead replay {head.record_id}` brings it back"
    )
    print_answer(outbox.json, head._asdict(), text)


def _group_row(each: BlockedGroup) -> tuple[str, ...]:
    error = in_short(": ".join(part for part in (each.error_type, each.error) if part))
    since = moment(each.since_from), moment(each.since_to)
    oldest = f"{each.aggregate_type} {each.aggregate_id}"
    return f"{each.keys:,}", f"{each.followers:,}", *since, each.event_type, each.state, oldest, error


def _row(key: BlockedKey) -> tuple[str, ...]:
    return (
        f"{key.aggregate_type} {key.aggregate_id}",
        str(key.record_id),
        key.event_type,
        key.state,
        moment(key.due_at),
        str(key.attempts),
        f"{key.followers:,}",
        moment(key.blocked_since),
        f"{key.node} {key.pid}" if key.node is not None else "none",
        in_short(": ".join(part for part in (key.error_type, key.error) if part)),
    )


LISTED = Listing(
    ("aggregate", "head", "type", "state", "due", "attempts", "followers", "since", "worker", "error"),
    _row,
    ("head", "attempts", "followers"),
    ("due", "since"),
)
GROUPED = Listing(
    ("aggregates", "followers", "since", "to", "type", "state", "oldest", "its error"),
    _group_row,
    ("aggregates", "followers"),
    ("since", "to"),
)
