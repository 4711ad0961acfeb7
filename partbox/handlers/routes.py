"""From an event to what takes it: the most specific of what is registered for its type and aggregate type."""

from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

ANY = "*"
CACHED = 10_000

T = TypeVar("T")
U = TypeVar("U")


class Routes(Generic[T]):
    """What is registered in one subscription, looked up for every record.

    `registered` is by event type (`"*"` = every type) and aggregate type (None = any). Of those that fit an event the
    most specific is found: (type, aggregate type), then (type, any), then ("*", aggregate type), then ("*", any);
    `default` where none does.
    """

    __slots__ = ("_default", "_found", "_registered")

    def __init__(self, registered: Mapping[tuple[str, str | None], T], default: T) -> None:
        self._registered = dict(registered)
        self._default = default
        self._found: dict[tuple[str, str], T] = {}

    def find(self, event_type: str, aggregate_type: str) -> T:
        """What takes the events of this pair."""
        try:
            return self._found[event_type, aggregate_type]
        except KeyError:
            return self._search(event_type, aggregate_type)

    def all(self) -> list[T]:
        """Everything that an event may find, the default last."""
        return [*self._registered.values(), self._default]

    def map(self, made: Callable[[T], U]) -> "Routes[U]":
        """The same routes to what `made` makes of each."""
        return Routes({pair: made(each) for pair, each in self._registered.items()}, made(self._default))

    def _search(self, event_type: str, aggregate_type: str) -> T:
        wider = ((event_type, aggregate_type), (event_type, None), (ANY, aggregate_type), (ANY, None))
        found = next((self._registered[pair] for pair in wider if pair in self._registered), self._default)
        if len(self._found) >= CACHED:  # types are free text: their number has no bound, the cache has
            self._found.clear()
        self._found[event_type, aggregate_type] = found
        return found
