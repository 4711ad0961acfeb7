"""`partbox handlers`: prints the routing table."""

from typing import Annotated

import typer

from partbox.cli.shell.options import Json, Target, option
from partbox.cli.shell.output import build_table, make_console, print_json
from partbox.cli.shell.target import load_target
from partbox.errors import PartboxError
from partbox.handlers import RouteRow
from partbox.text.wording import format_hint

Only = Annotated[str | None, option("NAME", "Only handlers of this subscription.")]

COLUMNS = ("event type", "aggregate type", "handler")


def handlers(target: Target, subscription: Only = None, json: Json = False) -> None:
    """Show the routing table of events and their handlers. The most specific handler is called. Needs no database.

    Example: partbox handlers shop:outbox
    """
    registered = load_target(target).handlers
    rows = registered.build_table(subscription)
    if subscription is not None and not rows:
        others = sorted({row.subscription for row in registered.build_table()})
        has = f"{target} has some for {', '.join(map(repr, others))}" if others else f"{target} has none at all"
        remedy = format_hint(subscription, others, f"register one, @outbox.on(…, subscription={subscription!r})")
        raise PartboxError(f"no handlers in subscription {subscription!r}: {has}: {remedy}")
    if json:
        print_json([row._asdict() for row in rows])
    elif rows:
        several = len({row.subscription for row in rows}) > 1
        cells = ((row.subscription, *_build_cells(row)) if several else _build_cells(row) for row in rows)
        make_console().print(build_table(("subscription", *COLUMNS) if several else COLUMNS, cells, lines=True))
    else:
        typer.echo(f'{target} has no handlers: register some, such as @outbox.on("OrderPlaced")')


def _build_cells(row: RouteRow) -> tuple[str, ...]:
    options = [f"{option} = {value}" for option, value in row.options.items()]
    handler = "\n".join([f"{row.handler}{' (async)' if row.kind == 'async' else ''}", row.place, *options])
    return row.event_type, row.aggregate_type or "any", handler
