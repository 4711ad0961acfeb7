"""Read the log: pages, and the bodies of parked records. Pages and bodies leave out large payloads and names, so that a
statement of many records returns few bytes. `load_payloads` fetches them, bounded by bytes."""

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import orjson

from partbox.db.blocking import Row, array_literal, fetch, integer_array, text_array
from partbox.db.delivery import bell, proof, server_incarnation
from partbox.db.sql import Conn
from partbox.events.record import PageStats
from partbox.protocol import cursor
from partbox.protocol.bell import flag_seconds_left
from partbox.protocol.cursor import LateLimits, ReadRequest, usual_late_limits
from partbox.protocol.horizon import Fence, Page, build_fence
from partbox.protocol.quick_poll import compute_id_range, to_bits
from partbox.protocol.sweep import Sweep

# Columns of the last row of a page, which is no record.
FLOOR, AGE, LIFE, SNAPSHOT, CLOCK, LOG, DRAWN, UP = 1, 3, 4, 5, 6, 7, 9, 10


class PolledPage(NamedTuple):
    """The records that one full read of the log returned, and the database snapshot of the read."""

    snapshot: str  # the snapshot N that the page was read at
    floors: list[int]  # for each request the floor that bounded its search for late records
    rows: list[Row]
    clock: int  # the server's clock, in microseconds since 2000
    drawn: int  # the ids drawn by then
    stats: PageStats


class QuickPage(NamedTuple):
    """The new records that one cheap query returned for partitions that are up to date.

    - `fence`: a bound on the ids that later transactions draw"""

    snapshot: str
    fence: Fence
    floor: int  # the id that the search began above
    rows: list[Row]  # in the order of ids
    clock: int  # the server's clock, in microseconds since 2000
    flag_up_for: float  # seconds for which the flag of the bell stays up
    stats: PageStats


def poll_page(
    conn: Conn,
    schema: str,
    asks: Sequence[ReadRequest],
    shared: Page | None,
    *,
    lo: int,
    hi: int,
    limits: LateLimits | None = None,
    sweep: Sweep | None = None,
    types: Collection[str] | None = None,
) -> PolledPage:
    """Read one page of events from the log for several read requests. Events of other types than `types` come without
    their payloads."""
    # The records have ids up to `hi` and above `lo`. Requests whose `base` is `shared` are in lockstep. Each base is
    # sent once. One late record more than `limits` allow is returned of each partition. New records of partitions in
    # the `sweep` come last, in the order of ids, regardless of their rooms.
    limits = limits or usual_late_limits()
    bases = [ask.base_page for ask in asks]
    own = {base: number for number, base in enumerate(dict.fromkeys(base for base in bases if base is not shared), 1)}
    numbers = [None if base is shared else own[base] for base in bases]
    values = {
        **_shared_parameters(shared),
        **_own_parameters(own),
        **_ask_parameters(asks, sweep),
        **_sweep_parameters(sweep),
        "hi": hi,
        "types": _type_array(types),
        "cap": limits.records,
        "stretch": limits.ids,
        "bases": array_literal(numbers),
    }
    # The first reading of old records sets their hint bits. With data checksums, the server writes this to the WAL,
    # about 200 bytes for each record, once.
    head, rows, stats = _fetch_page(conn, "poll", schema, values, {"above": cursor.stretch_of(lo)})
    floors = {0: head[FLOOR]} | {int(number): floor for number, floor in orjson.loads(head[3]).items()}
    return PolledPage(
        head[SNAPSHOT],
        [floors[number or 0] for number in numbers],
        rows,
        int(head[CLOCK]),
        proof.check_drawn(conn, head[DRAWN]),
        stats,
    )


def read_new_records(
    conn: Conn, schema: str, shared: Page, partitions: str, types: Collection[str] | None = None
) -> QuickPage:
    """Read a few records of some partitions that were committed after the last full read. Events of other types than
    `types` come without their payloads."""
    # At most `MAX_LATE` + 1 records that the snapshot of the page `shared` does not see are returned. `partitions` is a
    # bit string (see `quick_poll.to_bits`).
    own = {
        "partitions": partitions,
        "most": cursor.MAX_LATE,
        "bell": bell.bell_of(conn),
        "types": _type_array(types),
    }
    above, end = compute_id_range(shared)
    head, rows, stats = _fetch_page(
        conn, "quick", schema, {**_shared_parameters(shared), **own}, {"above": above, "end": end}
    )
    snapshot, drawn = head[SNAPSHOT], proof.check_drawn(conn, head[DRAWN])
    made = build_fence(drawn, int(head[AGE]), int(snapshot.split(":")[1]))
    # The column is raw bytes on a connection with raw loaders.
    up = flag_seconds_left(None if head[UP] is None else int(head[UP]))
    return QuickPage(snapshot, made, head[FLOOR], rows, int(head[CLOCK]), up, stats)


