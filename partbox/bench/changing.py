"""Small segments of the log, made, emptied and dropped again and again by the functions that do it for any log."""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from psycopg import Connection

from partbox import settings
from partbox.db.operator import segments as steps
from partbox.rules import segments as rules
from partbox.rules.segments import Range
from partbox.segments import passed
from partbox.segments.patience import tried

IDS: Final = 200  # of a segment
LEAD: Final = 200  # ids that lie at least between the newest and a new segment
AHEAD: Final = 10


class SmallSegments:
    """Changes them step by step, and counts what was done."""

    def __init__(self, conn: Connection[Any], schema: str) -> None:
        self._conn = conn
        self._schema = schema
        self._settings = settings.load(schema=schema, retain_done=0)
        self.made = self.emptied = self.dropped = 0

    def fill(self) -> None:
        """Make as many as are to lie ahead."""
        for _ in range(AHEAD):
            self.add()

    def add(self) -> None:
        """Make the next one, unless there are enough."""
        found, drawn = steps.segments(self._conn, self._schema), steps.drawn(self._conn, self._schema)
        if rules.ahead(found, drawn) >= AHEAD:
            return
        end = max((each.upper for each in found if each.upper is not None), default=0)
        ids = Range(begin := max(end, drawn + LEAD if drawn else 1), begin + IDS)
        self.made += tried(partial(steps.add, self._conn, self._schema, ids)) is None

    def remove(self) -> None:
        """Empty the oldest that can be, and drop the oldest that is empty."""
        emptied, _ = passed.empty(self._conn, self._settings, _once())
        self.emptied += len(emptied)
        self.dropped += len(passed.drop(self._conn, self._settings))

    def __str__(self) -> str:
        return f"{self.made} made, {self.emptied} emptied, {self.dropped} dropped"


def _once() -> Callable[[], bool]:
    """Says no once, then yes."""
    said = iter((False,))
    return lambda: next(said, True)
