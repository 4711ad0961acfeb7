"""A handler as registered, as a row of the routing table and as the worker uses it, and the routes to handlers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from partbox.callables import Call, is_async, name_of, place_of
from partbox.errors import RegistrationError
from partbox.handlers.argument_adapters import adapt_call
from partbox.handlers.argument_plan import ANY as ANY
from partbox.handlers.argument_plan import ArgumentPlan, HandlerInput, format_annotation
from partbox.handlers.options import Blocking, OnError
from partbox.handlers.transactional import Transactional, TransactionKind, kind_of
from partbox.handlers.unroutable import Unroutable, unroutable_of
from partbox.protocol.limits import By, Limit
from partbox.protocol.outage import ErrorNames, Errors
from partbox.protocol.retry import RetryPolicy

if TYPE_CHECKING:
    from partbox.settings import Routing, Settings

MAX_CACHED = 10_000

T = TypeVar("T")
U = TypeVar("U")


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerBase:
    """The fields of a registered handler that do not depend on settings, such as its function and event type."""

    # `call` takes an event, or a list of events if `max_size` is given, or the arguments in `argument_plan`. A list has
    # at most `per_key` events of one key. `aggregate_type` None means any. `close` is awaited when the worker ends, if
    # an async handler ran. `observed_by`, which sinks have, is called with the handler's name and its observers before
    # the first delivery. `session` is the class of SQLAlchemy session that the handler asks for.

    name: str
    call: Call
    event_type: str
    aggregate_type: str | None
    subscription: str
    max_size: int | None = None
    per_key: int | None = None
    close: Callable[[], Any] | None = None
    observed_by: Callable[[str, Any], None] | None = None
    argument_plan: ArgumentPlan | None = None
    session: type | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler(HandlerBase):
    """A registered handler with all its options filled in, from the registration or the settings."""

    # `call` takes an event in any case, and after it the connection or session of its `transaction`, unless that is
    # Django's. The call returns an outcome, or an awaitable of an outcome if `is_async`. `max_attempts` None means no
    # limit. `timeout` is in seconds, None means none. `circuit` has the errors that say that the downstream is away,
    # beside DownstreamUnavailable; None means no circuit. With `circuit_by` there is a circuit for each value of it.
    # `newer` returns the outcome of an event that is too new.

    is_async: bool
    retry: RetryPolicy
    max_attempts: int | None
    on_failure: Blocking
    on_dead: Blocking
    timeout: float | None
    circuit: Errors | None
    circuit_by: By | None = None
    on_error: OnError | None = None
    transactional: Transactional = False
    limit: Limit
    newer: Unroutable

    @property
    def transaction(self) -> TransactionKind | None:
        """The kind of database transaction in which the handler runs, or None if it is not transactional."""
        return kind_of(self.transactional, is_async=self.is_async)


class RouteRow(NamedTuple):
    """A row of the table that shows which handler receives which events."""

    # A row is about one event type. `options` has the options that differ from the settings, as text.

    subscription: str
    event_type: str
    aggregate_type: str | None
    handler: str
    kind: Literal["sync", "async"]
    place: str
    options: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration(HandlerBase):
    """A handler as the application registered it, before settings fill in the missing options."""

    # The object is plain data without locks, so that it can be sent to spawned processes.

    options: Mapping[str, Any]
    handler_input: HandlerInput | None = None

    @property
    def key(self) -> tuple[str, str, str | None]:
        # No two registrations share all three.
        return self.subscription, self.event_type, self.aggregate_type

    @property
    def label(self) -> str:
        return f"{self.name} ({place_of(self.call)})"

    def resolve_options(self, settings: "Settings", label: str | None = None) -> Handler:
        """Return the complete handler, with missing options taken from the settings."""
        # RegistrationError is raised if the options cannot be used.
        defaults = {
            "retry": settings.retry,
            "max_attempts": settings.max_attempts,
            "on_failure": settings.on_failure,
            "on_dead": settings.on_dead,
            "timeout": settings.handler_timeout,
            "circuit": settings.circuit,
        }
        options = defaults | dict(self.options)
        circuit, more = options.pop("circuit"), options.pop("circuit_on", ())
        try:
            errors = None if circuit is None else ErrorNames((*circuit, *more)).import_errors()
        except ValueError as error:
            raise RegistrationError(f"the circuit of {label or self.label} cannot be made: {error}") from None
        if errors is None and "circuit" in self.options and "circuit_by" in options:
            raise RegistrationError(f'{label or self.label} has circuit_by and circuit="off": leave out one of them')
        base_fields = {each.name: getattr(self, each.name) for each in fields(HandlerBase)}
        must_await = is_async(self.call)
        self._check_guess()
        if self.argument_plan is not None:
            base_fields["call"] = adapt_call(
                self.call, self.argument_plan, is_async=must_await, is_batch=self.max_size is not None
            )
        limit = Limit(options.pop("rate", None), options.pop("at_once", None), options.pop("limit_by", None))
        newer = unroutable_of(settings.on_newer)
        return Handler(**base_fields, is_async=must_await, circuit=errors, limit=limit, newer=newer, **options)

    def _check_guess(self) -> None:
        needs = self.argument_plan.needs if self.argument_plan is not None else None
        if needs is not None and needs.is_guess:
            state = format_annotation(needs.state)
            raise RegistrationError(
                f"{self.label} asks for {state}, which no event provides and no lifespan yields: put @outbox.lifespan "
                f"above a generator function that is annotated to yield it, as in -> Iterator[{state}]"
            )

    def build_row(self) -> RouteRow:
        options = {name: str(getattr(value, "__qualname__", value)) for name, value in self.options.items()}
        if self.options.get("circuit", ()) is None:
            options["circuit"] = "off"
        if self.max_size is not None:
            options["max_size"] = str(self.max_size)
        if self.argument_plan is not None and self.argument_plan.model is not None:
            options["payload"] = getattr(self.argument_plan.model, "__qualname__", str(self.argument_plan.model))
        if self.argument_plan is not None and (needs := self.argument_plan.needs) is not None:
            state = [] if needs.state is None else [format_annotation(needs.state)]
            options["needs"] = ", ".join(state + [name_of(each.dependency) for each in needs.dependencies.values()])
        kind: Literal["sync", "async"] = "async" if is_async(self.call) else "sync"
        return RouteRow(
            self.subscription, self.event_type, self.aggregate_type, self.name, kind, place_of(self.call), options
        )


def build_fallback(
    subscription: str, settings: "Settings", *, must_await: bool, on_unrouted: Call | None = None
) -> Handler:
    """Build the handler for events that no registered handler takes."""
    # The setting `on_unroutable` decides about the events. With `must_await` it is async, because async interceptors
    # wrap it. `on_unrouted` is called first with each such event, unless the setting is a function of the application.
    mode = settings.unroutable_in(subscription)
    call = mode if callable(mode) else _route_unhandled(mode, on_unrouted)
    if must_await and not is_async(call):
        call = _make_async(call)
    registration = Registration(
        name="on_unroutable", call=call, event_type=ANY, aggregate_type=None, subscription=subscription, options={}
    )
    return registration.resolve_options(settings, "on_unroutable")


def _make_async(call: Call) -> Call:
    async def route(event: Any) -> Any:
        return call(event)

    return route


def _route_unhandled(mode: "Routing", on_unrouted: Call | None) -> Call:
    def route(event: Any) -> Any:
        if on_unrouted is not None:
            on_unrouted(event)
        outcome = unroutable_of(mode)(event, f"no handler for {_describe_event(event)}")
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    return route


def _describe_event(event: Any) -> str:
    return f"event type {event.event_type!r} of aggregate type {event.aggregate_type!r}"


class Routes(dict[tuple[str, str], T]):
    """A mapping that finds a subscription's handler for an event: `routes[event_type, aggregate_type]`."""

    # `list_registered` is keyed by event type (`"*"` for every type) and aggregate type (None for any). The most
    # specific match wins: (type, aggregate type), then (type, any), then ("*", aggregate type), then ("*", any), then
    # `default`. Results are cached in the dict itself, so that a look-up costs no Python call.

    __slots__ = ("_decided_by_aggregate", "_default", "_registered", "only_route")

    def __init__(self, registered: Mapping[tuple[str, str | None], T], default: T) -> None:
        super().__init__()
        self._registered = dict(registered)
        self._default = default
        self._decided_by_aggregate = {
            event_type for event_type, aggregate_type in registered if aggregate_type is not None
        }
        self.only_route: T | None = registered[ANY, None] if registered.keys() == {(ANY, None)} else None
        """The route of every event, if that is certain without a look-up, else None."""

    @property
    def default(self) -> T:
        return self._default

    def list_all(self) -> list[T]:
        """Return all handlers of the subscription, the fallback for unmatched events last."""
        return [*self._registered.values(), self._default]

    def list_registered(self) -> list[T]:
        """Return the registered handlers of the subscription, without the fallback for unmatched events."""
        return [*self._registered.values()]

    def list_types(self) -> list[tuple[str, str | None]]:
        """Return the pairs of event type and aggregate type that have a registered handler."""
        # `"*"` and None stand for any.
        return [*self._registered]

    def map_handlers(self, convert: Callable[[T], U]) -> "Routes[U]":
        """Return a copy of the mapping in which each handler is replaced by the result of `convert(handler)`."""
        # The keys stay the same.
        return Routes({pair: convert(each) for pair, each in self._registered.items()}, convert(self._default))

    def find_by_type(self, event_type: str) -> T | None:
        """Return the handler for all events of this type, or None if it depends on the aggregate type too."""
        for each in (event_type, ANY):
            if each in self._decided_by_aggregate:
                return None
            if (each, None) in self._registered:
                return self._registered[each, None]
        return self._default

    def __missing__(self, pair: tuple[str, str]) -> T:
        event_type, aggregate_type = pair
        candidates = (pair, (event_type, None), (ANY, aggregate_type), (ANY, None))
        found = next((self._registered[each] for each in candidates if each in self._registered), self._default)
        # Types are free text, so their number has no bound.
        if len(self) >= MAX_CACHED:
            self.clear()
        self[pair] = found
        return found
