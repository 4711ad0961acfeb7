"""The event types in a shared lane. If all lead to one handler, no event need be examined."""

from collections.abc import Set

MAX_TYPES = 64


class SharedLaneTypes:
    """The types of all waiting events and perhaps of others; `known` is None if there are too many."""

    __slots__ = ("known",)

    def __init__(self) -> None:
        self.known: Set[str] | None = None

    def add(self, types: Set[str], *, replace: bool) -> None:
        """Add the types of events that join the lane. `replace` forgets all earlier types."""
        if replace:
            self.known = types
        elif self.known is not None and not types <= self.known:
            self.known = self.known | types if len(self.known) < MAX_TYPES else None
