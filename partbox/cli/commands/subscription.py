"""`partbox subscription`: the consumers of the log: create, list, pause, replay, drop."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from shlex import quote
from typing import Annotated

import typer
from rich.console import Console

from partbox.cli.shell.confirm import INTERRUPTED, confirm
from partbox.cli.shell.database import database
from partbox.cli.shell.flags import load
from partbox.cli.shell.options import Dsn, Json, Schema
from partbox.cli.shell.output import console, counted, moment, print_json, printable, say, table
from partbox.cli.shell.stopping import interruptible
from partbox.db.operator.subscriptions import Holder, Subscription
from partbox.errors import PartboxError
from partbox.operations import arguments as asked
from partbox.operations import position
from partbox.operations.subscriptions import Subscriptions
from partbox.operations.subscriptions.quiet import Progress, described
from partbox.platform import STOP_SIGNALS

app = typer.Typer(
    help="Subscriptions: consumers of the log, each with its own progress, workers and parked records.",
    no_args_is_help=True,
)

Name = Annotated[str, typer.Argument(metavar="NAME", show_default=False, help="Such as audit.")]
Start = Annotated[
    str,
    typer.Option("--from", metavar="beginning|now|TIME", help="Its first events; TIME such as 2026-01-31T09:00:00Z."),
]
Types = Annotated[
    list[str] | None,
    typer.Option("--type", metavar="TYPE", show_default=False, help="Only events of this type; repeatable."),
]
Point = Annotated[
    str,
    typer.Option(
        "--from", metavar="ID|TIME", show_default=False, help="A record id, or a time such as 2026-01-31T09:00:00Z."
    ),
]
Timeout = Annotated[str, typer.Option(metavar="TIME", help="Longest wait for workers to release, such as 90s or 5m.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]

COLUMNS = ("name", "created", "paused since", "types", "instances", "pending", "parked", "dead")


@app.command()
def create(
    name: Name,
    start: Start = "beginning",
    type: Types = None,
    dsn: Dsn = None,
    schema: Schema = None,
    json: Json = False,
) -> None:
    """Make a subscription. It gets every event that the log holds, or those from a time or from now on.

    Handlers are registered for it by @outbox.on(…, subscription="audit"), its workers started by
    partbox worker shop:outbox --subscription audit.

    Example: partbox subscription create audit

    Example: partbox subscription create urgent --from now --type PaymentFailed --type FraudSuspected
    """
    _subscriptions(dsn, schema).create(name, start, type)
    if json:
        print_json({"created": name})
    else:
        worker = f"partbox worker MODULE:OUTBOX --subscription {quote(name)}"
        say(f"created subscription {name}: {worker} delivers")


@app.command("list")
def list_(dsn: Dsn = None, schema: Schema = None, json: Json = False) -> None:
    """List the subscriptions: their worker processes, what is pending, parked and dead in each.

    Times are the database's, in UTC.

    Example: partbox subscription list
    """
    found = _subscriptions(dsn, schema).list()
    if json:
        print_json(found)
    elif found:
        console().print(table(COLUMNS, map(_row, found), COLUMNS[4:], COLUMNS[:3]))
    else:
        typer.echo("no subscription: `partbox subscription create NAME` makes one")


@app.command()
def pause(name: Name, dsn: Dsn = None, schema: Schema = None, json: Json = False) -> None:
    """Deliver nothing more until it is resumed. Handlers that run come to their end; what is published waits.

    Example: partbox subscription pause audit
    """
    changed = _subscriptions(dsn, schema).pause(name)
    if json:
        print_json({"paused": changed})
    elif changed:
        say(f"paused subscription {name}: `partbox subscription resume {quote(name)}` resumes it")
    else:
        say(f"subscription {name} is paused already: nothing to do")


@app.command()
def resume(name: Name, dsn: Dsn = None, schema: Schema = None, json: Json = False) -> None:
    """Deliver again, from where it stood still.

    Example: partbox subscription resume audit
    """
    changed = _subscriptions(dsn, schema).resume(name)
    if json:
        print_json({"resumed": changed})
    elif changed:
        say(f"resumed subscription {name}: its workers go on within a heartbeat")
    else:
        say(f"subscription {name} is not paused: nothing to do")


@app.command()
def replay(
    name: Name,
    point: Point,
    yes: Yes = False,
    timeout: Timeout = "60s",
    dsn: Dsn = None,
    schema: Schema = None,
    json: Json = False,
) -> None:
    """Deliver everything again from a record or a time on, in order; handlers see those events a second time.

    It pauses the subscription, waits until its workers have released, sets it back, and resumes it unless it was
    paused before. Dead events, and those waiting for a retry, are delivered anew too.

    Example: partbox subscription replay audit --from 4711

    Example: partbox subscription replay audit --from 2026-01-31T09:00:00Z --timeout 5m
    """
    subscriptions, parsed = _subscriptions(dsn, schema), position.parsed(point)
    asked.length("timeout", timeout)
    confirm(f"deliver everything in subscription {printable(name)!r} again from {parsed} on", yes)
    with _waiting() as progress:
        rewound = subscriptions.replay(name, **parsed._asdict(), timeout=timeout, progress=progress)
    if json:
        print_json({"partitions": rewound})
    elif rewound:
        typer.echo(f"{counted(rewound, 'partition')} of 256 set back: from {parsed} on everything is delivered again")
    else:
        typer.echo(f"nothing was delivered from {parsed} on: nothing to replay")


@app.command()
def drop(
    name: Name,
    yes: Yes = False,
    timeout: Timeout = "60s",
    dsn: Dsn = None,
    schema: Schema = None,
    json: Json = False,
) -> None:
    """Delete a subscription for good, with its progress and its parked and dead records. Stop its workers first.

    The events themselves stay, for the other subscriptions and until a purge.

    Example: partbox subscription drop audit
    """
    subscriptions = _subscriptions(dsn, schema)
    asked.length("timeout", timeout)
    what = f"drop subscription {printable(name)!r} with its progress and its parked and dead records, for good"
    if name == "default" and not yes and sys.stdin.isatty():
        _spell_out()
    else:
        confirm(what, yes)
    with _waiting() as progress:
        subscriptions.drop(name, timeout, progress=progress)
    if json:
        print_json({"dropped": name})
    else:
        say(f"dropped subscription {name}")


def _subscriptions(dsn: str | None, schema: str | None) -> Subscriptions:
    settings = load(flags={"dsn": dsn, "schema": schema})
    return Subscriptions(lambda: database(settings), settings)


def _spell_out() -> None:
    """Ask for more than a `y`, which is too easily typed, to drop the subscription that every outbox has."""
    typer.echo(
        "every handler without a subscription of its own belongs to 'default' and gets no event any more", err=True
    )
    if (
        typer.prompt("Type 'drop default' to drop it with its progress and its dead records", err=True)
        != "drop default"
    ):
        raise PartboxError("'drop default' was not typed: nothing was changed")


@contextmanager
def _waiting() -> Iterator[Progress]:
    """Prints on a terminal's standard error whom it waits for; Ctrl-C, or another signal to end, undoes the pause."""
    error = Console(stderr=True)
    try:
        with interruptible(*STOP_SIGNALS), error.status("waiting for the workers to release") as status:

            def progress(left: Sequence[Holder]) -> None:
                owned = sum(holder.owned for holder in left)
                status.update(printable(f"waiting for {described(left)} to release {counted(owned, 'partition')}"))

            yield progress
    except KeyboardInterrupt as interrupt:
        said = str(interrupt) or "`partbox subscription list` shows how it is"
        typer.echo(f"partbox: interrupted: {printable(said)}", err=True)
        raise typer.Exit(INTERRUPTED) from None


def _row(each: Subscription) -> tuple[str, ...]:
    return (
        each.name,
        moment(each.created_at),
        moment(each.paused_at),
        "all" if each.types is None else ", ".join(each.types),
        str(each.instances),
        f"{'' if each.exact else 'about '}{each.pending:,}",
        f"{each.parked:,}",
        f"{each.dead:,}",
    )
