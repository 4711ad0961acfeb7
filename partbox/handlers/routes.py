"""From an event to what takes it: the most specific of what is registered for its type and aggregate type."""

from collections.abc import Callable, Mapping
from typing import TypeVar

ANY = "*"
CACHED = 10_000

T = TypeVar("T")
U = TypeVar("U")


class Routes(dict[tuple[str, str], T]):
    """The handlers of one subscription, looked up for every record: `routes[event type, aggregate type]`.

    `registered` is by event type (`"*"` = every type) and aggregate type (None = any). Of those that fit an event the
    most specific is found: (type, aggregate type), then (type, any), then ("*", aggregate type), then ("*", any);
    `default` where none does. Results are kept: a dict, for a look-up without a call.
    """

    __slots__ = ("_default", "_registered", "only")

    def __init__(self, registered: Mapping[tuple[str, str | None], T], default: T) -> None:
        super().__init__()
        self._registered = dict(registered)
        self._default = default
        self.only: T | None = registered[ANY, None] if registered.keys() == {(ANY, None)} else None
        """The one that every event finds, where that is sure without a look-up; else None."""

    def all(self) -> list[T]:
        """Everything that an event may find, the default last."""
        return [*self._registered.values(), self._default]

    def registered(self) -> list[T]:
        """The same without the default."""
        return [*self._registered.values()]

    def map(self, made: Callable[[T], U]) -> "Routes[U]":
        """The same routes to what `made` makes of each."""
        return Routes({pair: made(each) for pair, each in self._registered.items()}, made(self._default))

    def __missing__(self, pair: tuple[str, str]) -> T:
        event_type, aggregate_type = pair
        wider = (pair, (event_type, None), (ANY, aggregate_type), (ANY, None))
        found = next((self._registered[each] for each in wider if each in self._registered), self._default)
        if len(self) >= CACHED:  # types are free text: their number has no bound, the cache has
            self.clear()
        self[pair] = found
        return found
