"""Brings back parked records: heads of blocked keys that may run with what may follow them, and rows that are due.

A suspect is charged first: by the fenced save function, in autocommit, so that the charge is there before it runs.
"""

import time
from collections.abc import Collection, Sequence
from itertools import takewhile
from typing import Any, NamedTuple
from uuid import UUID

from psycopg import Connection
from psycopg.errors import QueryCanceled

from partbox.db import cursors, parked, records
from partbox.db.blocking import Row
from partbox.db.cursors import Saving
from partbox.db.deadline import HungError
from partbox.db.parked import Park, Stored
from partbox.events import DeliveredEvent
from partbox.events.record import AGGREGATE_ID, AGGREGATE_TYPE, EVENT_TYPE, ID, PLACE, ROUTE
from partbox.handlers import Routes
from partbox.rules.parking import ParkedRow, Verdict
from partbox.worker.delivering.endpoint import Endpoint
from partbox.worker.reading.intake import Intake
from partbox.worker.reading.payloads import Payloads
from partbox.worker.reading.read_budget import ReadBudget
from partbox.worker.signals import Signals
from partbox.worker.state.holdings import Holdings
from partbox.worker.state.key import Key
from partbox.worker.state.partition import Partition

CHAINS = 50  # blocked keys at a time
ROWS = 200  # rows that block nothing, at a time
IN_MEMORY = 400  # of these


class _Found(NamedTuple):
    partition: Partition
    key: Key
    rows: list[ParkedRow]


