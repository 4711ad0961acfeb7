"""`partbox blocked`: lists aggregates whose events wait for an unfinished event, and unblocks them."""

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from partbox.cli.shell.options import (
    ActionOptions,
    Group,
    OutboxOptions,
    Since,
    Subscription,
    Until,
    argument,
    option,
    with_option_groups,
)
from partbox.cli.shell.output import (
    ListColumn,
    escape_unprintable,
    format_error,
    format_time,
    print_answer,
    print_list,
    shorten_text,
)
from partbox.db.operator.blocked import BlockedGroup, BlockedKey
from partbox.operations.blocked import BlockedKeys

app = typer.Typer(
    help="Blocked aggregates: their events wait, in order, for an event that failed, is deferred or is dead.",
    no_args_is_help=True,
)

Limit = Annotated[int, option("N", "Maximum number of aggregates.")]


@dataclass(frozen=True, slots=True)
class AggregateArguments:
    aggregate_type: Annotated[str, argument("AGGREGATE_TYPE", "Such as Order.")]
    aggregate_id: Annotated[str, argument("AGGREGATE_ID", "Such as 7.")]


@app.command("list")
@with_option_groups
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

    With --group, count the aggregates of each kind. Times are the database's, in UTC.

    Example: partbox blocked list --limit 10

    Example: partbox blocked list --group --since 2h
    """
    keys = outbox.create_operations(BlockedKeys)
    found: Any = (keys.groups if group else keys.list)(limit, since=since, until=until, subscription=subscription)
    between = "".join(f" {name} {value!r}" for name, value in (("since", since), ("until", until)) if value)
    nothing = f"no blocked aggregate{between} in subscription {subscription!r}"
    is_cut = len(found) == limit and not group
    more = f"the {limit:,} that are blocked the longest: --limit shows more" if is_cut else ""
    print_list(found, GROUP_COLUMNS if group else LIST_COLUMNS, outbox.json, nothing=nothing, more=more)


@app.command()
@with_option_groups
def retry(*, key: AggregateArguments, subscription: Subscription = "default", outbox: ActionOptions) -> None:
    """Run the record that an aggregate waits for now instead of when it is due. A dead record is replayed.

    Example: partbox blocked retry Order 7
    """
    head = outbox.create_operations(BlockedKeys).retry_now(
        key.aggregate_type, key.aggregate_id, subscription=subscription
    )
    if not head.changed:
        text = f"nothing to do: record {head.record_id} is {head.state} and waits only for a worker"
    elif head.state == "dead":
        text = f"record {head.record_id} was dead and is replayed: a worker runs it now"
    else:
        text = f"record {head.record_id}, which was {head.state}, is due now"
    print_answer(outbox.json, head._asdict(), text)


@app.command()
@with_option_groups
def skip(*, key: AggregateArguments, subscription: Subscription = "default", outbox: ActionOptions) -> None:
    """Let an aggregate go on without the record it waits for, which becomes dead and can be replayed.

    The reason is kept with the error of the record, too.

    Example: partbox blocked skip Order 7 --reason "customer is gone"
    """
    head = outbox.create_operations(BlockedKeys).skip(key.aggregate_type, key.aggregate_id, subscription=subscription)
    name = escape_unprintable(f"{key.aggregate_type} {key.aggregate_id}")
    text = (
        f"skipped record {head.record_id}, which was {head.state}: events that waited behind it in {name} are "
        f"delivered; `partbox dead replay {head.record_id}` brings it back"
    )
    print_answer(outbox.json, head._asdict(), text)


def _format_aggregate(each: BlockedKey | BlockedGroup) -> str:
    return f"{each.aggregate_type} {each.aggregate_id}"


def _format_followers(each: BlockedKey) -> str:
    more = "" if each.more_from_id is None else f" and more since record {each.more_from_id}"
    return f"{each.followers:,}{more}"


LIST_COLUMNS = (
    ListColumn("aggregate", _format_aggregate),
    ListColumn("head", lambda each: str(each.record_id), "number"),
    ListColumn("type", lambda each: each.event_type),
    ListColumn("state", lambda each: each.state),
    ListColumn("due", lambda each: format_time(each.due_at), "whole"),
    ListColumn("attempts", lambda each: str(each.attempts), "number"),
    ListColumn("followers", _format_followers, "number"),
    ListColumn("since", lambda each: format_time(each.blocked_since), "whole"),
    ListColumn("worker", lambda each: f"{each.node} {each.pid}" if each.node is not None else "none"),
    ListColumn("error", lambda each: shorten_text(format_error(each))),
)
GROUP_COLUMNS = (
    ListColumn("aggregates", lambda each: f"{each.keys:,}", "number"),
    ListColumn("followers", lambda each: f"{each.followers:,}", "number"),
    ListColumn("since", lambda each: format_time(each.since_from), "whole"),
    ListColumn("to", lambda each: format_time(each.since_to), "whole"),
    ListColumn("type", lambda each: each.event_type),
    ListColumn("state", lambda each: each.state),
    ListColumn("oldest", _format_aggregate),
    ListColumn("its error", lambda each: shorten_text(format_error(each))),
)
