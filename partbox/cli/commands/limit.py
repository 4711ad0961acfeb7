"""`partbox limit`: limits handlers in running workers."""

from functools import partial
from typing import Annotated

import typer

from partbox.cli.shell.options import ActionOptions, OutboxOptions, Subscription, argument, option, with_option_groups
from partbox.cli.shell.output import ListColumn, escape_line, print_answer, print_list
from partbox.cli.views.cluster_tables import LIMIT_COLUMNS
from partbox.operations.limits import LimitedHandlers

app = typer.Typer(
    help="Limits of handlers: how many calls may start in a second, and run at once, in all processes together, and "
    "pauses.",
    no_args_is_help=True,
)

Handler = Annotated[str | None, argument("HANDLER", "The name that partbox handlers shows, such as shop.charge.")]
Rate = Annotated[
    str | None, option("N/s|N/m|N/h|0|none", "Calls that may start in a second, a minute or an hour; 0 pauses.")
]
Value = Annotated[str | None, option("TEXT", "Only this value of the handler's limit_by or circuit_by; rate 0.")]
Type = Annotated[str | None, option("EVENT_TYPE", "All events of this type, without HANDLER; rate 0.")]
Tenant = Annotated[str | None, option("ID", "All events of this tenant, without HANDLER; rate 0.")]
AtOnce = Annotated[str | None, option("N|none", "Calls that may run at once.")]
App = Annotated[str | None, option("MODULE:OUTBOX", "The outbox with the handlers; unknown handler names are refused.")]
COLUMNS = (ListColumn("subscription", lambda each: each.subscription), *LIMIT_COLUMNS)
Within = Annotated[str | None, option("NAME", "Only in this subscription.", "--subscription")]


@app.command("list")
@with_option_groups
def list_(*, subscription: Within = None, outbox: OutboxOptions) -> None:
    """List the limits that running workers apply, the limits that were set, and the events that wait for their turn.

    Rate and at once hold for all processes together and, if there is an "each", for each of its values. Paused values,
    types and tenants follow, and the values of handlers whose circuit is open. Times are the database's, in UTC.

    Example: partbox limit list
    """
    found = outbox.create_operations(LimitedHandlers).list(subscription)
    nothing = '@outbox.on(…, rate="100/s") declares one, `partbox limit set HANDLER --rate 100/s` sets one'
    print_list(found, COLUMNS, outbox.json, nothing=f"no limit: {nothing}")


@app.command("set")
@with_option_groups
def set_(
    *,
    handler: Handler = None,
    rate: Rate = None,
    at_once: AtOnce = None,
    value: Value = None,
    type: Type = None,
    tenant: Tenant = None,
    app: App = None,
    subscription: Subscription = "default",
    outbox: ActionOptions,
) -> None:
    """Limit a handler from now on, in place of its declared limits, until a reset. Workers apply it within a heartbeat.

    A bound that is not given stays unchanged, and none lifts a bound. An event that waits for its turn is charged no
    attempt, keeps the order of its aggregate, and holds up no other handler. Rate 0 pauses the handler, or only a value
    of it, or without a handler an event type or a tenant.

    Example: partbox limit set shop.charge --rate 100/s --at-once 5

    Example: partbox limit set shop.charge --rate none

    Example: partbox limit set shop.charge --value 4711 --rate 0

    Example: partbox limit set --tenant acme --rate 0
    """
    changed = _create_verbs(outbox, app).set(
        handler,
        rate=rate,
        at_once=at_once,
        value=value,
        event_type=type,
        tenant=tenant,
        subscription=subscription,
    )
    name = _describe_address(handler, value, type, tenant)
    bounds = [f"rate {rate}"] * (rate is not None) + [f"at once {at_once}"] * (at_once is not None)
    done = f"limited {name}: {', '.join(bounds)}; its workers apply this within a heartbeat"
    nothing = f"{name} already has these limits: nothing to do"
    print_answer(outbox.json, {"limited": changed}, escape_line(done if changed else nothing))


@app.command()
@with_option_groups
def reset(
    *,
    handler: Handler = None,
    value: Value = None,
    type: Type = None,
    tenant: Tenant = None,
    app: App = None,
    subscription: Subscription = "default",
    outbox: ActionOptions,
) -> None:
    """Remove the limits that were set for a handler, so that its declared limits apply, if any; or let a paused value,
    event type or tenant go on.

    Example: partbox limit reset shop.charge

    Example: partbox limit reset shop.charge --value 4711
    """
    changed = _create_verbs(outbox, app).reset(
        handler, value=value, event_type=type, tenant=tenant, subscription=subscription
    )
    name = _describe_address(handler, value, type, tenant)
    if handler is not None and value is None:
        done = f"{name} is back to its declared limits; its workers apply them within a heartbeat"
        nothing = f"no limits are set for {name}: nothing to do"
    else:
        done, nothing = (
            f"{name} goes on; its workers apply this within a heartbeat",
            f"{name} is not paused: nothing to do",
        )
    print_answer(outbox.json, {"reset": changed}, escape_line(done if changed else nothing))


def _create_verbs(outbox: OutboxOptions, app: str | None) -> LimitedHandlers:
    known = None if app is None else partial(_list_handler_names, app)
    return outbox.create_operations(partial(LimitedHandlers, known=known))


def _describe_address(handler: str | None, value: str | None, event_type: str | None, tenant: str | None) -> str:
    if event_type is not None or tenant is not None:
        return f"tenant {tenant}" if event_type is None else f"event type {event_type}"
    return f"handler {handler}" if value is None else f"value {value} of handler {handler}"


def _list_handler_names(target: str, subscription: str) -> set[str]:
    from partbox.cli.shell.target import load_target

    return load_target(target).handlers.list_limitable_names(subscription)
