"""Notes in the row of the process the limits that it keeps, and what waits there for its turn."""

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from psycopg import Connection

from partbox.callables import name_of
from partbox.db.delivery import limits
from partbox.db.delivery.limits import MOST_VALUES, KeptLimit, WaitingValue
from partbox.protocol.limits import Limit
from partbox.text.printing import printable_line
from partbox.worker.context import Context
from partbox.worker.engine.limited_queue import LimitWait
from partbox.worker.reports.process_notes import Note

LIMITS_APART = 2.0  # seconds between two looks
CUT = 100  # characters of a name or a value


class LimitNotes(Note):
    """The limits of this process's handlers: those in force, and those that are declared and lifted."""

    text = "what waits for its turn could not be noted, which is tried again: %s"

    def __init__(self, context: Context) -> None:
        super().__init__(context, LIMITS_APART)
        self._limits = context.limits

    def _found(self, now: float) -> tuple[Any, ...]:
        in_force, declared = self._limits.in_force, self._limits.declared
        names = sorted(in_force.keys() | {name for name, limit in declared.items() if limit.bounds})
        waits: dict[str, list[LimitWait]] = {name: [] for name in names}
        for each in self._limits.waits() if names else ():
            waits.setdefault(each.place[0], []).append(each)
        return tuple(_kept(name, in_force.get(name, Limit(by=declared[name].by)), waits[name], now) for name in names)

    def _write(self, conn: Connection[Any], me: UUID, found: tuple[Any, ...], now: float) -> None:
        limits.note(conn, self._context.schema, me, found)


def _kept(name: str, limit: Limit, waits: list[LimitWait], now: float) -> KeptLimit:
    longest = sorted(waits, key=lambda each: each.since)
    return KeptLimit(
        name,
        None if limit.rate is None else float(limit.rate),
        limit.at_once,
        None if limit.by is None else printable_line(limit.by if isinstance(limit.by, str) else name_of(limit.by), CUT),
        sum(each.events for each in waits),
        now - longest[0].since if longest else None,
        () if limit.by is None else tuple(_values(longest[:MOST_VALUES], now)),
    )


def _values(waits: Iterable[LimitWait], now: float) -> Iterable[WaitingValue]:
    for (_, value), events, since in waits:
        yield WaitingValue(printable_line("none" if value is None else str(value), CUT), events, now - since)
