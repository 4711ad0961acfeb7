"""Brings back parked records: heads of blocked keys that may run with what may follow them, and rows that are due.

Whose turn it is the engine says (`engine.parked_turns`); here their records are fetched, and suspects are charged by
the fenced save, in autocommit: so the charge is there before they run.
"""

import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any
from uuid import UUID

from psycopg import Connection
from psycopg.errors import QueryCanceled

from partbox.db.blocking import Row
from partbox.db.deadline import HungError
from partbox.db.delivery import cursors, parked, records
from partbox.events.record import CANCELLING, ID, PLACE, ROUTE, left_out
from partbox.protocol.parking import RowState
from partbox.protocol.rows import Stored
from partbox.protocol.verdict import Verdict
from partbox.worker.context import Context
from partbox.worker.engine.parked_turns import Buried, Suspected, Woken
from partbox.worker.poller.payload_fetch import Payloads
from partbox.worker.reports.outcomes import Reports

CHAINS = 50  # blocked keys at a time
ROWS = 200  # rows that block nothing, at a time
IN_MEMORY = 400  # of these


class ParkedReader:
    """Fetches the records of parked rows whose time has come. The poller's thread only."""

    def __init__(self, context: Context, payloads: Payloads, reports: Reports) -> None:
        self._context = context
        self._turns = context.engine.turns
        self._letters = context.engine.letters
        self._payloads = payloads
        self._reports = reports
        self._chains, self._rows = CHAINS, ROWS  # fewer after a statement that took too long
        self._schema = context.schema

    def run_blocked(self, conn: Connection[Any], me: UUID | None) -> None:
        """Run the heads of blocked keys that may run now, and what may follow them."""
        if me is None:
            return
        woken, left = self._turns.wake(time.monotonic(), self._chains)
        if not woken:
            return
        asked_for = len(woken)
        try:
            bodies, left_out = self._bodies(conn, _heads_first(woken), left)
            self._chains = min(CHAINS, self._chains + 1)
            woken = self._turns.cut(woken, left_out) if left_out else woken
            suspects = [Suspected(each.partition, each.rows[0]) for each in woken if each.rows[0].charged]
            dead = self._charge(conn, me, suspects, bodies)
        except BaseException as error:
            if isinstance(error, (QueryCanceled, HungError)):
                self._chains = max(1, asked_for // 2)
            self._turns.put_back(woken)
            raise
        self._tell(self._turns.queue(woken, bodies, dead))

    def run_due(self, conn: Connection[Any], me: UUID | None, numbers: Collection[int]) -> bool:
        """Run rows of these partitions that block nothing and are due; True if there may be more."""
        asked = self._turns.may_fetch_due(numbers, self._rows // 2)
        room = min(self._rows, IN_MEMORY + asked.in_line - len(asked.taken))
        if asked.bytes <= 0 or me is None or room <= 0:
            return False
        asked = asked._replace(early=asked.early[:room])
        subscription, letters = self._context.subscription, self._letters.room(time.monotonic())
        numbers = list(asked.partitions)
        stored = parked.due(conn, self._schema, subscription, numbers, asked.taken, asked.early, room, letters)
        bodies, left_out = self._bodies_of_due(conn, stored, asked.bytes)
        kept_back = self._kept_back(conn, stored, bodies)
        due, all_admitted = self._turns.admit(asked, stored, left_out | kept_back, time.monotonic())
        suspects = [Suspected(each.partition, each.row) for each in due if each.row.charged]
        try:
            dead = self._charge(conn, me, suspects, bodies)
        except BaseException:
            self._turns.hand_back(suspects)
            raise
        owed = sum(each.state == RowState.DEAD for each in stored)
        is_whole = len(stored) - owed < room and owed < (letters or 1) and not left_out and not kept_back
        read = asked.partitions.values() if is_whole and all_admitted else ()
        self._tell(self._turns.queue_due(due, bodies, dead, read))
        return not is_whole or bool(asked.early)

    def _bodies_of_due(
        self, conn: Connection[Any], stored: Sequence[Stored], left: int
    ) -> tuple[dict[int, Row], set[int]]:
        """Fetch these as `_bodies` does; fewer rows are asked for after a statement that took too long."""
        wanted = [(each.partition, each.record_id) for each in stored]
        try:
            found = self._bodies(conn, wanted, left) if wanted else ({}, set())
        except (QueryCanceled, HungError):
            self._rows = max(1, len(wanted) // 2)
            raise
        self._rows = min(ROWS, self._rows + 1)
        return found

    def _kept_back(self, conn: Connection[Any], stored: Sequence[Stored], bodies: Mapping[int, Row]) -> set[int]:
        """The ids of delayed records that do not run now, for they are cancelled or about to be."""
        scheduled = (each.record_id for each in stored if each.state == RowState.SCHEDULED and each.record_id in bodies)
        doubtful = {id for id in scheduled if bodies[id][CANCELLING]}
        if not doubtful:
            return doubtful
        return doubtful - parked.may_start(conn, self._schema, self._context.subscription, sorted(doubtful))

    def _charge(
        self, conn: Connection[Any], me: UUID, suspects: Sequence[Suspected], bodies: Mapping[int, Row]
    ) -> dict[int, Verdict]:
        """Charge these, but for those whose attempts are used up: the verdicts on them by id, they are dead."""
        there = [each for each in suspects if each.row.id in bodies]
        dead = {each.row.id: verdict for each in there if (verdict := self._perished(each, bodies)) is not None}
        charged = [each for each in there if each.row.id not in dead]
        if not charged:
            return dead
        charge = self._turns.charge(charged, bodies)
        subscription = self._context.subscription
        mine, _ = cursors.save(conn, self._schema, subscription, me, charge.cursors, charge.parks)
        lost = {each.partition for each in charged if each.partition.number not in mine}
        if lost:
            self._context.signals.lost([partition.tenure for partition in lost])
            return self._charge(conn, me, [each for each in charged if each.partition not in lost], bodies) | dead
        self._turns.charged(charged)
        return dead

    def _perished(self, suspect: Suspected, bodies: Mapping[int, Row]) -> Verdict | None:
        """The verdict on one whose process died at each of its attempts; None if it has another attempt."""
        row, endpoint = suspect.row, self._context.routes[bodies[suspect.row.id][ROUTE]]
        most = endpoint.handler.max_attempts
        return endpoint.perished(row.attempts) if row.accused and most is not None and row.attempts >= most else None

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
                bodies[pair[1]] = (*whole, bodies[pair[1]][CANCELLING])
        return bodies, {pair[1] for pair in large if pair not in got}

    def _tell(self, buried: Sequence[Buried]) -> None:
        for event, verdict in buried:
            self._reports.parked(event, verdict)


def _heads_first(woken: Sequence[Woken]) -> list[tuple[int, int]]:
    """(partition, id) of all these rows: the first of every key, then the second of every one."""
    ranked = sorted((rank, row.id, each.partition.number) for each in woken for rank, row in enumerate(each.rows))
    return [(number, id) for _, id, number in ranked]
