"""Delete old rows in bounded steps. Each step is one call and one transaction."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from partbox.db.sql import Conn, fetch_records

START_POSITION = (0, 0)
"""Where the first step of each kind begins."""

Kind = Literal["dead", "records", "keys", "history", "inbox"]
"""Parked rows, records, idempotency keys, rows of a table of the history, and inbox rows.

Parked rows must have been dead for the retention and block nothing. Records must be needed by no subscription.
"""

TABLE_OF_KIND = {"keys": "idempotency", "inbox": "inbox"}
# Their rows are about single records, and are deleted after their record, whatever their age.
TABLES_OF_RECORDS = ("attempt", "cancellation")


class PurgeStep(NamedTuple):
    """The number of rows that one purge step has deleted, and the place where the next step begins.

    - `deleted`: in a dry run, the number of rows to delete
    - `next_place`: None at the end"""

    deleted: int
    next_place: list[int] | None


def run_step(
    conn: Conn, kind: Kind, schema: str, place: Sequence[int], *, batch: int, dry_run: bool, **limits: float | str
) -> PurgeStep | None:
    """Delete at most `batch` expired rows of one kind. Return None if another purge is running."""
    # The rows are older than `retain` seconds, a key of `limits`. With `dry_run` the rows are only counted. Records
    # then have a limit `retain_dead` too: the dry run has left the dead rows in place, and counts their records. Rows
    # of the history name their `table`.
    values = {"table": TABLE_OF_KIND.get(kind), "place": list(place), "batch": batch, "dry_run": dry_run, **limits}
    table = values["table"]
    query = "purge_ended" if table in TABLES_OF_RECORDS else "purge_rows" if table else f"purge_{kind}"
    return next(iter(fetch_records(conn, PurgeStep, query, schema, **values)), None)
