"""Brings back parked records: heads of blocked keys that may run with what may follow them, and rows that are due.

A suspect is charged first (`charging`).
"""

import time
from collections.abc import Collection, Container, Iterable, Sequence
from itertools import takewhile
from typing import Any, NamedTuple
from uuid import UUID

from psycopg import Connection
from psycopg.errors import QueryCanceled

from partbox.db.blocking import Row
from partbox.db.deadline import HungError
from partbox.db.delivery import parked, records
from partbox.db.delivery.parked import Stored
from partbox.events import DeliveredEvent
from partbox.events.record import ID, PLACE
from partbox.protocol.parking import ParkedRow
from partbox.protocol.verdict import Verdict
from partbox.worker.reading.charging import Charging
from partbox.worker.reading.intake import Intake
from partbox.worker.reading.payloads import Payloads
from partbox.worker.reading.read_budget import ReadBudget
from partbox.worker.state.holdings import Holdings
from partbox.worker.state.key import Key, keyed
from partbox.worker.state.partition import Partition

CHAINS = 50  # blocked keys at a time
ROWS = 200  # rows that block nothing, at a time
IN_MEMORY = 400  # of these


class _Found(NamedTuple):
    partition: Partition
    key: Key
    rows: list[ParkedRow]


class _Due(NamedTuple):
    partition: Partition
    stored: Stored
    row: ParkedRow


class ParkedReader:
    """Fetches the bodies of parked rows whose time has come. The poller's thread only."""

    def __init__(
        self,
        holdings: Holdings,
        intake: Intake,
        payloads: Payloads,
        room: ReadBudget,
        charging: Charging,
        schema: str,
        subscription: str,
    ) -> None:
        self._holdings = holdings
        self._intake = intake
        self._payloads = payloads
        self._room = room
        self._charging = charging
        self._chains, self._rows = CHAINS, ROWS  # fewer after a statement that took too long
        self._schema = schema
        self._subscription = subscription

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
            dead = self._charging.charge(conn, me, suspects, bodies)
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
        """Rows of these partitions that block nothing and are due; True if there may be more."""
        with self._holdings.lock:
            mine = self._begun(numbers)
            taken = [id for partition in mine.values() for id in (*partition.parked.taken, *partition.parked.deleting)]
            left = self._room.left(self._holdings.partitions.values()) if mine else 0
        room = min(self._rows, IN_MEMORY - len(taken))
        if left <= 0 or me is None or room <= 0:
            return False
        stored = parked.due(conn, self._schema, self._subscription, list(mine), taken, room)
        bodies, left_out = self._bodies_of_due(conn, stored, left)
        with self._holdings.lock:
            due = [
                _Due(mine[each.partition], each, mine[each.partition].parked.due(each))
                for each in stored
                if each.record_id not in left_out
                and each.record_id not in mine[each.partition].parked.taken  # parked and committed while it was asked
            ]
            admitted = self._admitted(due)
        dead = self._charge_due(conn, me, admitted, bodies)
        whole = len(stored) < room and not left_out
        self._hand_over(admitted, dead, bodies, read=mine.values() if whole and len(admitted) == len(due) else ())
        return not whole

    def _begun(self, numbers: Collection[int]) -> dict[int, Partition]:
        """Those of them that are mine, and in which something may start. Lock held."""
        held = {number: self._holdings.partitions.get(number) for number in numbers}
        return {number: each for number, each in held.items() if each and not each.stopping and each.may_begin()}

    def _bodies_of_due(
        self, conn: Connection[Any], stored: Sequence[Stored], left: int
    ) -> tuple[dict[int, Row], set[int]]:
        """As `_bodies`; fewer rows are asked for after a statement that took too long."""
        wanted = [(each.partition, each.record_id) for each in stored]
        try:
            found = self._bodies(conn, wanted, left) if wanted else ({}, set())
        except (QueryCanceled, HungError):
            self._rows = max(1, len(wanted) // 2)
            raise
        self._rows = min(ROWS, self._rows + 1)
        return found

    def _admitted(self, due: Sequence[_Due]) -> list[_Due]:
        """Those of them that may go on now. Lock held.

        An accused one runs alone, so it is asked for first: else it would wait for all the others.
        """
        accused_first = sorted(due, key=lambda each: not each.row.accused)
        admitted = {each.row.id for each in accused_first if self._admit(*each)}
        return [each for each in due if each.row.id in admitted]

    def _charge_due(self, conn: Connection[Any], me: UUID, due: Sequence[_Due], bodies: dict[int, Row]) -> set[int]:
        suspects = [(each.partition, each.row) for each in due if each.row.charged]
        try:
            return self._charging.charge(conn, me, suspects, bodies)
        except BaseException:
            with self._holdings.lock:
                for _, row in suspects:
                    row.charged = False
            raise

    def _hand_over(
        self, due: Sequence[_Due], dead: Container[int], bodies: dict[int, Row], *, read: Iterable[Partition]
    ) -> None:
        """These run, or are `dead`; of the partitions in `read` there are no more."""
        buried = []
        with self._holdings.lock:
            for partition, stored, row in due:
                if row.id in dead:
                    buried += self._bury(partition, row, bodies[row.id])
                elif not partition.stopping:
                    self._intake.due(partition, stored, row, bodies)
            for partition in read:
                partition.parked.due_read = True
        self._intake.tell(buried)

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
        """Keep of a chain what comes before the first that is left out; the rest waits again."""
        rows = list(takewhile(lambda row: row.id not in left_out, found.rows))
        if len(rows) < len(found.rows):
            with self._holdings.lock:
                self._holdings.unload(found.partition, found.key, found.rows[len(rows) :])
        return found._replace(rows=rows)

    def _admit(self, partition: Partition, stored: Stored, row: ParkedRow) -> bool:
        """True if the row may go on now: a suspect that would be charged only when it is its turn. Lock held."""
        return not self._wants_turn(partition, stored, row) or self._holdings.charges.admit(partition, None, row)

    @staticmethod
    def _wants_turn(partition: Partition, stored: Stored, row: ParkedRow) -> bool:
        """Dead ones go to the hook, and those whose key is blocked are held: neither runs."""
        if not row.suspect or stored.state == "dead":
            return False
        chain = (
            partition.parked.chains.get(keyed(stored.aggregate_type, stored.aggregate_id))
            if stored.aggregate_id
            else None
        )
        return chain is None or chain.caught_up()

    def _bury(self, partition: Partition, row: ParkedRow, body: Row) -> list[tuple[DeliveredEvent, Verdict]]:
        """Its process died each time it ran: it is dead without another try. Lock held."""
        return [] if partition.stopping else [self._intake.dead(partition, row, body)]


def _heads_first(found: Sequence[_Found]) -> list[tuple[int, int]]:
    """(partition, id) of all these rows: the first of every key, then the second of every one."""
    ranked = sorted((rank, row.id, each.partition.number) for each in found for rank, row in enumerate(each.rows))
    return [(number, id) for _, id, number in ranked]
