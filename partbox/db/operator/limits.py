"""Set and reset the limits of a handler, which hold until they are reset."""

from math import inf

from partbox.db.delivery.limits import OperatorBound
from partbox.db.operator import actions
from partbox.db.sql import Conn


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
