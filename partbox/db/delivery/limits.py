"""Limits of handlers: what operators have set, what each process reports, and both merged for a subscription."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf
from typing import Any, Final
from uuid import UUID

import orjson

from partbox.db.sql import Conn, load_query
from partbox.protocol.limit_addresses import LimitKind
from partbox.protocol.limits import Rate
from partbox.text.wording import format_brief_age

MAX_VALUES: Final = 5  # values of `limit_by` that are named

OperatorBound = float | str | None
"""A limit that an operator has set. "none" lifts the limit, None leaves it as the handler declares it."""


@dataclass(frozen=True, slots=True)
class WaitingValue:
    """The number of events that wait because of a handler's limit for one key value, and the longest wait.

    - `value`: the value of the handler's `limit_by` key
    - `waited`: the seconds that the first of the events has waited"""

    value: str
    waiting: int
    waited: float


@dataclass(frozen=True, slots=True)
class LimitReport:
    """A worker's rate and concurrency limits for a handler, and the number of events that wait for them.

    - `waited`: the seconds that the first of the events has waited
    - Texts are cut and may hold anything."""

    handler: str
    rate: float | None = None  # calls that may start in a second, in the whole subscription; None for any number
    at_once: int | None = None  # calls that may run at once, likewise
    by: str | None = None  # the key whose every value has both limits for itself
    waiting: int = 0
    waited: float | None = None
    values: tuple[WaitingValue, ...] = ()  # the values of `by` that have waited longest


@dataclass(frozen=True, slots=True)
class HeldReport:
    """Something that a worker holds back as a whole: a paused value, event type or tenant, or a value's open circuit.

    - `waited`: the seconds that the first of the events has waited
    - `open_for`, `probe_in`: for an open circuit, the seconds since it opened and until its next probe"""

    kind: str
    handler: str
    value: str
    waiting: int = 0
    waited: float | None = None
    open_for: float | None = None
    probe_in: float | None = None


@dataclass(frozen=True, slots=True)
class LimitChange:
    """The rate and concurrency limits that an operator has set for a handler, or a pause, which is a rate of 0.

    - `rate`, `at_once`: None for the limit that the handler declares
    - `kind`, `value`: as in `HandlerLimit`"""

    handler: str
    rate: OperatorBound
    at_once: OperatorBound
    changed_at: datetime
    changed_by: str
    kind: str = LimitKind.HANDLER
    value: str = ""


@dataclass(frozen=True, slots=True)
class HandlerLimit:
    """The rate and concurrency limits of a handler in a subscription, and the number of events that wait for them.

    - `kind`: "handler"; or what else is held back as a whole: "value", "type" or "tenant", which is paused, and
      "circuit", a value of a handler whose downstream is away
    - `value`: the value, event type or tenant; empty for a handler
    - `open_for`, `probe_in`: for an open circuit, the seconds since it opened and until its next probe"""

    # The events wait in all `processes`. The other fields are as in `LimitReport`. `change` is None if no operator has
    # set anything. A limit is None, not known, if `change` leaves it as declared and no process reports the handler.

    subscription: str
    handler: str
    rate: float | None
    at_once: int | None
    by: str | None
    waiting: int
    waited: float | None
    values: tuple[WaitingValue, ...]
    processes: int
    change: LimitChange | None
    kind: str = LimitKind.HANDLER
    value: str = ""
    open_for: float | None = None
    probe_in: float | None = None

    @property
    def name(self) -> str:
        """The object of the limit in words, such as "charge", "charge, value 4711" or "tenant acme"."""
        if self.kind == LimitKind.HANDLER:
            return self.handler
        return f"{self.handler}, value {self.value}" if self.handler else f"{self.kind} {self.value}"

    @property
    def is_paused(self) -> bool:
        """True if an operator lets nothing of it start."""
        return self.rate == 0

    @property
    def rate_text(self) -> str:
        """The rate limit in words: "none" if calls are not limited, "as declared" if the limit is unknown, or "paused".

        For an open circuit, the text says when the next probe starts."""
        if self.is_paused or self.kind == LimitKind.CIRCUIT:
            return "paused" if self.is_paused else f"open, probe in {format_brief_age(self.probe_in)}"
        return self._bound_text(self.rate and str(Rate(self.rate)), None if self.change is None else self.change.rate)

    @property
    def at_once_text(self) -> str:
        """The limit on simultaneous calls in words: "none" if there is no limit, "as declared" if it is unknown."""
        if self.kind != LimitKind.HANDLER:
            return ""
        return self._bound_text(
            self.at_once and f"{self.at_once:,}", None if self.change is None else self.change.at_once
        )

    def _bound_text(self, bound: str | float | None, given: OperatorBound) -> str:
        return str(bound) if bound else "none" if self.processes or given else "as declared"


def note_limits(
    conn: Conn, schema: str, instance: UUID, kept: Sequence[LimitReport], held: Sequence[HeldReport] = ()
) -> None:
    """Store in a worker's database row its handlers' limits, and the rest that holds events, and how many wait."""
    values = {"limits": orjson.dumps(kept).decode(), "held": orjson.dumps(held).decode()}
    conn.execute(load_query("note_limits", schema), {"instance": instance, **values})


def parse_column(stored: list[dict[str, Any]] | None) -> tuple[LimitReport, ...]:
    """Parse the reports about handler limits that a worker has stored. An empty column gives an empty tuple."""
    return tuple(
        LimitReport(**each | {"values": tuple(WaitingValue(**value) for value in each["values"])})
        for each in stored or []
    )


def parse_held(stored: list[dict[str, Any]] | None) -> tuple[HeldReport, ...]:
    """Parse the reports about paused values and open circuits that a worker has stored."""
    return tuple(HeldReport(**each) for each in stored or [])


def parse_changes(rows: Iterable[dict[str, Any]]) -> list[LimitChange]:
    """Parse the handler limits that operators have stored in the database."""
    # Numbers in the rows are JSON, which has no infinity, and times are Unix times.
    return [
        LimitChange(
            row["handler"],
            _parse_bound(row["rate"]),
            _parse_bound(row["at_once"]),
            datetime.fromtimestamp(row["changed_at"], UTC),
            row["changed_by"],
            row["kind"],
            row["value"],
        )
        for row in rows
    ]


def merge_limits(
    subscription: str, kept: Iterable[LimitReport], changed: Iterable[LimitChange], held: Iterable[HeldReport] = ()
) -> tuple[HandlerLimit, ...]:
    """Combine the reports of all processes and the changes of operators into one limit per handler, and one for each
    other object that is paused or has an open circuit."""
    # Waiting events are summed over the processes of the subscription.
    reports: dict[str, list[LimitReport]] = {}
    for each in kept:
        reports.setdefault(each.handler, []).append(each)
    changes = {(each.kind, each.handler, each.value): each for each in changed}
    by_handler = {each.handler: each for each in changes.values() if each.kind == LimitKind.HANDLER}
    others: dict[tuple[str, str, str], list[HeldReport]] = {key: [] for key in changes if key[0] != LimitKind.HANDLER}
    for found in held:
        others.setdefault((found.kind, found.handler, found.value), []).append(found)
    return (
        *(
            _sum_reports(subscription, handler, reports.get(handler, []), by_handler.get(handler))
            for handler in sorted(reports.keys() | by_handler)
        ),
        *(_sum_held(subscription, *key, others[key], changes.get(key)) for key in sorted(others)),
    )


def _sum_held(
    subscription: str, kind: str, handler: str, value: str, held: list[HeldReport], change: LimitChange | None
) -> HandlerLimit:
    return HandlerLimit(
        subscription,
        handler,
        rate=None if kind == LimitKind.CIRCUIT else 0.0,
        at_once=None,
        by=None,
        waiting=sum(each.waiting for each in held),
        waited=max((each.waited for each in held if each.waited is not None), default=None),
        values=(),
        processes=len(held),
        change=change,
        kind=kind,
        value=value,
        open_for=max((each.open_for for each in held if each.open_for is not None), default=None),
        probe_in=min((each.probe_in for each in held if each.probe_in is not None), default=None),
    )


def _sum_reports(subscription: str, handler: str, kept: list[LimitReport], change: LimitChange | None) -> HandlerLimit:
    last = kept[-1] if kept else LimitReport(handler)
    rate, at_once = (None, None) if change is None else (change.rate, change.at_once)
    in_force = _limit_in_force(at_once, last.at_once)
    return HandlerLimit(
        subscription,
        handler,
        rate=_limit_in_force(rate, last.rate),
        at_once=None if in_force is None else int(in_force),
        by=last.by,
        waiting=sum(each.waiting for each in kept),
        waited=max((each.waited for each in kept if each.waited is not None), default=None),
        values=_select_longest_waiting(value for each in kept for value in each.values),
        processes=len(kept),
        change=change,
    )


def _select_longest_waiting(values: Iterable[WaitingValue]) -> tuple[WaitingValue, ...]:
    # The waiting events are summed by value over several processes, and the longest waiting are kept.
    # At most `MAX_VALUES` values are returned.
    found: dict[str, WaitingValue] = {}
    for each in values:
        before = found.get(each.value, WaitingValue(each.value, 0, 0.0))
        found[each.value] = WaitingValue(each.value, before.waiting + each.waiting, max(before.waited, each.waited))
    return tuple(sorted(found.values(), key=lambda each: -each.waited)[:MAX_VALUES])


def _limit_in_force(given: OperatorBound, declared: float | None) -> float | None:
    return declared if given is None else None if isinstance(given, str) else given


def _parse_bound(number: float | str | None) -> OperatorBound:
    return None if number is None else "none" if float(number) == inf else float(number)
