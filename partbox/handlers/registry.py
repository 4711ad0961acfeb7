"""The registry of handlers, interceptors, the dead-letter hook and the lifespan. A handler is registered for an event
type (`"*"` for every type) and an aggregate type (None for any) of one subscription."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

from partbox import interceptors
from partbox.callables import callable_of, is_async, name_of, place_of, takes
from partbox.classes import Instance, kind_of
from partbox.errors import RegistrationError
from partbox.events.declaration import event_type_of
from partbox.events.event import NOT_GIVEN
from partbox.handlers import transactional
from partbox.handlers.argument_plan import UNKNOWN_STATE, HandlerInput, plan_arguments
from partbox.handlers.handler import ANY, Handler, Registration, RouteRow, Routes, build_fallback
from partbox.handlers.lifespan import Lifespan, LifespanFunction, lifespan_of
from partbox.handlers.needs import PlannedCall
from partbox.handlers.options import Options, check_batch_size, check_options

if TYPE_CHECKING:
    from partbox.settings import Settings

DEFAULT_BATCH_SIZE = 100
MAX_NAMED = 8  # subscriptions at most that an error names

AnyHandler = TypeVar("AnyHandler")
AnyLifespan = TypeVar("AnyLifespan", bound=LifespanFunction)


class Registrar:
    """A mixin with the methods and decorators that register handlers.

    A wrong or duplicate registration raises RegistrationError and changes nothing. An outbox registers in its
    `handlers`, which have the same methods."""

    @property
    def _registry(self) -> "Handlers":
        raise NotImplementedError

    @overload
    def on(
        self,
        event_type: str | Enum,
        aggregate_type: str | Enum | None = None,
        subscription: str = "default",
        **options: Unpack[Options],
    ) -> Callable[[AnyHandler], AnyHandler]: ...

    @overload
    def on(
        self,
        event_type: type[Instance],
        aggregate_type: str | Enum | None = None,
        subscription: str = "default",
        **options: Unpack[Options],
    ) -> Callable[[AnyHandler], AnyHandler]: ...

    def on(
        self,
        event_type: Any = NOT_GIVEN,
        aggregate_type: str | Enum | None = None,
        subscription: str = "default",
        **options: Unpack[Options],
    ) -> Callable[[AnyHandler], AnyHandler]:
        """Register the decorated function as the handler of an event type, where `"*"` stands for every type.

        An aggregate type of None stands for any. A class under `@partbox.event` stands for its name. The handler
        receives the arguments that its annotations ask for: the class, a `DeliveredEvent` of the class, both in two
        parameters, or the event as it is published. A handler may also ask for the state of the lifespan, and for
        `Annotated[T, Depends(provider)]` of fast-depends. The decorated function stays as it is."""
        given = event_type, aggregate_type, subscription
        return _build_decorator(
            "on", event_type, aggregate_type, lambda handler: self.register(handler, *given, **options)
        )

    @overload
    def on_batch(
        self,
        event_type: str | Enum,
        aggregate_type: str | Enum | None = None,
        subscription: str = "default",
        *,
        max_size: int = DEFAULT_BATCH_SIZE,
        **options: Unpack[Options],
    ) -> Callable[[AnyHandler], AnyHandler]: ...

    @overload
    def on_batch(
        self,
        event_type: type[Instance],
        aggregate_type: str | Enum | None = None,
        subscription: str = "default",
        *,
        max_size: int = DEFAULT_BATCH_SIZE,
        **options: Unpack[Options],
    ) -> Callable[[AnyHandler], AnyHandler]: ...

    def on_batch(
        self,
        event_type: Any = NOT_GIVEN,
        aggregate_type: str | Enum | None = None,
        subscription: str = "default",
        *,
        max_size: int = DEFAULT_BATCH_SIZE,
        **options: Unpack[Options],
    ) -> Callable[[AnyHandler], AnyHandler]:
        """Register the decorated function as a handler of *lists* of at most `max_size` events.

        A list has the events that wait now, in order per key. The handler may return a list with one outcome per event.
        An exception in the list is the error of that event."""

        def register(handler: Any) -> None:
            self._registry.add_handlers(
                _build_registration(handler, event_type, aggregate_type, subscription, options, max_size)
            )

        return _build_decorator("on_batch", event_type, aggregate_type, register)

    def register(
        self,
        handler: Any,
        event_type: str | Enum | type[Instance] | None = None,
        aggregate_type: str | Enum | None = None,
        subscription: str = "default",
        **options: Unpack[Options],
    ) -> None:
        """Register a handler without a decorator: a function, or an object with a method `handle`.

        The handler may have `event_type` and `aggregate_type` as attributes. An object with a `max_size` gets lists as
        with `on_batch`, and with a `per_key` at most that many events of one key. The `async def close()` of an object
        is called when the worker ends, and `observed_by(name, observers)` before the worker starts."""
        if isinstance(handler, str | Enum):
            raise RegistrationError(
                f"{handler!r} is no handler: the handler comes first, outbox.register(handler, {handler!r})"
            )
        max_size = getattr(handler, "max_size", None) if hasattr(handler, "handle") else None
        self._registry.add_handlers(
            _build_registration(handler, event_type, aggregate_type, subscription, options, max_size)
        )

    def intercept(self, interceptor: AnyHandler) -> AnyHandler:
        """Add an interceptor, which runs around each call of every handler.

        A new interceptor runs inside the interceptors added before. The package `partbox.interceptors` describes the
        forms of interceptors."""
        interceptors.check_interceptor(interceptor)
        self._registry.interceptors += (interceptor,)
        return interceptor

    def on_dead_letter(self, hook: AnyHandler) -> AnyHandler:
        """Register the decorated function to be called for each event that failed for good.

        The function is the dead-letter hook: `hook(event)` or `hook(event, error)`. The hook is called at least once
        for each dead event (an event that is not tried again). A second hook raises RegistrationError."""
        where = f"{name_of(hook)} ({place_of(hook)})" if callable(hook) else repr(hook)
        if not callable(hook) or not (takes(hook, 1) or takes(hook, 2)):
            raise RegistrationError(f"{where} must take the event, or the event and the text of its error")
        if (first := self._registry.dead_letter_hook) is not None:
            raise RegistrationError(f"{where} cannot be a second dead-letter hook beside {name_of(first)}")
        self._registry.dead_letter_hook = hook
        return hook

    def lifespan(self, function: AnyLifespan) -> AnyLifespan:
        """Register the decorated generator function as the startup and shutdown code of each worker process.

        The function is sync or async, takes no arguments, and yields the state of the handlers once. Each process that
        delivers runs it up to its yield before the first handler, and the rest after the last handler. An async
        function runs in the event loop of the async handlers. The state is `event.state`. A handler with a parameter of
        the class that the function is annotated to yield receives the state there. A second lifespan raises
        RegistrationError."""
        lifespan = lifespan_of(function)
        if (first := self._registry.process_lifespan) is not None:
            raise RegistrationError(
                f"{lifespan.label} cannot be a second lifespan beside {first.label}: enter it inside the first one"
            )
        self._registry.set_lifespan(lifespan)
        return function


class Handlers(Registrar):
    """The registry of one outbox: its handlers, interceptors, observers, dead-letter hook and lifespan."""

    def __init__(self) -> None:
        self._registered: dict[tuple[str, str, str | None], Registration] = {}
        self.interceptors: tuple[Any, ...] = ()
        self.observers: tuple[Any, ...] = ()
        self.dead_letter_hook: Callable[..., Any] | None = None
        self.process_lifespan: Lifespan | None = None

    @property
    def _registry(self) -> "Handlers":
        return self

    @property
    def state(self) -> Any:
        """The class that the lifespan yields, or UNKNOWN_STATE."""
        return UNKNOWN_STATE if self.process_lifespan is None else self.process_lifespan.state

    def set_lifespan(self, lifespan: Lifespan) -> None:
        """Set the startup and shutdown code (lifespan) that each worker process runs."""
        # The arguments of all handlers are planned anew. RegistrationError is raised if a handler asks for another
        # state.
        planned = {key: _plan_registration(each, lifespan) for key, each in self._registered.items()}
        self._registered, self.process_lifespan = planned, lifespan

    def register_for(
        self,
        handler: Any,
        event_type: str,
        aggregate_types: Iterable[str | Enum],
        subscription: str = "default",
        **options: Unpack[Options],
    ) -> None:
        """Register one handler for an event type of several aggregate types."""
        # If one of them already has a handler, it is registered for none.
        self.add_handlers(
            *(_build_registration(handler, event_type, each, subscription, options, None) for each in aggregate_types)
        )

    def add_observer(self, observer: Any) -> None:
        """Add an observer, whose hooks the worker calls, for example for metrics or traces."""
        # An observer is an object. The module `partbox.observe.observer` describes the hooks.
        self.observers += (observer,)

    def build_routes(
        self, subscription: str, settings: "Settings", on_unrouted: Callable[[Any], None] | None = None
    ) -> Routes[Handler]:
        """Return the mapping that finds the handler of a subscription for each event."""
        # The mapping has the handlers that are registered now.
        # Options are filled in from `settings`. `on_unrouted` is called with each event that has no handler. The
        # handler of such events is made by `build_fallback`.
        mine = [each for each in self._registered.values() if each.subscription == subscription]
        _check_limits(mine)
        must_await = any(map(interceptors.must_be_awaited, self.interceptors))
        return Routes(
            {(each.event_type, each.aggregate_type): each.resolve_options(settings) for each in mine},
            default=build_fallback(subscription, settings, must_await=must_await, on_unrouted=on_unrouted),
        )

    def list_names(self, subscription: str, settings: "Settings") -> tuple[list[str], list[str]]:
        """Return the names of a subscription's handlers, and of those that forward events to another system (sinks)."""
        handlers = self.build_routes(subscription, settings).list_all()
        return [each.name for each in handlers], [each.name for each in handlers if each.observed_by is not None]

    def list_limitable_names(self, subscription: str) -> set[str]:
        """Return the names of a subscription's handlers that accept rate and concurrency limits."""
        # All handlers do except transactional handlers.
        mine = (each for each in self._registered.values() if each.subscription == subscription)
        return {each.name for each in mine if not each.options.get("transactional")}

    def describe_missing_handler(self, subscription: str, settings: "Settings", where: str = "") -> str | None:
        """Return an error text that asks for a handler if the subscription has none. Return None if it has one."""
        # Without a handler a worker may not start. A function as `on_unroutable` takes all events, so it is enough.
        # `where` says in the text where to register a handler.
        subscriptions = dict.fromkeys(each.subscription for each in self._registered.values())
        if subscription in subscriptions or callable(settings.unroutable_in(subscription)):
            return None
        others = (
            ", ".join(map(repr, subscriptions)) if len(subscriptions) <= MAX_NAMED else f"{len(subscriptions)} others"
        )
        its_own = "" if subscription == "default" else f", subscription={subscription!r}"
        return (
            f"subscription {subscription!r} has no handler, so a worker would deliver none of its events: before the "
            f'worker starts, register one{where}, such as @outbox.on("OrderPlaced"{its_own}); '
            + (f"there are handlers of {others}" if others else "no other subscription has one either")
        )

    def require_handler(self, subscription: str, settings: "Settings", where: str = "") -> None:
        """Raise RegistrationError if the subscription has no handler."""
        # The text is that of `describe_missing_handler`.
        if (missing_handler := self.describe_missing_handler(subscription, settings, where)) is not None:
            raise RegistrationError(missing_handler)

    def build_table(self, subscription: str | None = None) -> list[RouteRow]:
        """Return the routing table of one subscription or of all, a row for each registered handler."""
        # Handlers for every event type come last.
        rows = [each.build_row() for each in self._registered.values() if subscription in (None, each.subscription)]
        return sorted(
            rows,
            key=lambda row: (
                row.subscription,
                row.event_type == ANY,
                row.event_type,
                row.aggregate_type is None,
                row.aggregate_type or "",
            ),
        )

    def add_handlers(self, *registrations: Registration) -> None:
        """Add handlers to the registry. Raise RegistrationError if an event type already has a handler."""
        # After the error none of them is added.
        for new in registrations:
            if (old := self._registered.get(new.key)) is not None:
                pair = f"{new.event_type!r} of {new.aggregate_type or 'any aggregate type'}"
                raise RegistrationError(
                    f"{pair} has a handler in subscription {new.subscription!r}, {old.label}; {new.label} "
                    "cannot take it too: remove one handler, or give it another aggregate type or subscription"
                )
        self._registered.update({new.key: _plan_registration(new, self.process_lifespan) for new in registrations})


