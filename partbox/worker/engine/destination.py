"""The handler for which a list of events is gathered."""

from collections.abc import Callable, Sequence, Set
from operator import itemgetter
from typing import NamedTuple, Protocol

from partbox.events import DeliveredEvent
from partbox.events.record import EVENT_TYPE, ROUTE, Row
from partbox.protocol.limit_addresses import LimitKey

_event_type = itemgetter(EVENT_TYPE)


class RouteTable(Protocol):
    """A mapping from the aggregate type and event type of an event to its handler.

    Its values are the endpoints of handlers. `find_by_type` returns the endpoint of all events of one type, or None if
    the type alone does not decide."""

    def __getitem__(self, route: tuple[str, str], /) -> object: ...

    def find_by_type(self, event_type: str) -> object | None: ...


class Destination(NamedTuple):
    """The handler that gets a list of events in one call."""

    # All events of the list go to `endpoint`. If the handler has a limit, each event must also wait for a permit of
    # `limit_key`; `fits` returns whether an event does.

    routes: RouteTable
    endpoint: object
    limit_key: LimitKey | None = None
    fits: Callable[[DeliveredEvent], bool] | None = None

    def accepts_types(self, types: Set[str]) -> bool:
        """Return True if this handler gets every event of each of these types."""
        return all(self.routes.find_by_type(each) is self.endpoint for each in types)

    def count_leading(self, rows: Sequence[Row]) -> int:
        """Return how many events at the start of this list go to this handler."""
        # The rows are counted from the first one without a gap.
        routes, endpoint = self.routes, self.endpoint
        # The types of a page are few, so one look-up for each type is much cheaper than one for each row.
        if self.accepts_types(set(map(_event_type, rows))):
            return len(rows)
        return next((at for at, row in enumerate(rows) if routes[row[ROUTE]] is not endpoint), len(rows))
