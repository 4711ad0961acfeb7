"""Read parked rows, with row security off so that a policy cannot hide any."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import orjson

from partbox.db.blocking import integer_array
from partbox.db.delivery.proof import without_row_security
from partbox.db.sql import Conn, load_query
from partbox.protocol.rows import LooseRows, Refill, RefilledKey, StoredRow, StoredSpill

# The records of a partition that one refill reads. A few milliseconds of the server's time.
MOST_REFILL_READ = 2_000


def list_blocking(conn: Conn, schema: str, subscription: str, partitions: Sequence[int]) -> list[StoredRow]:
    """Return the failed or waiting events that hold back later events of the same key."""
    # They are in the order of ids.
    # Such an event is a parked row, set aside by its subscription. The key is its aggregate.
    return [StoredRow(*row) for row in _fetch_rows(conn, "blocking", schema, subscription, partitions)]


def list_ahead(conn: Conn, schema: str, subscription: str, partitions: Sequence[int]) -> list[tuple[int, int]]:
    """Return the (partition, id) pairs of failed or waiting events that the next read may return again."""
    # The saved cursor may not have passed these parked rows, so a poll returns their records again. They must be
    # recognized.
    return _fetch_rows(conn, "ahead", schema, subscription, partitions)


def count_loose_rows(conn: Conn, schema: str, subscription: str, partitions: Sequence[int]) -> dict[int, LooseRows]:
    """Count in each partition the failed or waiting events that hold back no other events."""
    rows = _fetch_rows(conn, "loose_rows", schema, subscription, partitions)
    return {number: LooseRows(*counts) for number, *counts in rows}


def list_spills(conn: Conn, schema: str, subscription: str, partitions: Sequence[int]) -> list[StoredSpill]:
    """Return the blocked keys whose later events wait in the log without rows."""
    return [StoredSpill(*row) for row in _fetch_rows(conn, "spills", schema, subscription, partitions)]


def refill(conn: Conn, schema: str, subscription: str, me: UUID, wanted: Refill) -> list[RefilledKey] | None:
    """Insert rows for the next events of keys whose events wait in the log. Return None if `me` is not the owner."""
    keys = [
        {"at": each.aggregate_type, "ai": each.aggregate_id, "n": each.most, "end": each.may_end}
        for each in wanted.keys
    ]
    values = {
        "subscription": subscription,
        "me": me,
        "partition": wanted.partition,
        "epoch": wanted.epoch,
        "consumed_id": wanted.consumed_id,
        "keys": orjson.dumps(keys).decode(),
        "types": None if wanted.wanted_types is None else [*wanted.wanted_types],
        "most_read": MOST_REFILL_READ,
    }
    with without_row_security(conn):
        rows = conn.execute(load_query("refill", schema), values).fetchall()
    return None if rows == [(None,) * 5] else [RefilledKey(*row) for row in rows]


def load_due(  # noqa: PLR0917  as the statement has them
    conn: Conn,
    schema: str,
    subscription: str,
    partitions: Sequence[int],
    taken: Sequence[int],
    early: Sequence[int],
    room: int,
    share: int,
    letters: int,
) -> list[StoredRow]:
    """Load the failed or waiting events that are due to be tried again and are not in memory.

    The rows with the ids `taken` are in memory. Rows with `early` ids got their permit before they are due, and come
    first. At most `room` rows are returned, at most `share` of them due in one partition, and in addition at most
    `letters` dead rows that are owed to the dead-letter hook, the longest waiting first."""
    # Rows that are neither early nor dead come in the order of ids, the longest due of each partition.
    # Only parked rows that hold back no other events are returned.
    more = {
        "taken": integer_array(taken),
        "early": integer_array(early),
        "room": room,
        "share": share,
        "letters": letters,
    }
    return [StoredRow(*row) for row in _fetch_rows(conn, "due", schema, subscription, partitions, **more)]


def find_startable(conn: Conn, schema: str, subscription: str, record_ids: Sequence[int]) -> set[int]:
    """Return the scheduled events among `record_ids` that may be handled now: due and not canceled."""
    # Canceled ones are given up.
    values = {"subscription": subscription, "record_ids": list(record_ids)}
    return {id for (id,) in conn.execute(load_query("may_start", schema), values)}


def _fetch_rows(
    conn: Conn, name: str, schema: str, subscription: str, partitions: Sequence[int], **more: Any
) -> list[Any]:
    values = {"subscription": subscription, "partitions": list(partitions), **more}
    with without_row_security(conn):
        return conn.execute(load_query(name, schema), values).fetchall()
