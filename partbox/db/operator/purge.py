"""Purging, one bounded step at a time; each is a call, and a transaction, of its own."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from psycopg import Connection

from partbox.db.sql import row

START = (0, 0)
"""Where the first step of each kind begins."""


class PurgeStep(NamedTuple):
    """The number of rows purged, or to be purged, and where the next step continues; None: the end was reached."""

    gone: int
    onward: list[int] | None


def records(
    conn: Connection[Any],
    schema: str,
    place: Sequence[int],
    *,
    retain: float,
    retain_dead: float,
    batch: int,
    dry_run: bool,
) -> PurgeStep | None:
    """At most `batch` records older than `retain` (s) that no subscription needs; None: another purge is at work.

    `retain_dead` is for a dry run, which leaves the dead rows and counts their records.
    """
    return _step(conn, "purge_records", schema, place, retain, batch, dry_run, retain_dead=retain_dead)


def dead(
    conn: Connection[Any], schema: str, place: Sequence[int], *, retain: float, batch: int, dry_run: bool
) -> PurgeStep | None:
    """At most `batch` parked rows that have been dead for `retain` (s) and block nothing."""
    return _step(conn, "purge_dead", schema, place, retain, batch, dry_run)


def keys(
    conn: Connection[Any], schema: str, place: Sequence[int], *, retain: float, batch: int, dry_run: bool
) -> PurgeStep | None:
    """At most `batch` idempotency keys older than `retain` (s)."""
    return _step(conn, "purge_keys", schema, place, retain, batch, dry_run)


def inbox(
    conn: Connection[Any], schema: str, place: Sequence[int], *, retain: float, batch: int, dry_run: bool
) -> PurgeStep | None:
    """At most `batch` inbox rows older than `retain` (s)."""
    return _step(conn, "purge_inbox", schema, place, retain, batch, dry_run)


def _step(
    conn: Connection[Any],
    name: str,
    schema: str,
    place: Sequence[int],
    retain: float,
    batch: int,
    dry_run: bool,
    **more: float,
) -> PurgeStep | None:
    found = row(conn, name, schema, place=list(place), retain=retain, batch=batch, dry_run=dry_run, **more)
    return PurgeStep(*found) if found else None
