"""`partbox subscription`: creates, lists, pauses, resumes, replays and drops subscriptions."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from shlex import quote
from typing import Annotated

import typer
from rich.console import Console

from partbox.cli.shell.options import ActionOptions, OutboxOptions, Yes, argument, option, with_option_groups
from partbox.cli.shell.output import (
    ListColumn,
    escape_line,
    escape_unprintable,
    format_count,
    format_time,
    print_answer,
    print_list,
)
from partbox.cli.shell.progress import confirm_action, report_interrupt
from partbox.cli.shell.stopping import interruptible
from partbox.db.operator.subscriptions import Holder
from partbox.errors import PartboxError
from partbox.operations import arguments
from partbox.operations.subscriptions import Progress, Subscriptions, describe_holders
from partbox.platform import STOP_SIGNALS

app = typer.Typer(
    help="Subscriptions: consumers of the log, each with its own progress, workers and parked records.",
    no_args_is_help=True,
)

Name = Annotated[str, argument("NAME", "Such as audit.")]
Start = Annotated[
    str, option("beginning|now|TIME", "Where delivery starts; TIME such as 2026-01-31T09:00:00Z.", "--from")
]
Types = Annotated[list[str] | None, option("TYPE", "Only events of this type; repeatable.")]
Point = Annotated[str, option("ID|TIME", "A record id, or a time such as 2026-01-31T09:00:00Z.", "--from")]
Timeout = Annotated[str, option("TIME", "Longest wait for workers to release partitions, such as 90s or 5m.")]


@app.command()
@with_option_groups
def create(*, name: Name, start: Start = "beginning", type: Types = None, outbox: ActionOptions) -> None:
    """Create a subscription to every event in the log, or to the events from a time or from now on.

    Handlers are registered for it by @outbox.on(…, subscription="audit"), its workers started by partbox worker
    shop:outbox --subscription audit.

    Example: partbox subscription create audit

    Example: partbox subscription create urgent --from now --type PaymentFailed --type FraudSuspected
    """
    outbox.create_operations(Subscriptions).create(name, start, type)
    worker = f"partbox worker MODULE:OUTBOX --subscription {quote(name)}"
    print_answer(outbox.json, {"created": name}, escape_line(f"created subscription {name}: {worker} delivers"))


@app.command("list")
@with_option_groups
def list_(*, outbox: OutboxOptions) -> None:
    """List the subscriptions with their worker processes, and the pending, parked and dead records of each.

    Times are the database's, in UTC.

    Example: partbox subscription list
    """
    nothing = "no subscription: `partbox subscription create NAME` makes one"
    print_list(outbox.create_operations(Subscriptions).list(), LIST_COLUMNS, outbox.json, nothing=nothing)


@app.command()
@with_option_groups
def pause(*, name: Name, outbox: ActionOptions) -> None:
    """Stop delivery until the subscription is resumed. Running handlers finish, and new events wait.

    Example: partbox subscription pause audit
    """
    changed = outbox.create_operations(Subscriptions).pause(name)
    done = f"paused subscription {name}: `partbox subscription resume {quote(name)}` resumes it"
    nothing = f"subscription {name} is paused already: nothing to do"
    print_answer(outbox.json, {"paused": changed}, escape_line(done if changed else nothing))


@app.command()
@with_option_groups
def resume(*, name: Name, outbox: ActionOptions) -> None:
    """Resume delivery where it stopped.

    Example: partbox subscription resume audit
    """
    changed = outbox.create_operations(Subscriptions).resume(name)
    done = f"resumed subscription {name}: its workers go on within a heartbeat"
    nothing = f"subscription {name} is not paused: nothing to do"
    print_answer(outbox.json, {"resumed": changed}, escape_line(done if changed else nothing))


@app.command()
@with_option_groups
def replay(*, name: Name, point: Point, yes: Yes = False, timeout: Timeout = "60s", outbox: ActionOptions) -> None:
    """Deliver everything again from a record or a time on, in order; handlers see those events a second time.

    The command pauses the subscription, waits until its workers have released the partitions, sets the cursors back,
    and resumes the subscription unless it was paused before. Dead events, and events that wait for a retry, are
    delivered anew, too.

    Example: partbox subscription replay audit --from 4711

    Example: partbox subscription replay audit --from 2026-01-31T09:00:00Z --timeout 5m
    """
    subscriptions, parsed = outbox.create_operations(Subscriptions), arguments.parse_position(point)
    arguments.parse_length("timeout", timeout)
    confirm_action(f"deliver everything in subscription {escape_unprintable(name)!r} again from {parsed} on", yes)
    with _show_waiting() as progress:
        rewound = subscriptions.replay(name, **parsed._asdict(), timeout=timeout, progress=progress)
    done = f"{format_count(rewound, 'partition')} of 256 set back: from {parsed} on everything is delivered again"
    nothing = f"nothing was delivered from {parsed} on: nothing to replay"
    print_answer(outbox.json, {"partitions": rewound}, done if rewound else nothing)


@app.command()
@with_option_groups
def drop(*, name: Name, yes: Yes = False, timeout: Timeout = "60s", outbox: ActionOptions) -> None:
    """Delete a subscription for good, with its progress and its parked and dead records. Stop its workers first.

    The events themselves stay, for the other subscriptions and until a purge.

    Example: partbox subscription drop audit
    """
    subscriptions = outbox.create_operations(Subscriptions)
    arguments.parse_length("timeout", timeout)
    what = f"drop subscription {escape_unprintable(name)!r} with its progress and its parked and dead records, for good"
    # Every outbox has this subscription, and a `y` is typed too easily.
    if name == "default" and not yes and sys.stdin.isatty():
        loss = "every handler without a subscription of its own belongs to 'default' and gets no event any more"
        typer.echo(loss, err=True)
        typed = typer.prompt("Type 'drop default' to drop it with its progress and its dead records", err=True)
        if typed != "drop default":
            raise PartboxError("'drop default' was not typed: nothing was changed")
    else:
        confirm_action(what, yes)
    with _show_waiting() as progress:
        subscriptions.drop(name, timeout, progress=progress)
    print_answer(outbox.json, {"dropped": name}, escape_line(f"dropped subscription {name}"))


@contextmanager
def _show_waiting() -> Iterator[Progress]:
    # A terminal shows on standard error which processes the command waits for. Ctrl-C, or another signal to stop,
    # undoes the pause.
    error = Console(stderr=True)
    try:
        with interruptible(*STOP_SIGNALS), error.status("waiting for workers to release partitions") as status:

            def progress(left: Sequence[Holder]) -> None:
                owned = sum(holder.owned_partitions for holder in left)
                status.update(
                    escape_unprintable(
                        f"waiting for {describe_holders(left)} to release {format_count(owned, 'partition')}"
                    )
                )

            yield progress
    except KeyboardInterrupt as interrupt:
        said = str(interrupt) or "`partbox subscription list` shows the present state"
        raise typer.Exit(report_interrupt(escape_unprintable(said))) from None


LIST_COLUMNS = (
    ListColumn("name", lambda each: each.name, "whole"),
    ListColumn("created", lambda each: format_time(each.created_at), "whole"),
    ListColumn("paused since", lambda each: format_time(each.paused_at), "whole"),
    ListColumn("types", lambda each: "all" if each.types is None else ", ".join(each.types)),
    ListColumn("instances", lambda each: str(each.instances), "number"),
    ListColumn("pending", lambda each: f"{'' if each.exact else 'about '}{each.pending:,}", "number"),
    ListColumn("parked", lambda each: f"{each.parked:,}", "number"),
    ListColumn("dead", lambda each: f"{each.dead:,}", "number"),
)
