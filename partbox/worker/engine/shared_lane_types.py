"""The event types of what waits in a line: where all lead to one handler, nobody looks at each event for it."""

from collections.abc import Set

MAX_TYPES = 64  # more are not remembered


class SharedLaneTypes:
    """`known` has the types of all events that wait, and perhaps of others; None where they cannot be told."""

    __slots__ = ("known",)

    def __init__(self) -> None:
        self.known: Set[str] | None = None

    def add(self, types: Set[str], *, replace: bool) -> None:
        """Events of these types wait too, or `replace`."""
        if replace:
            self.known = types
        elif self.known is not None and not types <= self.known:
            self.known = self.known | types if len(self.known) < MAX_TYPES else None
