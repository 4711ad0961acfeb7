"""The note of the limits that a process keeps, and of the events that wait for them."""

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from psycopg import Connection

from partbox.callables import name_of
from partbox.db.delivery import limits
from partbox.db.delivery.limits import MAX_VALUES, LimitReport, WaitingValue
from partbox.protocol.limits import Limit
from partbox.text.printing import shorten_line
from partbox.worker.context import Context
from partbox.worker.engine.limited_queue import LimitWait
from partbox.worker.reports.process_notes import ProcessNote

LIMITS_INTERVAL = 2.0  # seconds
MAX_NAME_LENGTH = 100  # characters


class LimitNotes(ProcessNote):
    """A record in the database of the rate and concurrency limits of a process's handlers, and of events that wait for
    them."""

    # It lists the limits in force, and declared limits that were lifted.

    text = "limits and waiting events could not be recorded, which is tried again: %s"

    def __init__(self, context: Context) -> None:
        super().__init__(context, LIMITS_INTERVAL)
        self._limits = context.limits

    def _measure(self, now: float) -> tuple[Any, ...]:
        in_force, declared = self._limits.effective_limits, self._limits.declared_limits
        names = sorted(in_force.keys() | {name for name, limit in declared.items() if limit.is_limited})
        waits: dict[str, list[LimitWait]] = {name: [] for name in names}
        for each in self._limits.list_waits() if names else ():
            waits.setdefault(each.limit_key[0], []).append(each)
        return tuple(
            _describe_limit(name, in_force.get(name, Limit(by=declared[name].by)), waits[name], now) for name in names
        )

    def _write(self, conn: Connection[Any], me: UUID, found: tuple[Any, ...], now: float) -> None:
        limits.note_limits(conn, self._context.schema, me, found)


def _describe_limit(name: str, limit: Limit, waits: list[LimitWait], now: float) -> LimitReport:
    longest = sorted(waits, key=lambda each: each.since)
    return LimitReport(
        name,
        None if limit.rate is None else float(limit.rate),
        limit.at_once,
        None
        if limit.by is None
        else shorten_line(limit.by if isinstance(limit.by, str) else name_of(limit.by), MAX_NAME_LENGTH),
        sum(each.events for each in waits),
        now - longest[0].since if longest else None,
        () if limit.by is None else tuple(_list_waiting_values(longest[:MAX_VALUES], now)),
    )


def _list_waiting_values(waits: Iterable[LimitWait], now: float) -> Iterable[WaitingValue]:
    for (_, value), events, since in waits:
        yield WaitingValue(shorten_line("none" if value is None else str(value), MAX_NAME_LENGTH), events, now - since)
