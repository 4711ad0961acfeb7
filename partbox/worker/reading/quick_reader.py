"""Reads what is new for the partitions that are caught up, by quick polls: see `partbox.protocol.quick_poll`."""

import time
from bisect import bisect_right
from collections import defaultdict
from typing import Any

from psycopg import Connection

from partbox.db.delivery import records
from partbox.db.delivery.idle_check import IdleCheck
from partbox.db.delivery.records import QuickPolled
from partbox.events.record import ID, PARTITION
from partbox.observe import Observers
from partbox.protocol import quick_poll as quick
from partbox.protocol.horizon import Horizon, Snapshot
from partbox.worker.reading.company import Company
from partbox.worker.reading.intake import Intake
from partbox.worker.reading.payloads import Brought, Payloads
from partbox.worker.reading.read_budget import ReadBudget
from partbox.worker.reading.sightings import Sightings
from partbox.worker.state.holdings import Holdings
from partbox.worker.state.partition import Partition


class QuickReader:
    """Of one process; the poller's thread only."""

    def __init__(
        self,
        holdings: Holdings,
        intake: Intake,
        payloads: Payloads,
        room: ReadBudget,
        schema: str,
        observers: Observers,
    ) -> None:
        self._holdings = holdings
        self._intake = intake
        self._payloads = payloads
        self._room = room
        self._schema = schema
        self._sightings = Sightings(observers)

    def read(self, conn: Connection[Any], horizon: Horizon, company: Company) -> tuple[bool, IdleCheck] | None:
        """True if anything came, and the look that it is; None if the page does not count, and nothing has moved."""
        shared = horizon.shared
        assert shared is not None  # who is caught up has read it
        asked_at = time.monotonic()
        polled = records.quick(conn, self._schema, shared, company.bits)
        if not quick.counts(len(polled.rows), polled.floor, polled.fence.drawn):
            return None
        brought = None
        if polled.rows and (brought := self._brought(conn, company, polled)) is None:
            return None
        horizon.learn(polled.fence)  # read after the snapshot, as the ceiling was
        snapshot = Snapshot.parse(polled.snapshot)
        page = horizon.page_of(snapshot, whole=True)
        horizon.advance(snapshot, page)
        if brought is not None:
            self._sightings.tell(polled.rows, asked_at, polled.fence.drawn - polled.floor)
            self._intake.quick_page(company.caught_up, page, brought)
        return brought is not None, IdleCheck(polled.fence, ended=False, up=polled.up)

    def _brought(self, conn: Connection[Any], company: Company, polled: QuickPolled) -> Brought | None:
        """The page with all of its payloads; None if there is no room for all of it."""
        self._room.learn(polled.rows)
        ids: defaultdict[int, list[int]] = defaultdict(list)
        for row in polled.rows:
            ids[row[PARTITION]].append(row[ID])
        with self._holdings.lock:
            fits = all(self._fits(company.caught_up[number], its) for number, its in ids.items())
            if not fits or not self._room.takes(len(polled.rows), self._holdings.partitions.values()):
                return None
        return self._with_payloads(conn, polled)

    def _fits(self, partition: Partition, ids: list[int]) -> bool:
        return len(ids) - bisect_right(ids, partition.cursor.last_id) <= self._room.of_one(partition)

    def _with_payloads(self, conn: Connection[Any], polled: QuickPolled) -> Brought | None:
        rows, cap = polled.rows, len(polled.rows)
        left_out = [row for row in records.left_out(rows) if self._intake.needs(row, polled.clock)]
        if not left_out:
            return Brought(rows, {}, {}, cap, polled.clock, records.delayed(rows))
        with self._holdings.lock:
            left = self._room.left(self._holdings.partitions.values())
        brought = self._payloads.of_page(conn, rows, left_out, (), self._room.beside(cap, left), cap, polled.clock)
        return brought if not brought.ends else None
