"""Purging, one bounded step at a time; each is a call, and a transaction, of its own."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from partbox.db.sql import Conn, records

START_POSITION = (0, 0)
"""Where the first step of each kind begins."""

Kind = Literal["dead", "records", "keys", "history", "inbox"]
"""Parked rows that have been dead for the retention and block nothing; records that no subscription needs; idempotency
keys; rows of a table of the history; inbox rows."""

TABLE_OF_KIND = {"keys": "idempotency", "inbox": "inbox"}


class PurgeStep(NamedTuple):
    """The number of rows purged, or to be purged, and where the next step continues; None: the end was reached."""

    deleted: int
    next_place: list[int] | None


def step(
    conn: Conn, kind: Kind, schema: str, place: Sequence[int], *, batch: int, dry_run: bool, **limits: float | str
) -> PurgeStep | None:
    """At most `batch` rows of a kind that are older than `retain` (s) of `limits`; None: another purge is at work.

    Records have a `retain_dead` too, for a dry run, which leaves the dead rows and counts their records; what is of the
    history names its `table`.
    """
    values = {"table": TABLE_OF_KIND.get(kind), "place": list(place), "batch": batch, "dry_run": dry_run, **limits}
    query = "purge_rows" if values["table"] else f"purge_{kind}"
    return next(iter(records(conn, PurgeStep, query, schema, **values)), None)
