"""Map a table to events: columns to fields, and statuses to pending, failed or done. A plan is checked twice: by
itself, and against the columns of the table."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Final

from psycopg import sql as compose

from partbox.db.operator.imports import ALIAS, COLUMN_SLOTS, Column, SourceQuery, SourceTable
from partbox.errors import PartboxError

FIELDS: Final = (
    "event_type", "payload", "aggregate_type", "aggregate_id", "tenant_id", "headers", "event_id", "occurred_at",
    "available_at", "content_type", "attempts", "error",
)  # fmt: skip
"""The fields that a column can be mapped to: the fields of an event, and attempts and error of a failed one."""

WHOLE_ROW: Final = "*"
"""Maps the payload to the whole row as JSON."""
NO_STATUS: Final = "NULL"
"""The status of a row whose status column is null, and of every row if there is no such column."""

_NULL = compose.SQL("null::text")


@dataclass(frozen=True, slots=True)
class ImportPlan:
    """A plan that maps the columns and statuses of another outbox's table to events."""

    # `columns` and `constants` are by field of an event. Statuses are texts. `order` names the columns that order rows.
    # Without `status` all rows are pending. `key` defaults to the primary key. Raise `PartboxError` if the plan is
    # contradictory or incomplete.

    table: str
    columns: Mapping[str, str]
    constants: Mapping[str, str] = field(default_factory=dict)
    status: str | None = None
    pending: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    done: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    order: tuple[str, ...] = ()
    where: str | None = None

    def __post_init__(self) -> None:
        for name in (*self.columns, *self.constants):
            _check_field(name)
        if both := self.columns.keys() & self.constants.keys():
            raise PartboxError(f"{min(both)} is both a column and a constant: keep one of them")
        if "payload" in self.constants:
            raise PartboxError("payload cannot be a constant: map it to a column, or to * for the whole row as JSON")
        for name in ("event_type", "payload"):
            if name not in {*self.columns, *self.constants}:
                raise PartboxError(f"no column is mapped to {name}: give --map {name}=COLUMN{_HINTS[name]}")
        named = [*self.pending, *self.failed, *self.done]
        if self.status is None and named:
            raise PartboxError(
                f"statuses are named ({named[0]}), but not the column that holds them: give --status COLUMN"
            )
        if self.status is not None and not self.pending:
            raise PartboxError("no status is named as pending: give --pending STATUS")
        if twice := [each for each in named if named.count(each) > 1]:
            raise PartboxError(f"status {twice[0]!r} is named twice: keep one of them")

    @property
    def imported_statuses(self) -> tuple[str, ...]:
        """The statuses of rows that are imported as pending events."""
        return self.pending if self.status is not None else (NO_STATUS,)

    def check_all_named(self, statuses: Collection[str]) -> None:
        """Raise `PartboxError` if rows have a status that the plan does not mention."""
        # The plan names statuses as pending, failed or done. Rows with another one would be lost silently.
        unknown = sorted(set(statuses) - {*self.imported_statuses, *self.failed, *self.done})
        if unknown:
            raise PartboxError(
                f"there are rows with status {unknown[0]!r}, which the command does not name: name it by --pending, "
                "--failed or --done; this pass imported nothing"
            )

    def build_query(self, table: SourceTable) -> SourceQuery:
        """Build the query that reads the source table. Raise `PartboxError` if a column, key or order is missing."""
        keys = self.key or table.primary_key
        if not keys:
            raise PartboxError(
                f"table {table.name} has no primary key: give --key COLUMN with columns that identify a row"
            )
        parts: dict[str, compose.Composable] = {slot: self._fill_slot(slot, table) for slot in COLUMN_SLOTS}
        parts["table"] = compose.Identifier(table.schema, table.relation)
        parts["status"] = _NULL if self.status is None else _build_identifier(table, self.status)
        parts["key"] = _build_identifiers(table, keys)
        parts["order"] = _build_identifiers(table, self.order or _order_by_key(table, keys))
        parts["where"] = compose.SQL(self.where or "true")
        return SourceQuery(table, parts)

    def _fill_slot(self, slot: str, table: SourceTable) -> compose.Composable:
        """Return the SQL expression that the import query selects for one field of an event."""
        # The expression is a constant, a column, or null.
        name, _, kind = slot.partition("_") if slot.startswith(("payload_", "headers_")) else (slot, "", "")
        if name in self.constants:
            return compose.Literal(self.constants[name]) if kind in ("", "text") else _NULL
        column = self.columns.get(name)
        if column is None:
            return _NULL
        if column == WHOLE_ROW and name == "payload":
            return compose.Identifier(ALIAS) if kind == "json" else _NULL
        found = _find_column(table, column)
        read_as = "json" if name == "headers" and found.kind == "bytes" else found.kind
        return _build_identifier(table, column) if kind in ("", read_as) else _NULL


_HINTS = {
    "event_type": ", or --set event_type=NAME for all rows",
    "payload": ", or payload=* for the whole row as JSON",
}


def _check_field(name: str) -> None:
    if name in FIELDS:
        return
    if name == "created_at":
        raise PartboxError("created_at is set by the database when it writes a record: map occurred_at")
    near = get_close_matches(name, FIELDS, n=1)
    hint = f"is {near[0]!r} meant?" if near else f"there are {', '.join(FIELDS)}"
    raise PartboxError(f"{name!r} is not a field of an event: {hint}")


def _find_column(table: SourceTable, name: str) -> Column:
    found = table.columns.get(name) or table.columns.get(name.lower())
    if found is None:
        near = get_close_matches(name, table.columns, n=1)
        hint = f"is {near[0]!r} meant?" if near else f"it has {', '.join(table.columns)}"
        raise PartboxError(f"table {table.name} has no column {name!r}: {hint}")
    return found


def _build_identifier(table: SourceTable, name: str) -> compose.Identifier:
    return compose.Identifier(ALIAS, _find_column(table, name).name)


def _build_identifiers(table: SourceTable, names: Iterable[str]) -> compose.Composable:
    return compose.SQL(", ").join([_build_identifier(table, name) for name in names])


def _order_by_key(table: SourceTable, keys: tuple[str, ...]) -> tuple[str, ...]:
    """Return the key columns as the order of rows if the key is one integer. Raise `PartboxError` for other keys."""
    # Later rows must have higher keys.
    # Integers rise with time, UUIDs and texts do not.
    if len(keys) == 1 and _find_column(table, keys[0]).is_integer:
        return keys
    raise PartboxError(
        f"the key of table {table.name} ({', '.join(keys)}) does not say which row was written first: give columns "
        "that do, such as --order created_at"
    )
