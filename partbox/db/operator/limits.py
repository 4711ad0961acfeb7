"""Set and reset the limits of a handler, and pauses, which hold until they are reset."""

from math import inf

from partbox.db.delivery.limits import OperatorBound
from partbox.db.operator import actions
from partbox.db.sql import Conn
from partbox.protocol.limit_addresses import LimitAddress


def set_bounds(
    conn: Conn, schema: str, subscription: str, handler: str, rate: OperatorBound, at_once: OperatorBound
) -> bool:
    """Set the rate and concurrency limits of a handler. Return False if nothing has changed."""
    # This is an operator's action. None leaves a limit unchanged.
    given = {name: value for name, value in (("rate", rate), ("at_once", at_once)) if value is not None}
    bounds = {name: inf if value == "none" else float(value) for name, value in given.items()}
    values = {"subscription": subscription, "handler": handler, "rate": None, "at_once": None} | bounds
    target = {"handler": handler} | {name: str(value) for name, value in given.items()}
    return bool(actions.run_action(conn, "limit_set", schema, target, **values))


def reset_bounds(conn: Conn, schema: str, subscription: str, handler: str) -> bool:
    """Remove the limits that operators have set for a handler. Return False if there were none."""
    # The limits that the handler declares apply again.
    where = {"subscription": subscription, "handler": handler}
    return bool(actions.run_action(conn, "limit_reset", schema, {"handler": handler}, **where))


def set_pause(conn: Conn, schema: str, subscription: str, address: LimitAddress) -> bool:
    """Pause a value of a handler, an event type or a tenant. Return False if it is paused already."""
    # This is an operator's action.
    target = _describe_target(address) | {"rate": "0"}
    where = {"subscription": subscription, **address._asdict()}
    return bool(actions.run_action(conn, "limit_set_pause", schema, target, **where))


def reset_pause(conn: Conn, schema: str, subscription: str, address: LimitAddress) -> bool:
    """Let a paused value, event type or tenant go on. Return False if it is not paused."""
    target, where = _describe_target(address), {"subscription": subscription, **address._asdict()}
    return bool(actions.run_action(conn, "limit_reset_pause", schema, target, **where))


def _describe_target(address: LimitAddress) -> dict[str, object]:
    handler = {"handler": address.handler} if address.handler else {}
    return handler | {address.kind.value: address.value}