def _build_registration(
    handler: Any,
    event_type: str | Enum | type[Instance] | None,
    aggregate_type: str | Enum | None,
    subscription: str,
    options: Options,
    max_size: int | None,
) -> Registration:
    call = callable_of(handler)
    name = options.get("name") or name_of(handler)
    where = f"{name} ({place_of(call)})"
    if event_type is None:
        event_type = getattr(handler, "event_type", None)
    if aggregate_type is None:
        aggregate_type = getattr(handler, "aggregate_type", None)
    given = check_options(options, where)
    if kind := given.get("transactional", False):
        transactional.check_transactional(call, kind, where, is_batch=max_size is not None, options=given)
    named = _check_event_type(event_type, where)
    trailing_arg = transactional.trailing_arg_of(kind)
    handler_input = HandlerInput(
        named, event_type if isinstance(event_type, type) else None, trailing_arg, max_size is not None, where
    )
    is_object = hasattr(handler, "handle")
    close = getattr(handler, "close", None) if is_object else None
    return Registration(
        name=_check_text("name", name, where),
        call=call,
        event_type=named,
        aggregate_type=None if aggregate_type in (None, ANY) else _check_text("aggregate_type", aggregate_type, where),
        subscription=_check_text("subscription", subscription, where),
        options=given,
        max_size=None if max_size is None else check_batch_size(max_size, where),
        per_key=getattr(handler, "per_key", None),
        close=close if close is not None and is_async(close) else None,
        observed_by=getattr(handler, "observed_by", None) if is_object else None,
        handler_input=handler_input,
    )


