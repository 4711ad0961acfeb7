"""The payload fetcher: fetches large payloads that a poll leaves out, as many as the process may hold. A payload that
does not come stays in the table: a page ends before its record, and so does a chain of parked rows."""

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
from partbox.events.record import ID, LOG_POSITION, PARTITION, PageStats, count_row_bytes
from partbox.protocol.cursor import LateLimits
from partbox.worker.context import Context
from partbox.worker.engine.intake import FetchedPage

MAX_FETCH_BYTES = 8 << 20  # bytes
# Share of the lease after which a statement asked for too much. Every statement is cancelled after a full lease.
SLOW_SHARE = 0.1

RecordKey = tuple[int, int]


class PayloadFetcher:
    """A fetcher of large event payloads, which polls leave out to limit memory. Only the poller's thread uses it."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._schema = context.schema
        self._slow_seconds = SLOW_SHARE * context.settings.lease
        self._fetch_bytes = MAX_FETCH_BYTES
        self._first_partition = 0

    def complete_page(
        self,
        conn: Connection[Any],
        rows: list[Row],
        left_out: list[Row],
        greedy: Collection[int],
        bytes_left: int,
        late_limits: LateLimits,
        clock: int,
    ) -> FetchedPage:
        """Fetch the large payloads that a poll left out, up to `bytes_left` bytes, and return the page."""
        # Rows of `greedy` partitions get no payload.
        wanted = self._interleave(row[LOG_POSITION] for row in left_out if row[PARTITION] not in greedy)
        fetched = self.fetch_payloads(conn, wanted, bytes_left)
        self._first_partition = (wanted[len(fetched) - 1][0] + 1) if fetched else self._first_partition + 1
        large: dict[int, dict[int, int]] = defaultdict(dict)
        ends: dict[int, int] = {}
        for row in left_out:
            pair = row[LOG_POSITION]
            if (full_row := fetched.get(pair)) is not None:
                large[row[PARTITION]][row[ID]] = count_row_bytes(full_row)
            elif pair not in fetched:
                ends[row[PARTITION]] = min(row[ID], ends.get(row[PARTITION], row[ID]))
        present = [row for row in (fetched.get(row[LOG_POSITION], row) for row in rows) if row is not None]
        return FetchedPage(present, large, ends, late_limits, clock, PageStats(present))

    def fetch_payloads(
        self, conn: Connection[Any], wanted: Sequence[RecordKey], bytes_left: int
    ) -> dict[RecordKey, Row | None]:
        """Fetch the complete records of the first `wanted` rows, as many as fit into `bytes_left` bytes."""
        # A statement fetches at most `MAX_FETCH_BYTES` bytes, or one record. The limit is halved after a slow
        # statement, and is one record after a cancelled one.
        # A record that no longer exists maps to None.
        if not wanted or bytes_left <= 0:
            return {}
        most, began = min(bytes_left, self._fetch_bytes), time.monotonic()
        try:
            fetched = records.load_payloads(conn, self._schema, wanted, most)
        except HungError:
            self._fetch_bytes = 1
            raise
        except QueryCanceled as error:
            self._fetch_bytes = 1
            text = "fetching payloads of %d bytes and more took too long, so they are fetched one by one: %s"
            self._context.log("loop_error", text, most, error, loop="poller")
            return {}
        if time.monotonic() - began > self._slow_seconds:
            self._fetch_bytes = max(1, most // 2)
        else:
            received = sum(count_row_bytes(row) for row in fetched.values() if row is not None)
            self._fetch_bytes = min(MAX_FETCH_BYTES, max(self._fetch_bytes, received) * 5 // 4 + 1)
        return fetched

    def _interleave(self, pairs: Iterable[RecordKey]) -> list[RecordKey]:
        # The first pair of every partition comes before the second of each, so that no partition waits for another's
        # backlog.
        ranks: dict[int, count[int]] = defaultdict(count)
        ranked = [
            (next(ranks[number]), (number - self._first_partition) % 256, id, number) for number, id in sorted(pairs)
        ]
        return [(number, id) for _, _, id, number in sorted(ranked)]
