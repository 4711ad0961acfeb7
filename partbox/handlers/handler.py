"""One handler: as it was registered, as a line of the routing table, and as the worker uses it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from partbox.callables import Call, is_async, place_of
from partbox.errors import RegistrationError, UnroutableError
from partbox.handlers.options import Blocking, OnError
from partbox.handlers.routes import ANY
from partbox.protocol.outage import ErrorNames, Errors
from partbox.protocol.retry import RetryPolicy
from partbox.protocol.verdict import Deferral

if TYPE_CHECKING:
    from partbox.settings import Settings

UNROUTABLE_DELAY = 5.0  # seconds until an event without a handler is looked at again


@dataclass(frozen=True, slots=True)
class Handler:
    """A handler as the worker uses it, every option filled in.

    `call` takes an event, a list of them if `max_size` is given, an event and a connection if `transactional`; it
    returns an outcome, or an awaitable of one if `is_async`. `per_key`: events of one key in a list, at most.
    `aggregate_type` None = any; `max_attempts` None = for ever; `timeout` in seconds, None = none; `close` is awaited
    when the worker ends, if an async handler ran; a worker calls `observed_by`, which sinks have, with the handler's
    name and its observers before it delivers. `circuit`: the errors that say that what it calls is away, beside
    DownstreamUnavailable; None = it has no circuit.
    """

    name: str
    call: Call
    is_async: bool
    event_type: str
    aggregate_type: str | None
    subscription: str
    retry: RetryPolicy
    max_attempts: int | None
    on_failure: Blocking
    on_dead: Blocking
    timeout: float | None
    circuit: Errors | None
    on_error: OnError | None = None
    transactional: bool = False
    max_size: int | None = None
    per_key: int | None = None
    close: Callable[[], Any] | None = None
    observed_by: Callable[[str, Any], None] | None = None


class Row(NamedTuple):
    """A line of the routing table; `options` holds those that do not follow the settings, as text."""

    subscription: str
    event_type: str
    aggregate_type: str | None
    handler: str
    kind: Literal["sync", "async"]
    place: str
    options: dict[str, str]


@dataclass(frozen=True, slots=True)
class Registration:
    """A handler as it was registered: plain data without locks, so that spawned processes can get it."""

    name: str
    call: Call
    event_type: str
    aggregate_type: str | None
    subscription: str
    options: Mapping[str, Any]
    max_size: int | None = None
    per_key: int | None = None
    close: Callable[[], Any] | None = None
    observed_by: Callable[[str, Any], None] | None = None

    @property
    def key(self) -> tuple[str, str, str | None]:
        """No two have the same."""
        return self.subscription, self.event_type, self.aggregate_type

    @property
    def who(self) -> str:
        return f"{self.name} ({place_of(self.call)})"

    def resolved(self, settings: "Settings") -> Handler:
        """The handler, with the settings for options that were not given; RegistrationError."""
        options = _usual(settings) | dict(self.options)
        circuit, more = options.pop("circuit"), options.pop("circuit_on", ())
        return Handler(
            self.name,
            self.call,
            is_async(self.call),
            self.event_type,
            self.aggregate_type,
            self.subscription,
            max_size=self.max_size,
            per_key=self.per_key,
            close=self.close,
            observed_by=self.observed_by,
            circuit=None if circuit is None else _found(ErrorNames((*circuit, *more)), self.who),
            **options,
        )

    def row(self) -> Row:
        options = {option: _said(value) for option, value in self.options.items()}
        if self.options.get("circuit", ()) is None:
            options["circuit"] = "off"
        if self.max_size is not None:
            options["max_size"] = str(self.max_size)
        kind: Literal["sync", "async"] = "async" if is_async(self.call) else "sync"
        return Row(
            self.subscription, self.event_type, self.aggregate_type, self.name, kind, place_of(self.call), options
        )


def routing(subscription: str, settings: "Settings", *, awaited: bool, missed: Call | None = None) -> Handler:
    """The handler of events that have no other: the setting `on_unroutable`.

    `awaited`: it must be async, because interceptors around it are. `missed` is called first with each
    such event, unless the setting is a function of the application.
    """
    mode = settings.unroutable_in(subscription)
    call = mode if callable(mode) else _ROUTINGS[mode] if missed is None else _telling(_ROUTINGS[mode], missed)
    if awaited and not is_async(call):
        call = _awaitable(call)
    options = _usual(settings)
    circuit = options.pop("circuit")
    found = None if circuit is None else _found(circuit, "on_unroutable")
    return Handler("on_unroutable", call, is_async(call), ANY, None, subscription, circuit=found, **options)


def _found(circuit: ErrorNames, who: str) -> Errors:
    try:
        return circuit.found()
    except ValueError as error:
        raise RegistrationError(f"the circuit of {who} cannot be made: {error}") from None


def _awaitable(call: Call) -> Call:
    async def route(event: Any) -> Any:
        return call(event)

    return route


def _telling(call: Call, missed: Call) -> Call:
    def route(event: Any) -> Any:
        missed(event)
        return call(event)

    return route


def _usual(settings: "Settings") -> dict[str, Any]:
    return {
        "retry": settings.retry,
        "max_attempts": settings.max_attempts,
        "on_failure": settings.on_failure,
        "on_dead": settings.on_dead,
        "timeout": settings.handler_timeout,
        "circuit": settings.circuit,
    }


def _said(value: Any) -> str:
    return str(getattr(value, "__qualname__", value))


def _dead(event: Any) -> None:
    raise UnroutableError(f"no handler for {_what(event)}")


def _ignore(_: Any) -> None:
    """Ignore the event."""


def _retry(event: Any) -> Deferral:
    return Deferral(UNROUTABLE_DELAY, f"no handler for {_what(event)} yet")


def _what(event: Any) -> str:
    return f"event type {event.event_type!r} of aggregate type {event.aggregate_type!r}"


_ROUTINGS: dict[str, Call] = {"dead": _dead, "ignore": _ignore, "retry": _retry}
