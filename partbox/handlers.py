"""The registry of handlers, and the routes from an event to its handler.

A handler takes one event: a function, an `async def`, or an object with such a `handle`. It is registered for an event
type (`"*"` = every type) and an aggregate type (None = any) of one subscription; of those that fit an event the most
specific is called: (type, aggregate type), then (type, any), then ("*", aggregate type), then ("*", any).

What is registered is plain data without locks, so that it travels to spawned processes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum
from typing import Any, Literal, NamedTuple, TypedDict, TypeVar, Unpack

from partbox.errors import RegistrationError
from partbox.rules.duration import seconds
from partbox.rules.retry import RetryPolicy, policy_of
from partbox.rules.signature import Call, call_of, is_async, name_of, place_of
from partbox.settings import Settings

ANY = "*"
CACHED = 10_000

Blocking = Literal["block", "continue"]
AnyHandler = TypeVar("AnyHandler")


class Options(TypedDict, total=False):
    """What may be said of a handler; what is left out follows the settings."""

    name: str  # for logs, metrics and `partbox handlers`; usually module and function
    retry: RetryPolicy | str
    max_attempts: int | None  # calls including the first; None = for ever
    on_failure: Blocking
    on_dead: Blocking
    timeout: float | str | None  # seconds, or "5m"; None = none


@dataclass(frozen=True, slots=True)
class Handler:
    """A handler as the dispatcher uses it, every option filled in.

    `call(event)` returns an outcome, or an awaitable of one if `is_async`; `aggregate_type` None = any;
    `max_attempts` None = for ever; `timeout` in seconds, None = none.
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
class _Registration:
    name: str
    call: Call
    event_type: str
    aggregate_type: str | None
    subscription: str
    options: Mapping[str, Any]

    @property
    def who(self) -> str:
        return f"{self.name} ({place_of(self.call)})"

    def resolved(self, settings: Settings) -> Handler:
        usual = {
            "retry": settings.retry,
            "max_attempts": settings.max_attempts,
            "on_failure": settings.on_failure,
            "on_dead": settings.on_dead,
            "timeout": settings.handler_timeout,
        }
        return Handler(
            self.name,
            self.call,
            is_async(self.call),
            self.event_type,
            self.aggregate_type,
            self.subscription,
            **(usual | dict(self.options)),
        )

    def row(self) -> Row:
        return Row(
            self.subscription,
            self.event_type,
            self.aggregate_type,
            self.name,
            "async" if is_async(self.call) else "sync",
            place_of(self.call),
            {option: str(value) for option, value in self.options.items()},
        )


class Routes:
    """The handlers of one subscription, looked up by event; for the dispatcher, which does it for every record."""

    __slots__ = ("_found", "_registered")

    def __init__(self, registered: Mapping[tuple[str, str | None], Handler]) -> None:
        self._registered = dict(registered)
        self._found: dict[tuple[str, str], Handler | None] = {}

    def find(self, event_type: str, aggregate_type: str) -> Handler | None:
        """The most specific handler of the pair; None if no handler takes it."""
        try:
            return self._found[event_type, aggregate_type]
        except KeyError:
            return self._search(event_type, aggregate_type)

    def _search(self, event_type: str, aggregate_type: str) -> Handler | None:
        wider = ((event_type, aggregate_type), (event_type, None), (ANY, aggregate_type), (ANY, None))
        found = next((self._registered[pair] for pair in wider if pair in self._registered), None)
        if len(self._found) >= CACHED:  # types are free text: their number has no bound, the cache has
            self._found.clear()
        self._found[event_type, aggregate_type] = found
        return found


