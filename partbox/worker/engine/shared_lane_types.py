"""The event types in a shared lane. If all lead to one handler, no event need be examined."""

from collections.abc import Set

MAX_TYPES = 64


class SharedLaneTypes:
    """The set of event types that may occur in a shared queue. It has all types of the waiting events, and perhaps
    others. `known` is None if there are too many."""

    __slots__ = ("known",)

    def __init__(self) -> None:
        self.known: Set[str] | None = None

    def add(self, types: Set[str], *, replace: bool) -> None:
        # `replace` forgets all earlier types.
        if replace:
            self.known = types
        elif self.known is not None and not types <= self.known:
            self.known = self.known | types if len(self.known) < MAX_TYPES else None
