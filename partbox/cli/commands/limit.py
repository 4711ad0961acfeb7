"""`partbox limit`: limits handlers in running workers."""

from functools import partial
from typing import Annotated

import typer

from partbox.cli.shell.options import OutboxOptions, Subscription, argument, option, with_option_groups
from partbox.cli.shell.output import ListColumn, escape_line, print_answer, print_list
from partbox.cli.views.cluster_tables import LIMIT_COLUMNS
from partbox.operations.limits import LimitedHandlers

app = typer.Typer(
    help="Limits of handlers: how many calls may start in a second, and run at once, in all processes together.",
    no_args_is_help=True,
)

Handler = Annotated[str, argument("HANDLER", "The name that partbox handlers shows, such as shop.charge.")]
Rate = Annotated[str | None, option("N/s|N/m|N/h|none", "Calls that may start in a second, a minute or an hour.")]
AtOnce = Annotated[str | None, option("N|none", "Calls that may run at once.")]
App = Annotated[str | None, option("MODULE:OUTBOX", "The outbox with the handlers; unknown handler names are refused.")]
COLUMNS = (ListColumn("subscription", lambda each: each.subscription), *LIMIT_COLUMNS)
Within = Annotated[str | None, option("NAME", "Only in this subscription.", "--subscription")]


@app.command("list")
@with_option_groups
def list_(*, subscription: Within = None, outbox: OutboxOptions) -> None:
    """List the limits that running workers apply, the limits that were set, and the events that wait for their turn.

    Rate and at once hold for all processes together and, if there is an "each", for each of its values. Times are the
    database's, in UTC.

    Example: partbox limit list
    """
    found = outbox.create_operations(LimitedHandlers).list(subscription)
    nothing = '@outbox.on(…, rate="100/s") declares one, `partbox limit set HANDLER --rate 100/s` sets one'
    print_list(found, COLUMNS, outbox.json, nothing=f"no limit: {nothing}")


@app.command("set")
@with_option_groups
def set_(
    *,
    handler: Handler,
    rate: Rate = None,
    at_once: AtOnce = None,
    app: App = None,
    subscription: Subscription = "default",
    outbox: OutboxOptions,
) -> None:
    """Limit a handler from now on, in place of its declared limits, until a reset. Workers apply it within a heartbeat.

    A bound that is not given stays unchanged, and none lifts a bound. An event that waits for its turn is charged no
    attempt, keeps the order of its aggregate, and holds up no other handler.

    Example: partbox limit set shop.charge --rate 100/s --at-once 5

    Example: partbox limit set shop.charge --rate none
    """
    verbs = outbox.create_operations(
        partial(LimitedHandlers, known=None if app is None else partial(_list_handler_names, app))
    )
    changed = verbs.set(handler, rate=rate, at_once=at_once, subscription=subscription)
    bounds = [f"rate {rate}"] * (rate is not None) + [f"at once {at_once}"] * (at_once is not None)
    done = f"limited handler {handler}: {', '.join(bounds)}; its workers apply this within a heartbeat"
    nothing = f"handler {handler} already has these limits: nothing to do"
    print_answer(outbox.json, {"limited": changed}, escape_line(done if changed else nothing))


@app.command()
@with_option_groups
def reset(*, handler: Handler, app: App = None, subscription: Subscription = "default", outbox: OutboxOptions) -> None:
    """Remove the limits that were set for a handler, so that its declared limits apply, if any.

    Example: partbox limit reset shop.charge
    """
    verbs = outbox.create_operations(
        partial(LimitedHandlers, known=None if app is None else partial(_list_handler_names, app))
    )
    changed = verbs.reset(handler, subscription=subscription)
    done = f"handler {handler} is back to its declared limits; its workers apply them within a heartbeat"
    nothing = f"no limits are set for handler {handler}: nothing to do"
    print_answer(outbox.json, {"reset": changed}, escape_line(done if changed else nothing))


def _list_handler_names(target: str, subscription: str) -> set[str]:
    from partbox.cli.shell.target import load_target

    return load_target(target).handlers.list_limitable_names(subscription)
