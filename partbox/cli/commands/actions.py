"""`partbox actions`: the log of the changes that operators have made."""

from typing import Annotated

from partbox.cli.shell.options import OutboxOptions, Since, Until, option, with_option_groups
from partbox.cli.shell.output import ListColumn, format_time, print_list
from partbox.db.operator.actions import OperatorAction
from partbox.operations.actions import Actions
from partbox.text.printing import format_first_numbers

Limit = Annotated[int, option("N", "Maximum number of actions.")]
Act = Annotated[
    str | None, option("WORDS", 'Only this action, such as "dead replay"; "replay" for any replay.', "--action")
]
Within = Annotated[
    str | None, option("NAME", "Only in this subscription, which may be dropped by now.", "--subscription")
]


@with_option_groups
def actions(
    *,
    since: Since = None,
    until: Until = None,
    action: Act = None,
    subscription: Within = None,
    limit: Limit = 100,
    outbox: OutboxOptions,
) -> None:
    """List the actions of operators, newest first: time, operator, action, number of changes, reason, and target.

    Every change by a command, the live page, the Django admin or a program is listed, until retain_actions (90 days) is
    over. Times are the database's, in UTC.

    Example: partbox actions --since 1h

    Example: partbox actions --action discard --subscription audit --json
    """
    asked = {"action": action, "subscription": subscription, "since": since, "until": until}
    found = outbox.create_operations(Actions).list(limit, **asked)
    said = " and ".join(f"{name} {value!r}" for name, value in asked.items() if value is not None)
    more = f"the {limit:,} newest: --limit shows more" if len(found) == limit else ""
    print_list(found, LIST_COLUMNS, outbox.json, nothing=f"no action{said and f' with {said}'}", more=more)


def _format_target(each: OperatorAction) -> str:
    said = []
    for name, value in each.target.items():
        given = (
            value
            if isinstance(value, dict)
            else {name: format_first_numbers(value) if isinstance(value, list) else value}
        )
        said += [f"{name.replace('_', ' ')} {value}" for name, value in given.items()]
    return ", ".join(said)


LIST_COLUMNS = (
    ListColumn("at", lambda each: format_time(each.at), "whole"),
    ListColumn("who", lambda each: each.who),
    ListColumn("action", lambda each: each.action, "whole"),
    ListColumn("subscription", lambda each: each.subscription or "-"),
    ListColumn("count", lambda each: f"{each.count:,}", "number"),
    ListColumn("reason", lambda each: each.reason or "-"),
    ListColumn("on", _format_target),
)
