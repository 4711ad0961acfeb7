"""Brings back parked records: heads of blocked keys that may run with what may follow them, and rows that are due.

A suspect is charged before it runs, by the fenced save, in autocommit: so the charge is there before it starts.
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
from partbox.db.delivery import cursors, parked, records
from partbox.events import DeliveredEvent
from partbox.events.record import AGGREGATE_ID, AGGREGATE_TYPE, EVENT_TYPE, ID, PLACE, ROUTE, left_out
from partbox.protocol.parking import ParkedRow, RowState
from partbox.protocol.rows import Park, Saving, Stored
from partbox.protocol.verdict import Verdict
from partbox.worker.context import Context
from partbox.worker.engine.key import Key, keyed
from partbox.worker.engine.partition import Partition
from partbox.worker.poller.intake import Intake
from partbox.worker.poller.payload_fetch import Payloads

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

    def __init__(self, context: Context, intake: Intake, payloads: Payloads) -> None:
        self._context = context
        self._engine = context.engine
        self._intake = intake
        self._payloads = payloads
        self._room = context.engine.credits._budget
        self._chains, self._rows = CHAINS, ROWS  # fewer after a statement that took too long
        self._schema = context.schema

    def run_blocked(self, conn: Connection[Any], me: UUID | None) -> None:
        """Heads of blocked keys that may run now."""
        now = time.monotonic()
        with self._engine.lock:  # whoever parks or saves meanwhile changes which heads there are
            if (wakeup := self._engine.next_wakeup()) is None or wakeup > now:
                return
            left = self._room.left(self._engine.partitions.values())
            found = [_Found(*each) for each in self._engine.awake(now, self._chains)] if left > 0 else []
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
            with self._engine.lock:  # a row is loaded and its key asleep, or neither
                for each in found:
                    self._engine.unload(*each)
            raise
        buried = []
        with self._engine.lock:  # a row is in its lane before anybody asks whether its key is caught up
            for partition, key, rows in found:
                if rows[0].id in dead:
                    buried += self._bury(partition, rows[0], bodies[rows[0].id])
                else:
                    self._intake.chain(partition, key, rows, bodies)
        self._intake.tell(buried)

    def run_due(self, conn: Connection[Any], me: UUID | None, numbers: Collection[int]) -> bool:
        """Rows of these partitions that block nothing and are due; True if there may be more."""
        with self._engine.lock:  # what is taken, and what a save deletes, belong to one moment
            held = {number: self._engine.partitions.get(number) for number in numbers}
            mine = {number: each for number, each in held.items() if each and not each.stopping and each.may_begin()}
            taken = [id for partition in mine.values() for id in (*partition.parked.taken, *partition.parked.deleting)]
            left = self._room.left(self._engine.partitions.values()) if mine else 0
        room = min(self._rows, IN_MEMORY - len(taken))
        if left <= 0 or me is None or room <= 0:
            return False
        stored = parked.due(conn, self._schema, self._context.subscription, list(mine), taken, room)
        bodies, left_out = self._bodies_of_due(conn, stored, left)
        with self._engine.lock:  # a turn is given once
            due = [
                _Due(mine[each.partition], each, mine[each.partition].parked.due(each))
                for each in stored
                if each.record_id not in left_out
                and each.record_id not in mine[each.partition].parked.taken  # parked and committed while it was asked
            ]
            # An accused one runs alone, so it is asked for first: else it would wait for all the others.
            accused_first = sorted(due, key=lambda each: not each.row.accused)
            admitted_ids = {each.row.id for each in accused_first if self._admit(*each)}
            admitted = [each for each in due if each.row.id in admitted_ids]
        suspects = [(each.partition, each.row) for each in admitted if each.row.charged]
        try:
            dead = self._charge(conn, me, suspects, bodies)
        except BaseException:
            with self._engine.lock:  # guards parked rows: these were not charged, so another read may take them
                for _, row in suspects:
                    row.end_turn()
            raise
        whole = len(stored) < room and not left_out
        self._hand_over(admitted, dead, bodies, read=mine.values() if whole and len(admitted) == len(due) else ())
        return not whole

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

    def _charge(
        self, conn: Connection[Any], me: UUID, suspects: Sequence[tuple[Partition, ParkedRow]], bodies: dict[int, Row]
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
            self._context.subscription,
            me,
            [Saving(each.number, each.epoch, None, None, None, False) for each in partitions.values()],
            [_charge_of(partition, row, bodies[row.id]) for partition, row in charged],
        )
        lost = [partition for number, partition in partitions.items() if number not in mine]
        if lost:
            self._context.signals.lost(lost)
            return self._charge(conn, me, [each for each in charged if each[0] not in lost], bodies) | dead
        with self._engine.lock:  # guards the suspects and the attempts of parked rows
            for partition, row in charged:
                partition.suspects.charged(row)
        return dead

    def _used_up(self, row: ParkedRow, body: Row) -> bool:
        most = self._context.routes[body[ROUTE]].handler.max_attempts
        return most is not None and row.attempts >= most

    def _hand_over(
        self, due: Sequence[_Due], dead: Container[int], bodies: dict[int, Row], *, read: Iterable[Partition]
    ) -> None:
        """These run, or are `dead`; of the partitions in `read` there are no more."""
        buried = []
        with self._engine.lock:  # as in `run_blocked`
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
        large = {row[PLACE] for row in left_out(list(bodies.values()))}
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
            with self._engine.lock:  # a row is loaded and its key asleep, or neither
                self._engine.unload(found.partition, found.key, found.rows[len(rows) :])
        return found._replace(rows=rows)

    def _admit(self, partition: Partition, stored: Stored, row: ParkedRow) -> bool:
        """True if the row may go on now: a suspect that would be charged only when it is its turn. Lock held.

        Dead ones go to the hook, and those whose key is blocked are held: neither runs.
        """
        if not row.suspect or row.state is RowState.DEAD:
            return True
        key = keyed(stored.aggregate_type, stored.aggregate_id) if stored.aggregate_id else None
        chain = None if key is None else partition.parked.chains.get(key)
        if chain is not None and not chain.caught_up():
            return True
        return self._engine.charges.admit(partition, None, row)

    def _bury(self, partition: Partition, row: ParkedRow, body: Row) -> list[tuple[DeliveredEvent, Verdict]]:
        """Its process died each time it ran: it is dead without another try. Lock held."""
        return [] if partition.stopping else [self._intake.dead(partition, row, body)]


def _charge_of(partition: Partition, row: ParkedRow, body: Row) -> Park:
    return Park(
        partition.number,
        row.id,
        body[AGGREGATE_TYPE],
        body[AGGREGATE_ID],
        body[EVENT_TYPE],
        RowState.READY,
        blocks=row.blocks,
        attempts=row.attempts + 1,
        delay=None if row.blocks else 0.0,  # what blocks nothing is found by its due time
        new=False,
        charge=True,
    )


def _heads_first(found: Sequence[_Found]) -> list[tuple[int, int]]:
    """(partition, id) of all these rows: the first of every key, then the second of every one."""
    ranked = sorted((rank, row.id, each.partition.number) for each in found for rank, row in enumerate(each.rows))
    return [(number, id) for _, id, number in ranked]
