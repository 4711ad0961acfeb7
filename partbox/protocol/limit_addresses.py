"""The addresses of limits: a handler, a value of a handler, an event type, or a tenant.

A limit of a handler divides the handler's events by value, and each value has the bounds for itself. Everything else is
*closed* as a whole: an operator has paused it, which is a limit of 0, or the circuit of a value is open. An event waits
until nothing that holds it is closed, and then for its turn under its handler's limit."""

from collections.abc import Collection, Hashable, Iterator
from enum import StrEnum
from typing import Final, NamedTuple

from partbox.protocol.limit_values import LimitValue, format_limit_value

WAITS: Final = "it waits for its turn: "
"""The beginning of the stored text of every event that waits for a turn, as in sql/queries/blocked.sql."""


class LimitKind(StrEnum):
    """The kinds of objects that may have a limit, or be closed."""

    HANDLER = "handler"
    # A value of the handler's `limit_by` or `circuit_by`, by its text.
    VALUE = "value"
    TYPE = "type"
    TENANT = "tenant"
    # A value of the handler's `circuit_by`, while its downstream is away.
    CIRCUIT = "circuit"


class LimitAddress(NamedTuple):
    """The object that a limit belongs to. `handler` is empty for an event type and a tenant."""

    # `value` is empty for a handler, the plain value for a circuit, and otherwise a text.

    kind: LimitKind
    handler: str
    value: Hashable = ""

    @classmethod
    def of_handler(cls, handler: str) -> "LimitAddress":
        """Return the address of all events of a handler."""
        return cls(LimitKind.HANDLER, handler)


# The name of a handler, or the address of something closed, and a value of the limit's division.
LimitKey = tuple[str | LimitAddress, Hashable]


class EventKeys(NamedTuple):
    """The values by which the limits and the circuits of its handler divide an event, and its type and tenant."""

    # `has_circuit` is True if the handler has a circuit for each value.

    handler: str
    limit_value: LimitValue
    event_type: str
    tenant_id: str | None
    has_circuit: bool = False
    circuit_value: LimitValue = None

    @property
    def values(self) -> tuple[LimitValue, LimitValue]:
        """The values that all events of a list share."""
        return self.limit_value, self.circuit_value

    @property
    def circuit(self) -> LimitAddress:
        """The address of the circuit of this event."""
        return LimitAddress(LimitKind.CIRCUIT, self.handler, self.circuit_value)

    def list_closable(self) -> Iterator[LimitAddress]:
        """Return the addresses that hold this event while they are closed, paused ones first."""
        yield LimitAddress(LimitKind.TYPE, "", self.event_type)
        if self.tenant_id is not None:
            yield LimitAddress(LimitKind.TENANT, "", self.tenant_id)
        yield LimitAddress(LimitKind.VALUE, self.handler, format_limit_value(self.limit_value))
        if self.has_circuit:
            yield LimitAddress(LimitKind.VALUE, self.handler, format_limit_value(self.circuit_value))
            yield self.circuit

    def find_key(self, closed: Collection[LimitAddress]) -> LimitKey:
        """Return the key under which the event waits for a permit, while the objects at the addresses are `closed`."""
        if closed:
            for address in self.list_closable():
                if address in closed:
                    return address, None
        return self.handler, self.limit_value


def describe_wait(limit_key: LimitKey, *, is_closed: bool = False, open_since: str | None = None) -> str:
    """Return the text that says why an event waits under a key. `open_since` is the time at which a circuit opened."""
    # `is_closed` means that nothing of the key starts.
    name = limit_key[0]
    if not isinstance(name, LimitAddress):
        if is_closed:
            return f"{WAITS}its handler {name} was paused"
        value = "" if limit_key[1] is None else f" for the value {format_limit_value(limit_key[1])!r}"
        return f"{WAITS}its handler {name} has a limit{value}"
    match name.kind:
        case LimitKind.CIRCUIT:
            value, since = format_limit_value(name.value), "" if open_since is None else f" since {open_since}"
            return f"{WAITS}the circuit of its handler {name.handler} for the value {value!r} is open{since}"
        case LimitKind.VALUE:
            return f"{WAITS}the value {name.value!r} of its handler {name.handler} was paused"
        case LimitKind.TYPE:
            return f"{WAITS}its event type was paused"
        case _:
            return f"{WAITS}its tenant {name.value!r} was paused"
