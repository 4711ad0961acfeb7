"""Reading the log: fences, pages, and the bodies of parked records.

A page is fetched through libpq's one blocking call, not through a cursor: 10,000 rows arrive in hundreds of network
reads, and between any two of them a cursor gives the interpreter lock away and waits for it behind a busy handler.
Rows come in binary and lean: uuid, timestamps and json stay raw bytes until somebody asks.
"""

import re
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, NamedTuple

from psycopg import Connection, OperationalError
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result
from psycopg.pq import ConnStatus, ExecStatus, Format
from psycopg.types.string import ByteaBinaryLoader

from partbox.db.sql import query
from partbox.rules.cursor import CAP, STRETCH, Ask
from partbox.rules.horizon import Fence, fence

Row = tuple[Any, ...]
SNAPSHOT = 14

_RAW = ("uuid", "timestamptz", "json")
_NAMED = re.compile(rb"%\((\w+)\)s")


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


def lean(conn: Connection[Any]) -> None:
    """Make binary results of this connection keep uuid, timestamptz and json as raw bytes."""
    for name in _RAW:
        conn.adapters.register_loader(name, ByteaBinaryLoader)


def look(conn: Connection[Any], schema: str, listed: Iterable[int]) -> Look:
    """A fence, and whether one of the `listed` transactions has ended."""
    row = conn.execute(query("fence", schema), {"listed": _array(listed)}).fetchone()
    assert row is not None
    drawn, age, xmax, ended = row
    return Look(fence(drawn, age, int(xmax)), ended)


def poll(
    conn: Connection[Any], schema: str, asks: Sequence[Ask], shared: Shared, *, lo: int, hi: int
) -> tuple[str, int, list[Row]]:
    """One page: its snapshot N, the floor it used for partitions in lockstep, its rows. Looks at ids in (lo, hi] only."""
    partitions, last_ids, rooms, snapshots, floors, untils, afters = map(_array, zip(*asks, strict=True))
    rows = _fetch(conn, *_positional("poll", schema), {
        "settled": str(shared.settled), "listed": _array(shared.listed), "bounds": _array(shared.bounds),
        "snapshot": shared.snapshot, "lo": str(lo), "hi": str(hi), "cap": str(CAP), "stretch": str(STRETCH),
        "partitions": partitions, "last_ids": last_ids, "rooms": rooms, "snapshots": snapshots, "floors": floors,
        "untils": untils, "afters": afters,
    })
    head = rows.pop(next(position for position, row in enumerate(rows) if row[SNAPSHOT] is not None))
    return head[SNAPSHOT], head[1], rows


def bodies(conn: Connection[Any], schema: str, wanted: Sequence[tuple[int, int]]) -> list[Row]:
    """The records of these (partition, id), in id order; one that is gone is missing."""
    return _fetch(conn, *_positional("bodies", schema), {
        "partitions": _array(partition for partition, _ in wanted), "ids": _array(id for _, id in wanted),
    })


def _array(values: Iterable[int | str | None]) -> str:
    """An array literal of numbers and snapshots, neither of which holds a quote or a backslash."""
    return "{%s}" % ",".join("null" if value is None else f'"{value}"' for value in values)


@cache
def _positional(name: str, schema: str) -> tuple[bytes, tuple[str, ...]]:
    """A named query with $1, $2 … for libpq, and the names of its parameters in that order."""
    names: list[str] = []

    def place(match: re.Match[bytes]) -> bytes:
        names.append(match[1].decode())
        return b"$%d" % len(names)

    text = _NAMED.sub(place, query(name, schema))
    return text, tuple(names)


def _fetch(conn: Connection[Any], text: bytes, names: tuple[str, ...], values: dict[str, str | None]) -> list[Row]:
    params = [None if (value := values[name]) is None else value.encode() for name in names]
    result = conn.pgconn.exec_params(text, params, result_format=Format.BINARY)
    if conn.pgconn.status != ConnStatus.OK:
        raise OperationalError("the connection was lost while reading")
    if result.status != ExecStatus.TUPLES_OK:
        raise error_from_result(result)
    transformer = Transformer(conn)
    transformer.set_pgresult(result)
    return transformer.load_rows(0, result.ntuples, tuple)  # type: ignore[arg-type]
