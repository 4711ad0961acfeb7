"""Small segments of the log, made, emptied and dropped again and again by the functions that do it for any log."""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from psycopg import Connection

from partbox import settings
from partbox.db.harness import bench as statements
from partbox.db.operator import segments as steps
from partbox.rules import segments as rules
from partbox.rules.segments import Range
from partbox.segments import passed
from partbox.segments.patience import tried

IDS: Final = 200  # of a segment
LEAD: Final = 200  # ids that lie at least between the newest and a new segment
AHEAD: Final = 5


class SmallSegments:
    """Changes them step by step, and counts what was done."""

    def __init__(self, conn: Connection[Any], schema: str) -> None:
        self._conn = conn
        self._schema = schema
        self._settings = settings.load(schema=schema, retain_done=0)
        self.made = self.emptied = self.dropped = 0

    def begin(self, ids: int) -> None:
        """Make the first segment of an empty log, for so many ids, in which nothing is to be changed."""
        self._make(Range(1, ids))

    def add(self) -> None:
        """Make the next one, unless there are enough; those that supervisors make lie far above."""
        found, drawn = steps.segments(self._conn, self._schema), steps.drawn(self._conn, self._schema)
        near = [each for each in found if each.upper is not None and each.upper < drawn + rules.LEAD]
        if rules.ahead(near, drawn) < AHEAD:
            begin = max([drawn + LEAD, *(each.upper or 0 for each in near)])
            self._make(Range(begin, begin + IDS))

    def leave(self, ids: int) -> None:
        """Make those that are to lie ahead, and go on in them: no more ids are drawn in the first one, of so many."""
        for _ in range(AHEAD):
            self.add()
        statements.skip_ids(self._conn, self._schema, ids - 1)

    def remove(self) -> None:
        """Empty the oldest that can be, and drop the oldest that is empty."""
        emptied, _ = passed.empty(self._conn, self._settings, _once())
        self.emptied += len(emptied)
        self.dropped += len(passed.drop(self._conn, self._settings))

    def _make(self, ids: Range) -> None:
        self.made += tried(partial(steps.add, self._conn, self._schema, ids)) is None

    def __str__(self) -> str:
        return f"{self.made} made, {self.emptied} emptied, {self.dropped} dropped"


def _once() -> Callable[[], bool]:
    """Says no once, then yes."""
    said = iter((False,))
    return lambda: next(said, True)