class ParkedReader:
    """Fetches the bodies of parked rows whose time has come. The poller's thread only."""

    def __init__(
        self,
        holdings: Holdings,
        intake: Intake,
        routes: Routes[Endpoint],
        payloads: Payloads,
        room: ReadBudget,
        schema: str,
        subscription: str,
        *,
        signals: Signals,
    ) -> None:
        self._holdings = holdings
        self._intake = intake
        self._routes = routes
        self._payloads = payloads
        self._room = room
        self._chains, self._rows = CHAINS, ROWS  # fewer after a statement that took too long
        self._schema = schema
        self._subscription = subscription
        self._signals = signals

    def run_blocked(self, conn: Connection[Any], me: UUID | None) -> None:
        """Heads of blocked keys that may run now."""
        now = time.monotonic()
        with self._holdings.lock:
            if (wakeup := self._holdings.next_wakeup()) is None or wakeup > now:
                return
            left = self._room.left(self._holdings.partitions.values())
            found = [_Found(*each) for each in self._holdings.awake(now, self._chains)] if left > 0 else []
        if not found or me is None:
            return
        try:
            bodies, left_out = self._bodies(conn, _heads_first(found), left)
            self._chains = min(CHAINS, self._chains + 1)
            found = [self._cut(each, left_out) for each in found] if left_out else found
            found = [each for each in found if each.rows]
            suspects = [(each.partition, each.rows[0]) for each in found if each.rows[0].charged]
            dead = self._charge(conn, me, suspects, bodies)
        except BaseException as error:
            if isinstance(error, (QueryCanceled, HungError)):
                self._chains = max(1, len(found) // 2)
            with self._holdings.lock:
                for each in found:
                    self._holdings.unload(*each)
            raise
        buried = []
        with self._holdings.lock:
            for partition, key, rows in found:
                if rows[0].id in dead:
                    buried += self._bury(partition, rows[0], bodies[rows[0].id])
                else:
                    self._intake.chain(partition, key, rows, bodies)
        self._intake.tell(buried)

    def run_due(self, conn: Connection[Any], me: UUID | None, numbers: Collection[int]) -> bool:
        """Rows of these partitions that block nothing and are due; whether there may be more."""
        with self._holdings.lock:
            held = {number: self._holdings.partitions.get(number) for number in numbers}
            mine = {
                number: partition
                for number, partition in held.items()
                if partition and not partition.stopping and partition.may_begin()
            }
            taken = [id for partition in mine.values() for id in (*partition.parked.taken, *partition.parked.deleting)]
            left = self._room.left(self._holdings.partitions.values()) if mine else 0
        room = min(self._rows, IN_MEMORY - len(taken))
        if left <= 0 or me is None or room <= 0:
            return False
        due = parked.due(conn, self._schema, self._subscription, list(mine), taken, room)
        wanted = [(each.partition, each.record_id) for each in due]
        try:
            bodies, left_out = self._bodies(conn, wanted, left) if wanted else ({}, set())
        except (QueryCanceled, HungError):
            self._rows = max(1, len(wanted) // 2)
            raise
        self._rows = min(ROWS, self._rows + 1)
        stored = [each for each in due if each.record_id not in left_out]
        with self._holdings.lock:
            found = [
                (mine[each.partition], each, mine[each.partition].parked.due(each))
                for each in stored
                if each.record_id not in mine[each.partition].parked.taken  # parked and committed while it was asked
            ]
            # An accused one runs alone, so it is asked for first: else it would wait for all the others.
            accused_first = sorted(found, key=lambda each: not each[2].accused)
            admitted = {each[2].id for each in accused_first if self._admit(*each)}
            complete = len(due) < room and not left_out and len(admitted) == len(found)
            found = [each for each in found if each[2].id in admitted]
        suspects = [(partition, row) for partition, _, row in found if row.charged]
        try:
            dead = self._charge(conn, me, suspects, bodies)
        except BaseException:
            with self._holdings.lock:
                for _, row in suspects:
                    row.charged = False
            raise
        buried = []
        with self._holdings.lock:
            for partition, each, row in found:
                if row.id in dead:
                    buried += self._bury(partition, row, bodies[row.id])
                elif not partition.stopping:
                    self._intake.due(partition, each, row, bodies)
            for partition in mine.values():
                partition.parked.due_read |= complete
        self._intake.tell(buried)
        return len(due) == room or bool(left_out)

    def _bodies(
        self, conn: Connection[Any], wanted: Sequence[tuple[int, int]], left: int
    ) -> tuple[dict[int, Row], set[int]]:
        """The records of these by id, and the ids of those that are left out because they are large."""
        bodies = {row[ID]: row for row in records.bodies(conn, self._schema, wanted)}
        large = {row[PLACE] for row in records.left_out(list(bodies.values()))}
        if not large:
            return bodies, set()
        got = self._payloads.fetch(conn, [pair for pair in wanted if pair in large], left)
        for pair in large:
            if (whole := got.get(pair)) is None:
                del bodies[pair[1]]
            else:
                bodies[pair[1]] = whole
        return bodies, {pair[1] for pair in large if pair not in got}

    def _cut(self, found: _Found, left_out: set[int]) -> _Found:
        """What of a chain there is before the first that is left out; the rest waits again."""
        rows = list(takewhile(lambda row: row.id not in left_out, found.rows))
        if len(rows) < len(found.rows):
            with self._holdings.lock:
                self._holdings.unload(found.partition, found.key, found.rows[len(rows) :])
        return found._replace(rows=rows)

    def _admit(self, partition: Partition, stored: Stored, row: ParkedRow) -> bool:
        """Whether the row may go on now: a suspect that would be charged only when it is its turn. Lock held."""
        return not self._wants_turn(partition, stored, row) or self._holdings.charges.admit(partition, None, row)

    @staticmethod
    def _wants_turn(partition: Partition, stored: Stored, row: ParkedRow) -> bool:
        """Dead ones go to the hook, and those whose key is blocked are held: neither runs."""
        if not row.suspect or stored.state == "dead":
            return False
        chain = (
            partition.parked.chains.get((stored.aggregate_type, stored.aggregate_id)) if stored.aggregate_id else None
        )
        return chain is None or chain.caught_up()

    def _charge(
        self,
        conn: Connection[Any],
        me: UUID,
        suspects: Sequence[tuple[Partition, ParkedRow]],
        bodies: dict[int, Row],
    ) -> set[int]:
        """Charge these, but for those whose attempts are used up: the ids of these."""
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
            [_charged(partition, row, bodies[row.id]) for partition, row in charged],
        )
        lost = [partition for number, partition in partitions.items() if number not in mine]
        if lost:
            self._signals.lost(lost)
            return self._charge(conn, me, [each for each in charged if each[0] not in lost], bodies) | dead
        with self._holdings.lock:
            for partition, row in charged:
                partition.suspects.charged(row)
        return dead

    def _used_up(self, row: ParkedRow, body: Row) -> bool:
        most = self._routes[body[ROUTE]].handler.max_attempts
        return most is not None and row.attempts >= most

    def _bury(self, partition: Partition, row: ParkedRow, body: Row) -> list[tuple[DeliveredEvent, Verdict]]:
        """Its process died each time it ran: it is dead without another try. Lock held."""
        return [] if partition.stopping else [self._intake.dead(partition, row, body)]


def _heads_first(found: Sequence[_Found]) -> list[tuple[int, int]]:
    """(partition, id) of all these rows: the first of every key, then the second of every one."""
    ranked = sorted((rank, row.id, each.partition.number) for each in found for rank, row in enumerate(each.rows))
    return [(number, id) for _, id, number in ranked]


def _charged(partition: Partition, row: ParkedRow, body: Row) -> Park:
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