def _fetch_page(
    conn: Conn, name: str, schema: str, values: Mapping[str, object], planned: Mapping[str, int]
) -> tuple[Row, list[Row], PageStats]:
    # Return the facts about a page of the log, its records and its statistics.
    # The facts about the page are in the last row. The poll is repeated if the log's definition has changed. Raise
    # `PartialReadError` if the last row is missing.
    sequence, value = server_incarnation.incarnation_of(conn)
    sent = {**values, **planned, "life": sequence}
    while True:
        stats = PageStats()
        rows = fetch(conn, name, schema, sent, planned=planned, on_rows=partial(_add_to_stats, stats))
        if not rows or rows[-1][0] is not None:
            text = "a page of the log was cut: something between this process and the server limits the rows returned"
            raise proof.PartialReadError(text)
        # This row is not a record. Where it arrives, everything before it has arrived.
        # N is in this row alone. With 500 open transactions a snapshot has 3 kB, and a page with N in every row took
        # 108 to 241 ms instead of 5 ms.
        head = rows.pop()
        server_incarnation.check_incarnation(conn, head[LIFE] == (None if value is None else str(value)))
        if proof.check_log_version(conn, schema, head[LOG]):
            return head, rows, stats


def _add_to_stats(stats: PageStats, rows: Sequence[Row]) -> None:
    stats.add(rows if rows[-1][0] is not None else rows[:-1])


def _type_array(types: Collection[str] | None) -> str | None:
    return None if types is None else text_array(types)


def _shared_parameters(page: Page | None) -> dict[str, object]:
    return {
        "snapshot": page.snapshot if page else None,
        "settled": page.settled_id if page else None,
        "listed": integer_array(xid for xid, _ in page.listed_bounds) if page else "{}",
        "bounds": integer_array(bound for _, bound in page.listed_bounds) if page else "{}",
    }


def _own_parameters(bases: Mapping[Page, int]) -> dict[str, str]:
    listed = [(number, *each) for base, number in bases.items() for each in base.listed_bounds]
    return {
        "own_snapshots": array_literal(base.snapshot for base in bases),
        "own_settled": array_literal(base.settled_id for base in bases),
        "own_of": integer_array(number for number, _, _ in listed),
        "own_listed": integer_array(xid for _, xid, _ in listed),
        "own_bounds": integer_array(bound for _, _, bound in listed),
    }


def _ask_parameters(asks: Sequence[ReadRequest], sweep: Sweep | None) -> dict[str, str]:
    partitions, last_ids, rooms, _, untils, afters = zip(*asks, strict=True)
    return {
        "partitions": integer_array(partitions),
        "last_ids": integer_array(last_ids),
        "rooms": integer_array(rooms if sweep is None else sweep.compute_rooms_beside(asks)),
        "untils": array_literal(untils),
        "afters": array_literal(afters),
    }


def _sweep_parameters(sweep: Sweep | None) -> dict[str, object]:
    if sweep is None:
        return {"swept_from": 0, "swept_to": 0, "swept_most": 0, "swept": to_bits(()), "swept_ids": "{}"}
    return {
        "swept_from": sweep.start,
        "swept_to": sweep.end,
        "swept_most": sweep.max_records,
        "swept": to_bits(sweep.last_ids),
        "swept_ids": integer_array(sweep.last_ids.get(number, 0) for number in range(256)),
    }


def load_bodies(conn: Conn, schema: str, wanted: Sequence[tuple[int, int]]) -> list[Row]:
    """Load the records with the given (partition, id) pairs, without large payloads."""
    # They are in the order of ids.
    # A record that is gone is missing. The last column of a record says whether a delayed event is canceled or may be.
    with proof.without_row_security(conn):
        return fetch(conn, "bodies", schema, {**_id_parameters(wanted), "types": None})


def load_payloads(
    conn: Conn, schema: str, wanted: Sequence[tuple[int, int]], most: int
) -> dict[tuple[int, int], Row | None]:
    """Load records with their payloads by (partition, id), up to `most` bytes together."""
    # The records are the first of `wanted`.
    # Each record has its payload. A record that is gone is None. At least one record is returned, and the last may
    # exceed the limit.
    with proof.without_row_security(conn):
        rows = fetch(conn, "payloads", schema, {**_id_parameters(wanted), "bytes": most})
    return {pair: None if row[1] is None else row for pair, row in zip(wanted, rows, strict=False)}


def _id_parameters(wanted: Sequence[tuple[int, int]]) -> dict[str, object]:
    return {
        "partitions": array_literal(partition for partition, _ in wanted),
        "ids": array_literal(id for _, id in wanted),
    }