def _check_limits(registrations: Iterable[Registration]) -> None:
    # Two handlers of the same name must not have different rate or concurrency limits, because a limit belongs to a
    # name.
    found: dict[str, tuple[Registration, list[Any]]] = {}
    for each in registrations:
        limit = [each.options.get(option) for option in transactional.LIMITS]
        first, known_limit = found.setdefault(each.name, (each, limit))
        if limit != known_limit:
            raise RegistrationError(
                f"{first.label} and {each.label} have the same name but different limits, and a limit belongs to a "
                "name: give both the same rate, at_once, limit_by and circuit_by, or one of them another name, as in "
                'name="charge-again"'
            )


def _plan_registration(registration: Registration, lifespan: Lifespan | None) -> Registration:
    call, handler_input = registration.call, registration.handler_input
    assert handler_input is not None
    state = UNKNOWN_STATE if lifespan is None else lifespan.state
    if isinstance(call, PlannedCall):
        call = call.with_state(state)
    argument_plan = plan_arguments(call, handler_input, state)
    trailing_arg, session = argument_plan.trailing_arg if argument_plan else 1, None
    if registration.options.get("transactional") == "sqlalchemy":
        session = transactional.session_class_of(call, trailing_arg, handler_input.label)
    return replace(registration, call=call, argument_plan=argument_plan, session=session)


