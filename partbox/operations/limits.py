"""Limits of handlers, as operators set them."""

import re
from collections.abc import Callable, Collection
from typing import Final

from partbox.classes import Instance
from partbox.db.delivery.limits import HandlerLimit, OperatorBound
from partbox.db.inspect.stats import EXACT_OF_LIST, read_overview
from partbox.db.operator import limits
from partbox.operations import arguments
from partbox.operations.arguments import ArgumentError
from partbox.operations.session import OperatorCommands
from partbox.protocol.limit_addresses import LimitAddress, LimitKind
from partbox.protocol.limit_values import name_limit_value
from partbox.protocol.limits import rate_of
from partbox.settings import Settings
from partbox.text.printing import shorten_line
from partbox.text.wording import format_hint

UNLIMITED: Final = "none"
OF_HANDLERS: Final = (LimitKind.HANDLER, LimitKind.VALUE)
PAUSED: Final = re.compile(r"\s*0+(\.0+)?\s*(/\s*[smh]\s*)?")
MAX_AT_ONCE: Final = 10**9  # calls at once


class LimitedHandlers(OperatorCommands):
    """Commands on the limits of event handlers: calls per second and concurrent calls, and pauses.

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
        handler: str | None = None,
        *,
        rate: str | int | None = None,
        at_once: int | str | None = None,
        value: str | None = None,
        event_type: str | type[Instance] | None = None,
        tenant: str | None = None,
        subscription: str = "default",
    ) -> bool:
        """Limit the calls of a handler across all workers of a subscription. Return False if nothing changed.

        `rate` limits the calls that start, such as "100/s", "6000/m" or "5/h". `at_once` limits concurrent calls.
        "none" lifts a bound, and None leaves it unchanged. A rate of 0 pauses the handler, or only the events of a
        `value` of its `limit_by` or `circuit_by`; without a handler it pauses an `event_type` or a `tenant`."""
        address = _find_address(handler, value, event_type, tenant)
        given = _parse_rate(rate), _parse_at_once(at_once)
        if given == (None, None):
            raise ArgumentError(
                "rate", 'is missing, and so is at_once: give one of them, such as "100/s", or "none" to lift a limit'
            )
        if address.kind is not LimitKind.HANDLER and given != (0.0, None):
            raise ArgumentError(
                "rate" if given[0] != 0 else "at_once", f"{_describe(address)} can only be paused: use rate 0"
            )
        with self._open_session(subscription) as conn:
            if address.kind in OF_HANDLERS:
                self._check_handler(address.handler, subscription)
            if address.kind is LimitKind.HANDLER:
                changed = limits.set_bounds(conn, self._schema, subscription, address.handler, *given)
            else:
                changed = limits.set_pause(conn, self._schema, subscription, address)
        if changed:
            bounds = "as it was" if rate is None else rate, at_once or "as it was"
            self._log_command("set", subscription, "limited %s: rate %s, at once %s", _describe(address), *bounds)
        return changed

    def reset(
        self,
        handler: str | None = None,
        *,
        value: str | None = None,
        event_type: str | type[Instance] | None = None,
        tenant: str | None = None,
        subscription: str = "default",
    ) -> bool:
        """Remove the limit that an operator set for a handler, so that the limits declared in its code apply again, or
        let a paused value, event type or tenant go on. Return False if there was none."""
        address = _find_address(handler, value, event_type, tenant)
        with self._open_session(subscription) as conn:
            if address.kind is LimitKind.HANDLER:
                changed = limits.reset_bounds(conn, self._schema, subscription, address.handler)
            else:
                changed = limits.reset_pause(conn, self._schema, subscription, address)
            # A handler that has left the code can still be reset, so its name is checked only if nothing was found.
            if not changed and address.kind in OF_HANDLERS:
                self._check_handler(address.handler, subscription)
        if changed:
            text = "%s is limited as its code declares" if address.kind is LimitKind.HANDLER else "%s goes on"
            self._log_command("reset", subscription, text, _describe(address))
        return changed

    def _check_handler(self, handler: str, subscription: str) -> None:
        arguments.check_kind("handler", handler)
        known = self._names_of(subscription) if self._names_of is not None else ()
        if known and handler not in known:
            problem = f"{shorten_line(handler)!r} is not in subscription {subscription!r}, or takes no limit"
            raise ArgumentError("handler", f"{problem}: {format_hint(handler, sorted(known))}")


def _find_address(
    handler: str | None, value: str | None, event_type: str | type[Instance] | None, tenant: str | None
) -> LimitAddress:
    given = {"handler": handler, "value": value, "event_type": event_type, "tenant": tenant}
    named = [name for name, each in given.items() if each is not None]
    if named not in (["handler"], ["handler", "value"], ["event_type"], ["tenant"]):
        problem = "is missing" if not named else f"cannot be given with {' and '.join(named[1:])}"
        if named == ["value"]:
            problem = "needs a handler"
        raise ArgumentError(
            named[0] if named else "handler",
            f"{problem}: give a handler, a handler and a value, an event type, or a tenant",
        )
    if tenant is not None:
        return LimitAddress(LimitKind.TENANT, "", arguments.check_text("tenant", tenant))
    if event_type is not None:
        return LimitAddress(LimitKind.TYPE, "", arguments.event_type_name("event_type", event_type))
    name = arguments.check_text("handler", handler or "")
    if value is None:
        return LimitAddress.of_handler(name)
    return LimitAddress(LimitKind.VALUE, name, name_limit_value(arguments.check_text("value", value)))


def _describe(address: LimitAddress) -> str:
    match address.kind:
        case LimitKind.HANDLER:
            return f"handler {address.handler!r}"
        case LimitKind.VALUE:
            return f"value {address.value!r} of handler {address.handler!r}"
        case _:
            return f"{'event type' if address.kind is LimitKind.TYPE else 'tenant'} {address.value!r}"


def _parse_rate(value: str | int | None) -> OperatorBound:
    if value is None or value == UNLIMITED:
        return value
    if type(value) in (int, str) and PAUSED.fullmatch(str(value)):
        return 0.0
    try:
        return rate_of(value)
    except ValueError as error:
        raise ArgumentError(
            "rate", f'{value!r} is not a rate: {error}, "none" to lift the limit, or 0 to pause'
        ) from None


def _parse_at_once(value: int | str | None) -> OperatorBound:
    if value is None or value == UNLIMITED:
        return value
    number = int(value) if isinstance(value, str) and re.fullmatch("[0-9]{1,9}", value) else value
    if type(number) is not int or not 1 <= number < MAX_AT_ONCE:
        raise ArgumentError("at_once", f'{value!r} must be a whole number from 1, or "none" to lift the limit')
    return number
