"""Purging, one bounded step at a time; each is a call, and a transaction, of its own."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from partbox.db.sql import Conn, records

START = (0, 0)
"""Where the first step of each kind begins."""

Kind = Literal["dead", "records", "keys", "inbox"]
"""Parked rows that have been dead for the retention and block nothing; records that no subscription needs; idempotency
keys; inbox rows."""


class PurgeStep(NamedTuple):
    """The number of rows purged, or to be purged, and where the next step continues; None: the end was reached."""

    gone: int
    onward: list[int] | None


def step(
    conn: Conn, kind: Kind, schema: str, place: Sequence[int], *, batch: int, dry_run: bool, **retain: float
) -> PurgeStep | None:
    """At most `batch` rows of a kind that are older than `retain` (s); None: another purge is at work.

    Records have a `retain_dead` too, for a dry run, which leaves the dead rows and counts their records.
    """
    values = {"place": list(place), "batch": batch, "dry_run": dry_run, **retain}
    return next(iter(records(conn, PurgeStep, f"purge_{kind}", schema, **values)), None)
