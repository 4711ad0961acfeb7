"""The event types in a shared lane. If all lead to one handler, no event need be examined."""

from collections.abc import Set

MAX_TYPES = 64


class SharedLaneTypes:
    """The event types that may occur in a queue of events of all keys."""

    # It has all types of the waiting events, and perhaps others. `known_types` is None if there are too many.

    __slots__ = ("known_types",)

    def __init__(self) -> None:
        self.known_types: Set[str] | None = None

    def add(self, types: Set[str], *, replace: bool) -> None:
        # `replace` forgets all earlier types.
        if replace:
            self.known_types = types
        elif self.known_types is not None and not types <= self.known_types:
            self.known_types = self.known_types | types if len(self.known_types) < MAX_TYPES else None
