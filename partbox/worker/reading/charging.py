"""Charges suspects before they run, by the fenced save, in autocommit: so the charge is there before they start."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from psycopg import Connection

from partbox.db.blocking import Row
from partbox.db.delivery import cursors
from partbox.db.delivery.cursors import Saving
from partbox.db.delivery.parked import Park
from partbox.events.record import AGGREGATE_ID, AGGREGATE_TYPE, EVENT_TYPE, ROUTE
from partbox.handlers import Routes
from partbox.protocol.parking import ParkedRow
from partbox.worker.delivering.endpoint import Endpoint
from partbox.worker.signals import Signals
from partbox.worker.state.holdings import Holdings
from partbox.worker.state.partition import Partition

Suspect = tuple[Partition, ParkedRow]


class Charging:
    """Of one process. The poller's thread only."""

    def __init__(
        self, holdings: Holdings, routes: Routes[Endpoint], schema: str, subscription: str, signals: Signals
    ) -> None:
        self._holdings = holdings
        self._routes = routes
        self._schema = schema
        self._subscription = subscription
        self._signals = signals

    def charge(
        self, conn: Connection[Any], me: UUID, suspects: Sequence[Suspect], bodies: Mapping[int, Row]
    ) -> set[int]:
        """Charge these, but for those whose attempts are used up: the ids of these, which are dead."""
        there = [(partition, row) for partition, row in suspects if row.id in bodies]
        dead = {row.id for _, row in there if row.accused and self._used_up(row, bodies[row.id])}
        charged = [(partition, row) for partition, row in there if row.id not in dead]
        partitions = {partition.number: partition for partition, _ in charged}
        if not partitions:
            return dead
        mine, _ = cursors.save(
            conn,
            self._schema,
            self._subscription,
            me,
            [Saving(each.number, each.epoch, None, None, None, False) for each in partitions.values()],
            [_park(partition, row, bodies[row.id]) for partition, row in charged],
        )
        lost = [partition for number, partition in partitions.items() if number not in mine]
        if lost:
            self._signals.lost(lost)
            return self.charge(conn, me, [each for each in charged if each[0] not in lost], bodies) | dead
        with self._holdings.lock:
            for partition, row in charged:
                partition.suspects.charged(row)
        return dead

    def _used_up(self, row: ParkedRow, body: Row) -> bool:
        most = self._routes[body[ROUTE]].handler.max_attempts
        return most is not None and row.attempts >= most


def _park(partition: Partition, row: ParkedRow, body: Row) -> Park:
    return Park(
        partition.number,
        row.id,
        body[AGGREGATE_TYPE],
        body[AGGREGATE_ID],
        body[EVENT_TYPE],
        "ready",
        blocks=row.blocks,
        attempts=row.attempts + 1,
        delay=None if row.blocks else 0.0,  # what blocks nothing is found by its due time
        new=False,
        charge=True,
    )