class Handlers:
    """Registers handlers; a wrong or a second registration raises RegistrationError and changes nothing."""

    def __init__(self) -> None:
        self._registered: dict[tuple[str, str, str | None], _Registration] = {}

    def on(
        self,
        event_type: str | Enum,
        aggregate_type: str | Enum | None = None,
        subscription: str = "default",
        **options: Unpack[Options],
    ) -> Callable[[AnyHandler], AnyHandler]:
        """Decorates the handler of these events, which stays what it is."""

        def decorate(handler: AnyHandler) -> AnyHandler:
            self.register(handler, event_type, aggregate_type, subscription, **options)
            return handler

        return decorate

    def register(
        self,
        handler: Any,
        event_type: str | Enum | None = None,
        aggregate_type: str | Enum | None = None,
        subscription: str = "default",
        **options: Unpack[Options],
    ) -> None:
        """Registers a function or an object with `handle`, which may carry `event_type` and `aggregate_type` itself."""
        call = call_of(handler)
        name = options.get("name") or name_of(handler)
        where = f"{name} ({place_of(call)})"
        if event_type is None:
            event_type = getattr(handler, "event_type", None)
        if aggregate_type is None:
            aggregate_type = getattr(handler, "aggregate_type", None)
        self._add(
            _Registration(
                name=_text("name", name, where),
                call=call,
                event_type=_text("event_type", event_type, where),
                aggregate_type=None
                if aggregate_type in (None, ANY)
                else _text("aggregate_type", aggregate_type, where),
                subscription=_text("subscription", subscription, where),
                options=_checked(options, where),
            )
        )

    def routes(self, subscription: str, settings: Settings) -> Routes:
        """The routes of a subscription as registered now, options filled in from `settings`."""
        mine = (each for each in self._registered.values() if each.subscription == subscription)
        return Routes({(each.event_type, each.aggregate_type): each.resolved(settings) for each in mine})

    def table(self, subscription: str | None = None) -> list[Row]:
        """Who takes what, of all subscriptions unless one is named; catch-alls last."""
        rows = [each.row() for each in self._registered.values() if subscription in (None, each.subscription)]
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

    def _add(self, new: _Registration) -> None:
        key = (new.subscription, new.event_type, new.aggregate_type)
        old = self._registered.setdefault(key, new)
        if old is not new:
            pair = f"{new.event_type!r} of {new.aggregate_type or 'any aggregate type'}"
            raise RegistrationError(
                f"{pair} has a handler in subscription {new.subscription!r}, {old.who}; {new.who} cannot take it too: "
                "remove one, or give it another aggregate type or subscription"
            )


def _text(what: str, value: Any, where: str) -> str:
    if isinstance(value, Enum):
        value = value.value if isinstance(value.value, str) else value.name
    if not isinstance(value, str) or not value or "\0" in value:
        raise RegistrationError(f"{what} of {where} must be a str or an Enum, not {value!r}: name it when registering")
    return value


def _checked(options: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The options given, checked, `name` apart; None where it means nothing of its own = not given."""
    checked = {}
    for option, value in options.items():
        if option not in Options.__annotations__:
            close = get_close_matches(option, Options.__annotations__, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(Options.__annotations__)}"
            raise RegistrationError(f"{where} has an unknown option {option!r}: {hint}")
        if option != "name" and (value is not None or option in ("max_attempts", "timeout")):
            checked[option] = _option(option, value, where)
    return checked


def _option(option: str, value: Any, where: str) -> Any:
    check = {"retry": policy_of, "max_attempts": _attempts, "timeout": _timeout}.get(option, _blocking)
    try:
        return check(value)
    except ValueError as error:
        raise RegistrationError(f"{option} of {where} cannot be {value!r}: {error}") from None


def _attempts(value: Any) -> int | None:
    if value is None or (type(value) is int and value >= 1):
        return value
    raise ValueError("give a whole number from 1, or None for ever")


def _timeout(value: Any) -> float | None:
    if value is None or seconds(value) > 0:
        return value if value is None else seconds(value)
    raise ValueError("give more than 0 seconds, or None for no timeout")


def _blocking(value: Any) -> str:
    if value in ("block", "continue"):
        return str(value)
    raise ValueError("use 'block' or 'continue'")
