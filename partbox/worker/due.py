"""Brings back parked records: heads of blocked keys that may run with what may follow them, and rows that are due."""

import time
from collections.abc import Sequence
from typing import Any

from psycopg import Connection

from partbox.db import parked, records
from partbox.worker.holdings import Holdings
from partbox.worker.intake import Intake

CHAINS = 50  # blocked keys at a time
ROWS = 200  # rows that block nothing, at a time


class Due:
    """Fetches the bodies of parked rows whose time has come. The poller's thread only."""

    def __init__(self, holdings: Holdings, intake: Intake, schema: str, subscription: str) -> None:
        self._holdings = holdings
        self._intake = intake
        self._schema = schema
        self._subscription = subscription

    def run_blocked(self, conn: Connection[Any]) -> None:
        """Heads of blocked keys that may run now."""
        with self._holdings.lock:
            found = self._holdings.awake(time.monotonic(), CHAINS)
        if not found:
            return
        wanted = [(partition.number, row.id) for partition, _, rows in found for row in rows]
        bodies = {row[1]: row for row in records.bodies(conn, self._schema, wanted)}
        with self._holdings.lock:
            for partition, key, rows in found:
                self._intake.chain(partition, key, rows, bodies)

    def run_due(self, conn: Connection[Any], numbers: Sequence[int]) -> None:
        """Rows of these partitions that block nothing and are due."""
        with self._holdings.lock:
            held = {number: self._holdings.partitions.get(number) for number in numbers}
            mine = {number: partition for number, partition in held.items() if partition and not partition.stopping}
            taken = [id for partition in mine.values() for id in (*partition.taken, *partition.deleting)]
        if not mine:
            return
        rows = parked.due(conn, self._schema, self._subscription, list(mine), taken, ROWS)
        wanted = [(row.partition, row.record_id) for row in rows]
        bodies = {row[1]: row for row in records.bodies(conn, self._schema, wanted)} if wanted else {}
        with self._holdings.lock:
            for row in rows:
                if not mine[row.partition].stopping:
                    self._intake.due(mine[row.partition], row, bodies)
