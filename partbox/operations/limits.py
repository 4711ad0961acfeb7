"""Limits of handlers, as operators set them."""

import re
from collections.abc import Callable, Collection
from typing import Final

from partbox.db.delivery.limits import HandlerLimit, OperatorBound
from partbox.db.inspect.stats import EXACT_OF_LIST, read_overview
from partbox.db.operator import limits
from partbox.operations import arguments
from partbox.operations.arguments import ArgumentError
from partbox.operations.session import OperatorCommands
from partbox.protocol.limits import rate_of
from partbox.settings import Settings
from partbox.text.printing import shorten_line
from partbox.text.wording import format_hint

UNLIMITED: Final = "none"
MAX_AT_ONCE: Final = 10**9  # calls at once


class LimitedHandlers(OperatorCommands):
    """Commands on the limits of event handlers: calls per second and concurrent calls.

    A limit that is set overrides the declared one, bound by bound, until it is reset. Running workers apply a change
    within one heartbeat. `known` returns the names of a subscription's handlers that take limits, as far as this
    process knows them. An invalid argument raises PartboxError with a remedy, an unreachable database raises
    psycopg.Error."""

    _group_name = "limit"

    def __init__(
        self, dsn: Callable[[], str], settings: Settings, known: Callable[[str], Collection[str]] | None = None
    ) -> None:
        super().__init__(dsn, settings)
        self._names_of = known

    def list(self, subscription: str | None = None) -> list[HandlerLimit]:
        """Return the limits of event handlers, each with the number of calls that wait for it.

        The handlers are those of one or all subscriptions. The limits are those that living processes apply, and those
        that operators have set."""
        with self._open_session(subscription) as conn:
            found = read_overview(conn, self._schema, subscription, exact_up_to=EXACT_OF_LIST)
        return [limit for cluster in found.clusters for limit in cluster.limits]

    def set(
        self,
        handler: str,
        *,
        rate: str | None = None,
        at_once: int | str | None = None,
        subscription: str = "default",
    ) -> bool:
        """Limit the calls of a handler across all workers of a subscription. Return False if nothing changed.

        `rate` limits the calls that start, such as "100/s", "6000/m" or "5/h". `at_once` limits concurrent calls.
        "none" lifts a bound, and None leaves it unchanged."""
        given = _parse_rate(rate), _parse_at_once(at_once)
        if given == (None, None):
            raise ArgumentError(
                "rate", 'is missing, and so is at_once: give one of them, such as "100/s", or "none" to lift a limit'
            )
        with self._open_session(subscription) as conn:
            self._check_handler(handler, subscription)
            changed = limits.set_bounds(conn, self._schema, subscription, handler, *given)
        if changed:
            bounds = rate or "as it was", at_once or "as it was"
            self._log_command("set", subscription, "limited handler %r: rate %s, at once %s", handler, *bounds)
        return changed

    def reset(self, handler: str, *, subscription: str = "default") -> bool:
        """Remove the limit that an operator set for a handler, so that the limits declared in its code apply again.
        Return False if there was none."""
        arguments.check_text("handler", handler)
        with self._open_session(subscription) as conn:
            changed = limits.reset_bounds(conn, self._schema, subscription, handler)
            # A handler that has left the code can still be reset, so its name is checked only if nothing was found.
            if not changed:
                self._check_handler(handler, subscription)
        if changed:
            self._log_command("reset", subscription, "handler %r is limited as its code declares", handler)
        return changed

    def _check_handler(self, handler: str, subscription: str) -> None:
        arguments.check_kind("handler", handler)
        known = self._names_of(subscription) if self._names_of is not None else ()
        if known and handler not in known:
            problem = f"{shorten_line(handler)!r} is not in subscription {subscription!r}, or takes no limit"
            raise ArgumentError("handler", f"{problem}: {format_hint(handler, sorted(known))}")


def _parse_rate(value: str | None) -> OperatorBound:
    if value is None or value == UNLIMITED:
        return value
    try:
        return rate_of(value)
    except ValueError as error:
        raise ArgumentError("rate", f'{value!r} is not a rate: {error}, or "none" to lift the limit') from None


def _parse_at_once(value: int | str | None) -> OperatorBound:
    if value is None or value == UNLIMITED:
        return value
    number = int(value) if isinstance(value, str) and re.fullmatch("[0-9]{1,9}", value) else value
    if type(number) is not int or not 1 <= number < MAX_AT_ONCE:
        raise ArgumentError("at_once", f'{value!r} must be a whole number from 1, or "none" to lift the limit')
    return number
