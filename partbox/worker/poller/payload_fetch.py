"""Fetches the payloads that a page leaves out because they are large, as many as the process may hold.

A statement brings at most `STEP` bytes, or one record: half of that where it takes long, and one record after one that
was cancelled. What does not come stays where it is: a page ends before it, and a chain of parked records too.
"""

import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from itertools import count
from typing import Any

from psycopg import Connection
from psycopg.errors import QueryCanceled

from partbox.db.blocking import Row
from partbox.db.deadline import HungError
from partbox.db.delivery import records
from partbox.events.record import ID, PARTITION, PLACE, Survey, size
from partbox.worker.context import Context
from partbox.worker.engine.intake import Brought

STEP = 8 << 20
SLOW = 0.1  # of the lease, after which every statement is cancelled: a statement that takes longer asked for too much

Pair = tuple[int, int]


class Payloads:
    """Fetches large payloads, on the poller's thread."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._schema = context.schema
        self._slow = SLOW * context.settings.lease
        self._step = STEP
        self._first = 0

    def of_page(
        self,
        conn: Connection[Any],
        rows: list[Row],
        left_out: list[Row],
        greedy: Collection[int],
        left: int,
        cap: int,
        clock: int,
    ) -> Brought:
        """Fetch what the page left out, `left` bytes at most, and nothing for partitions that are `greedy`."""
        wanted = self._in_turn(row[PLACE] for row in left_out if row[PARTITION] not in greedy)
        got = self.fetch(conn, wanted, left)
        self._first = (wanted[len(got) - 1][0] + 1) if got else self._first + 1
        large: dict[int, dict[int, int]] = defaultdict(dict)
        ends: dict[int, int] = {}
        for row in left_out:
            pair = row[PLACE]
            if (whole := got.get(pair)) is not None:
                large[row[PARTITION]][row[ID]] = size(whole)
            elif pair not in got:
                ends[row[PARTITION]] = min(row[ID], ends.get(row[PARTITION], row[ID]))
        there = [row for row in (got.get(row[PLACE], row) for row in rows) if row is not None]
        return Brought(there, large, ends, cap, clock, Survey(there))

    def fetch(self, conn: Connection[Any], wanted: Sequence[Pair], left: int) -> dict[Pair, Row | None]:
        """Fetch the first of these, while `left` bytes are left; None for one that is gone."""
        if not wanted or left <= 0:
            return {}
        most, began = min(left, self._step), time.monotonic()
        try:
            got = records.payloads(conn, self._schema, wanted, most)
        except HungError:
            self._step = 1
            raise
        except QueryCanceled as error:
            self._step = 1
            text = "fetching payloads of %d bytes and more took too long, it goes on one by one: %s"
            self._context.log("loop_error", text, most, error, loop="poller")
            return {}
        if time.monotonic() - began > self._slow:
            self._step = max(1, most // 2)
        else:
            came = sum(size(row) for row in got.values() if row is not None)
            self._step = min(STEP, max(self._step, came) * 5 // 4 + 1)
        return got

    def _in_turn(self, pairs: Iterable[Pair]) -> list[Pair]:
        """The first of every partition, then the second of every one: none waits for the backlog of another."""
        ranks: dict[int, count[int]] = defaultdict(count)
        ranked = [(next(ranks[number]), (number - self._first) % 256, id, number) for number, id in sorted(pairs)]
        return [(number, id) for _, _, id, number in sorted(ranked)]
