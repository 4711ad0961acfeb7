"""Segments of the log, as long as others, made, emptied and dropped by the functions that do it for any log.

Only a few ids of each are drawn before the sequence is moved on to the next one. So what takes hours comes in seconds,
and polls are planned for as few segments as in any log: those that their ids lie in.
"""

from collections.abc import Callable
from functools import partial
from math import ceil
from typing import Any, Final

from psycopg import Connection

from partbox import settings
from partbox.db.operator import segments as steps
from partbox.rules import segments as rules
from partbox.rules.segments import Range
from partbox.segments import passed
from partbox.segments.patience import tried
from partbox_lab.bench import statements

MILLION: Final = 1_000_000


class ChangingSegments:
    """Changes them step by step, and counts what was done. Supervisors may do the same beside it."""

    def __init__(self, conn: Connection[Any], schema: str) -> None:
        self._conn = conn
        self._schema = schema
        self._settings = settings.load(schema=schema, retain_done=0)
        self.made = self.emptied = self.dropped = 0

    def drawn(self) -> int:
        """The newest id."""
        return steps.drawn(self._conn, self._schema)

    def add(self) -> None:
        """Make one after the last, or ahead of need if publishing has passed that, unless somebody is in the way."""
        end = max(each.upper or 0 for each in steps.segments(self._conn, self._schema))
        begin = max(end, ceil((self.drawn() + rules.LEAD) / MILLION) * MILLION)
        ids = Range(begin, begin + rules.SMALLEST)
        self.made += tried(partial(steps.add, self._conn, self._schema, ids)) is None

    def empty(self) -> None:
        """Empty the oldest that can be."""
        emptied, _ = passed.empty(self._conn, self._settings, _once())
        self.emptied += len(emptied)

    def drop(self) -> None:
        """Drop the oldest that is empty."""
        self.dropped += len(passed.drop(self._conn, self._settings))

    def passed(self) -> int:
        """The number of those that can be emptied."""
        return sum(each.goes for each in passed.held(self._conn, self._settings))

    def ready(self) -> bool:
        """True if there is a next one; if not, it is made if nobody is in the way."""
        if self._next() is None:
            self.add()
        return self._next() is not None

    def leave(self) -> int:
        """Go on in the next one, which must be there, and return its first id."""
        begin = self._next()
        assert begin is not None
        statements.skip_ids(self._conn, self._schema, begin - 1)
        return begin

    def near_the_end(self, ids: int) -> None:
        """Go on where so many ids of this one are left."""
        drawn, found = self.drawn(), steps.segments(self._conn, self._schema)
        end = next(each.upper for each in found if each.upper is not None and each.upper > drawn)
        statements.skip_ids(self._conn, self._schema, end - 1 - ids)

    def _next(self) -> int | None:
        drawn, found = self.drawn(), steps.segments(self._conn, self._schema)
        return min((each.lower for each in found if each.lower is not None and each.lower > drawn), default=None)

    def __bool__(self) -> bool:
        """True if any was made, emptied or dropped."""
        return bool(self.made or self.emptied or self.dropped)

    def __str__(self) -> str:
        return f"{self.made} made, {self.emptied} emptied, {self.dropped} dropped"


def _once() -> Callable[[], bool]:
    """Says no once, then yes."""
    said = iter((False,))
    return lambda: next(said, True)
