"""Reading the log: fences, pages, and the bodies of parked records. Lean: what nobody asks for is not decoded."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from psycopg import Connection

from partbox.db.blocking import Row, array, fetch
from partbox.rules.cursor import CAP, STRETCH, Ask
from partbox.rules.horizon import Fence, fence

SNAPSHOT = 14


class Look(NamedTuple):
    """One idle check: a fence, and whether a transaction listed by the last snapshot has ended."""

    fence: Fence
    ended: bool


class Shared(NamedTuple):
    """What a poll asks for all partitions in lockstep: their snapshot, its settled floor, its listed xids' bounds."""

    snapshot: str | None
    settled: int
    listed: Sequence[int]
    bounds: Sequence[int]


def look(conn: Connection[Any], schema: str, listed: Iterable[int]) -> Look:
    """A fence, and whether one of the `listed` transactions has ended."""
    ((drawn, age, xmax, ended),) = fetch(conn, "fence", schema, {"listed": array(listed)})
    return Look(fence(drawn, age, int(xmax)), ended)


def poll(
    conn: Connection[Any], schema: str, asks: Sequence[Ask], shared: Shared, *, lo: int, hi: int
) -> tuple[str, int, list[Row]]:
    """One page: its snapshot N, the floor it used for partitions in lockstep, its rows; of ids in (lo, hi] only."""
    partitions, last_ids, rooms, snapshots, floors, untils, afters = map(array, zip(*asks, strict=True))
    rows = fetch(
        conn,
        "poll",
        schema,
        {
            "settled": shared.settled,
            "listed": array(shared.listed),
            "bounds": array(shared.bounds),
            "snapshot": shared.snapshot,
            "lo": lo,
            "hi": hi,
            "cap": CAP,
            "stretch": STRETCH,
            "partitions": partitions,
            "last_ids": last_ids,
            "rooms": rooms,
            "snapshots": snapshots,
            "floors": floors,
            "untils": untils,
            "afters": afters,
        },
    )
    head = rows.pop(next(position for position, row in enumerate(rows) if row[SNAPSHOT] is not None))
    return head[SNAPSHOT], head[1], rows


def bodies(conn: Connection[Any], schema: str, wanted: Sequence[tuple[int, int]]) -> list[Row]:
    """The records of these (partition, id), in id order; one that is gone is missing."""
    return fetch(
        conn,
        "bodies",
        schema,
        {
            "partitions": array(partition for partition, _ in wanted),
            "ids": array(id for _, id in wanted),
        },
    )