def _build_decorator(
    name: str, event_type: Any, aggregate_type: Any, register: Callable[[Any], None]
) -> Callable[[AnyHandler], AnyHandler]:
    # An error is raised for `@outbox.on` without parentheses, and for `outbox.on(…, handler)`, which would register
    # nothing.
    if event_type is NOT_GIVEN:
        raise RegistrationError(
            f'@outbox.{name}() has no event type: write @outbox.{name}("OrderPlaced"), or @outbox.{name}("*") for '
            "every type"
        )
    if callable(aggregate_type) and not isinstance(aggregate_type, Enum):
        raise RegistrationError(
            f"outbox.{name} was given {name_of(aggregate_type)} as its aggregate type, and would register nothing: "
            f"write @outbox.{name}({event_type!r}) above the handler, or outbox.register(handler, {event_type!r})"
        )
    if isinstance(event_type, list | tuple | set):
        raise RegistrationError(
            f"@outbox.{name} was given a {type(event_type).__name__}: it takes one event type, so write one decorator "
            "above the other"
        )
    cls: Any = type(event_type)
    if not isinstance(event_type, type) and kind_of(cls) is not None:
        raise RegistrationError(
            f"@outbox.{name} was given an instance of {cls.__qualname__}: write @outbox.{name}({cls.__qualname__})"
        )
    if kind_of(event_type) is not None and not hasattr(event_type, "handle"):
        _check_event_type(event_type, f"@outbox.{name}")
    elif (callable(event_type) or isinstance(event_type, classmethod) or hasattr(event_type, "handle")) and not (
        isinstance(event_type, str | Enum)
    ):
        raise RegistrationError(
            f"@outbox.{name} stands above {name_of(event_type)} without an event type, and would register nothing:"
            f' write @outbox.{name}("OrderPlaced"), or @outbox.{name}("*") for every type'
        )

    def decorate(handler: AnyHandler) -> AnyHandler:
        register(handler)
        return handler

    return decorate


def _check_event_type(given: Any, where: str) -> str:
    # The event type may be text, an Enum member, or a class under `@partbox.event`.
    if not isinstance(given, type):
        return _check_text("event_type", given, where)
    if (declared := event_type_of(given)) is not None:
        return declared.name
    raise RegistrationError(
        f"event_type of {where} is the class {given.__qualname__}, which is no event: decorate it with @partbox.event, "
        "or name the type"
    )


def _check_text(what: str, value: Any, where: str) -> str:
    if isinstance(value, Enum):
        value = value.value if isinstance(value.value, str) else value.name
    if not isinstance(value, str) or not value or "\0" in value:
        raise RegistrationError(f"{what} of {where} must be a str or an Enum, not {value!r}: name it when registering")
    return value
