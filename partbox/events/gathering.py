"""Lists in which entities gather events until the unit of work that saves the entities publishes them."""

from collections.abc import Callable, Iterable, MutableSequence
from itertools import count
from typing import Any, NamedTuple, SupportsIndex

_numbers = count(1)


def draw_number() -> int:
    """Return the next number of the counter that orders the events in the lists of different entities."""
    # The number is higher than the numbers of all events gathered in this process so far.
    return next(_numbers)


class NumberedEvent(NamedTuple):
    """An event in an entity's list, with a number that orders the events of several entities."""

    number: int
    event: Any


class EventList(MutableSequence[Any]):
    """A list of an entity's events to publish, which remembers their order among the events of other entities."""

    # The list is equal to a plain list of the same events. `on_event` is called with the list whenever an event is
    # added.

    __slots__ = ("_gathered", "on_event")

    def __init__(self, events: Iterable[Any] = (), on_event: "Callable[[EventList], None] | None" = None) -> None:
        self._gathered: list[NumberedEvent] = []
        self.on_event = on_event
        self.extend(events)

    def __len__(self) -> int:
        return len(self._gathered)

    def __getitem__(self, index: Any) -> Any:
        found: Any = self._gathered[index]
        return [each.event for each in found] if isinstance(index, slice) else found.event

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(index, slice):
            self._gathered[index] = [NumberedEvent(draw_number(), each) for each in value]
        else:
            self._gathered[index] = NumberedEvent(self._gathered[index].number, value)
        self._call_on_event()

    def __delitem__(self, index: SupportsIndex | slice) -> None:
        del self._gathered[index]

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, list | EventList) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(list(self))

    def __reduce__(self) -> Any:
        # A copied or pickled list has the events without their numbers and `on_event`.
        return EventList, (list(self),)

    def insert(self, index: int, value: Any) -> None:
        self._gathered.insert(index, NumberedEvent(draw_number(), value))
        self._call_on_event()

    def _call_on_event(self) -> None:
        if self.on_event is not None:
            self.on_event(self)

    def take_events(self) -> list[NumberedEvent]:
        """Empty the list, and return its events with the numbers that order them."""
        taken, self._gathered = self._gathered, []
        return taken

    def put_back(self, events: Iterable[NumberedEvent]) -> None:
        """Put taken events back at the head of the list, before events that were added since."""
        self._gathered = [*events, *self._gathered]

    def forget_after(self, number: int) -> None:
        """Remove the events that were added to the list after `draw_number` returned the given number."""
        self._gathered = [each for each in self._gathered if each.number <= number]


class EventsMixin:
    """A mixin that gives each instance a list `events`, which collects the events to publish about the instance.

    An instance has the list however it was created or loaded. `partbox.sqlalchemy.collect` publishes the events before
    the commit. `partbox.django.events.ModelEventsMixin` publishes them when the model is saved. The mixin needs no
    constructor and no library."""

    @property
    def events(self) -> EventList:
        own = vars(self)
        found = own.get("_gathered_events")
        if found is None:
            found = own["_gathered_events"] = EventList()
        return found
