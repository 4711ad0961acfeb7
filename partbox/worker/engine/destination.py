"""The handler for which a list of events is gathered."""

from collections.abc import Callable, Sequence, Set
from operator import itemgetter
from typing import NamedTuple, Protocol

from partbox.events import DeliveredEvent
from partbox.events.record import EVENT_TYPE, ROUTE, Row
from partbox.protocol.turns import LimitKey

_event_type = itemgetter(EVENT_TYPE)


class RouteTable(Protocol):
    """Finds the handler of an event, as `partbox.handlers.Routes` does."""

    def __getitem__(self, route: tuple[str, str], /) -> object: ...

    def of_type(self, event_type: str) -> object | None: ...


class Destination(NamedTuple):
    """The handler that a list is made for: an event is for it if its types lead there.

    Of a handler with a limit it is for what waits at one `limit_key`, as an event does that `fits`.
    """

    routes: RouteTable
    endpoint: object
    limit_key: LimitKey | None = None
    fits: Callable[[DeliveredEvent], bool] | None = None

    def accepts_types(self, types: Set[str]) -> bool:
        """True if all events of these types are for it."""
        return all(self.routes.of_type(each) is self.endpoint for each in types)

    def count_leading(self, rows: Sequence[Row]) -> int:
        """The number of these rows, from the first one on, that are for it."""
        routes, endpoint = self.routes, self.endpoint
        if self.accepts_types(set(map(_event_type, rows))):
            return len(rows)
        return next((at for at, row in enumerate(rows) if routes[row[ROUTE]] is not endpoint), len(rows))
