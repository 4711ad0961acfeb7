"""The handler for which a list of events is gathered."""

from collections.abc import Callable, Sequence, Set
from operator import itemgetter
from typing import NamedTuple, Protocol

from partbox.events import DeliveredEvent
from partbox.events.record import EVENT_TYPE, ROUTE, Row
from partbox.protocol.turns import LimitKey

_event_type = itemgetter(EVENT_TYPE)


class RouteTable(Protocol):
    """A mapping from the route of an event to its endpoint, like `partbox.handlers.Routes`. A route is an aggregate
    type and an event type. `of_type` returns the endpoint of all events of one type, or None if the type alone does not
    decide."""

    def __getitem__(self, route: tuple[str, str], /) -> object: ...

    def of_type(self, event_type: str) -> object | None: ...


class Destination(NamedTuple):
    """The handler that a list of events is for, with the limit that all events of the list share. An event is for the
    handler if its route leads to `endpoint`. If the handler has a limit, the event must also wait for a permit of
    `limit_key`; `fits` returns whether it does."""

    routes: RouteTable
    endpoint: object
    limit_key: LimitKey | None = None
    fits: Callable[[DeliveredEvent], bool] | None = None

    def accepts_types(self, types: Set[str]) -> bool:
        """Return whether all events of these types are for this handler."""
        return all(self.routes.of_type(each) is self.endpoint for each in types)

    def count_leading(self, rows: Sequence[Row]) -> int:
        """Return how many of these rows, from the first one on, are for this handler."""
        routes, endpoint = self.routes, self.endpoint
        # The types of a page are few, so one look-up for each type is much cheaper than one for each row.
        if self.accepts_types(set(map(_event_type, rows))):
            return len(rows)
        return next((at for at, row in enumerate(rows) if routes[row[ROUTE]] is not endpoint), len(rows))
