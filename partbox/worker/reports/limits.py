"""The note of the limits that a process keeps, and of the events that wait for them."""

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from psycopg import Connection

from partbox.callables import name_of
from partbox.db.delivery import limits
from partbox.db.delivery.limits import MAX_VALUES, HeldReport, LimitReport, WaitingValue
from partbox.protocol.circuit import OpenCircuit
from partbox.protocol.limit_addresses import LimitAddress
from partbox.protocol.limit_values import format_limit_value
from partbox.protocol.limits import Limit
from partbox.text.printing import shorten_line
from partbox.worker.context import Context
from partbox.worker.engine.limited_queue import LimitWait
from partbox.worker.reports.process_notes import ProcessNote

LIMITS_INTERVAL = 2.0  # seconds
MAX_NAME_LENGTH = 100  # characters
MAX_VALUE_LENGTH = 300  # characters
MAX_HELD = 100  # paused objects and open circuits that are named


class LimitNotes(ProcessNote):
    """A record in the database of the rate and concurrency limits of a process's handlers, and of events that wait for
    them."""

    # It lists the limits in force, declared limits that were lifted, and paused objects and open circuits.

    text = "limits and waiting events could not be recorded, which is tried again: %s"

    def __init__(self, context: Context) -> None:
        super().__init__(context, LIMITS_INTERVAL)
        self._limits = context.limits

    def _measure(self, now: float) -> tuple[Any, ...]:
        in_force, declared = self._limits.effective_limits, self._limits.declared_limits
        names = sorted(in_force.keys() | {name for name, limit in declared.items() if limit.is_limited})
        circuits, paused = dict(self._limits.list_open_circuits()), self._limits.paused
        waits: dict[str | LimitAddress, list[LimitWait]] = {name: [] for name in names}
        for each in self._limits.list_waits() if names or circuits or paused else ():
            waits.setdefault(each.limit_key[0], []).append(each)
        kept = tuple(
            _describe_limit(name, in_force.get(name, Limit(by=declared[name].by)), waits[name], now) for name in names
        )
        held = [_describe_held(each, waits.get(each, []), circuits.get(each), now) for each in (*paused, *circuits)]
        # Only those with the most waiting events, because a process may have thousands.
        held.sort(key=lambda each: -each.waiting)
        return (kept, tuple(held[:MAX_HELD])) if kept or held else ()

    def _write(self, conn: Connection[Any], me: UUID, found: tuple[Any, ...], now: float) -> None:
        limits.note_limits(conn, self._context.schema, me, *(found or ((), ())))


def _describe_held(
    address: LimitAddress, waits: list[LimitWait], circuit: OpenCircuit | None, now: float
) -> HeldReport:
    return HeldReport(
        address.kind.value,
        address.handler,
        # A pause is found again by its text, which comes from the database.
        str(address.value) if circuit is None else shorten_line(format_limit_value(address.value), MAX_VALUE_LENGTH),
        sum(each.events for each in waits),
        now - min(each.since for each in waits) if waits else None,
        None if circuit is None else now - circuit.opened_at,
        None if circuit is None else max(0.0, circuit.probe_at - now),
    )


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
        yield WaitingValue(shorten_line(format_limit_value(value), MAX_NAME_LENGTH), events, now - since)
