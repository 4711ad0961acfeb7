"""The parked reader: fetches the records of parked rows that may run now. Two kinds of rows come back: heads of blocked
keys with the rows that may follow them, and due rows that block nothing."""

import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from math import ceil
from typing import Any
from uuid import UUID

from psycopg import Connection
from psycopg.errors import QueryCanceled

from partbox.db.blocking import Row
from partbox.db.deadline import HungError
from partbox.db.delivery import cursors, parked, records
from partbox.events.record import ID, LOG_POSITION, MAY_BE_CANCELLED, ROUTE, list_incomplete
from partbox.protocol.parking import RowState
from partbox.protocol.rows import StoredRow
from partbox.protocol.verdict import Verdict
from partbox.worker.context import Context
from partbox.worker.engine.parked_scheduler import BuriedEvent, SuspectRow, WokenKey
from partbox.worker.poller.payload_fetch import PayloadFetcher
from partbox.worker.reports.outcomes import EventReports

# The limits of one fetch: blocked keys, and rows that block nothing. At most `MAX_IN_MEMORY` of the latter are in
# memory.
MAX_CHAINS = 1_000
MAX_ROWS = 4_000
MAX_IN_MEMORY = 8_000
# The least number of due rows that a fetch takes of a partition. A few rows may have to wait for their turn, and the
# others behind them must not.
MIN_SHARE = 50


class ParkedReader:
    """A reader of events that have failed or were delayed, and are due to run again.

    These events were set aside (parked) in rows of their own. Only the poller's thread uses this class. The engine
    decides whose turn it is (`engine.parked_scheduler`)."""

    def __init__(self, context: Context, payloads: PayloadFetcher, reports: EventReports) -> None:
        self._context = context
        self._parked_scheduler = context.engine.parked_scheduler
        self._dead_letters = context.engine.dead_letters
        self._payloads = payloads
        self._reports = reports
        # Both are halved after a statement that took too long, and grow by a quarter with each success.
        self._chain_limit, self._row_limit = MAX_CHAINS, MAX_ROWS
        self._schema = context.schema

    def fetch_blocked(self, conn: Connection[Any], me: UUID | None) -> None:
        """Fetch and queue the events that may run again now and that hold up later events of the same key."""
        # These events are parked, which means set aside in rows of their own.
        # The later events of the key that may follow them are fetched and queued too.
        if me is None:
            return
        woken, bytes_left = self._parked_scheduler.take_due_keys(time.monotonic(), self._chain_limit)
        if not woken:
            return
        requested = len(woken)
        try:
            bodies, list_incomplete = self._fetch_bodies(conn, _sort_heads_first(woken), bytes_left)
            self._chain_limit = min(MAX_CHAINS, self._chain_limit + self._chain_limit // 4 + 1)
            woken = self._parked_scheduler.drop_left_out(woken, list_incomplete) if list_incomplete else woken
            suspects = [SuspectRow(each.partition, each.rows[0]) for each in woken if each.rows[0].is_charged]
            dead = self._charge_suspects(conn, me, suspects, bodies)
        except BaseException as error:
            if isinstance(error, (QueryCanceled, HungError)):
                self._chain_limit = max(1, requested // 2)
            self._parked_scheduler.put_back(woken)
            raise
        self._report_buried(self._parked_scheduler.queue_woken(woken, bodies, dead))

    def refill_spilled(self, conn: Connection[Any], me: UUID | None) -> bool:
        """Insert rows for the next events of keys that left events in the log and go on. Return True if there are."""
        if me is None:
            return False
        has_rows = False
        requests = self._parked_scheduler.take_refills(self._context.engine.intake.wanted_types)
        for at, request in enumerate(requests):
            try:
                refilled = parked.refill(conn, self._schema, self._context.subscription, me, request.refill)
            except BaseException:
                self._parked_scheduler.put_back_refills(requests[at:])
                raise
            if refilled is None:
                self._context.signals.report_refused([request.partition.tenure])
            else:
                self._parked_scheduler.note_refilled(request, refilled)
                has_rows = has_rows or any(each.record_ids for each in refilled)
        return has_rows

    def fetch_due(self, conn: Connection[Any], me: UUID | None, numbers: Collection[int]) -> bool:
        """Fetch and queue the set-aside events that are due and hold up no other event. Return True if there may be
        more."""
        # These events are parked, which means set aside in rows of their own.
        # Only the partitions `numbers` are searched.
        asked = self._parked_scheduler.build_due_query(numbers, self._row_limit // 2)
        most = MAX_IN_MEMORY + asked.in_line_count - len(asked.ids_in_memory)
        room = min(self._row_limit, most, asked.fitting)
        if asked.free_bytes <= 0 or me is None or room <= 0:
            return False
        asked = asked._replace(early_ids=asked.early_ids[:room])
        subscription, dead_letters = self._context.subscription, self._dead_letters.count_room(time.monotonic())
        numbers = list(asked.partitions)
        share = max(MIN_SHARE, ceil(room / max(1, len(numbers))))
        stored = parked.load_due(
            conn, self._schema, subscription, numbers, asked.ids_in_memory, asked.early_ids, room, share, dead_letters
        )
        bodies, list_incomplete = self._fetch_due_bodies(conn, stored, asked.free_bytes)
        # A record that is about to be cancelled is left out as a large payload is: another fetch decides about it.
        cancelled = self._find_cancelled(conn, stored, bodies)
        due, all_admitted = self._parked_scheduler.admit_due(
            asked, stored, list_incomplete | cancelled, time.monotonic()
        )
        suspects = [SuspectRow(each.partition, each.row) for each in due if each.row.is_charged]
        try:
            dead = self._charge_suspects(conn, me, suspects, bodies)
        except BaseException:
            self._parked_scheduler.return_suspects(suspects)
            raise
        dead_letter_count = sum(each.state == RowState.DEAD for each in stored)
        counts = Counter(each.partition for each in stored if each.state != RowState.DEAD)
        # Partitions may count as read only if every due row came and was admitted.
        is_whole = (
            len(stored) - dead_letter_count < room
            and max(counts.values(), default=0) < share
            and dead_letter_count < (dead_letters or 1)
            and not list_incomplete
            and not cancelled
        )
        read = asked.partitions.values() if is_whole and all_admitted else ()
        self._report_buried(self._parked_scheduler.queue_due(due, bodies, dead, read))
        return not is_whole or bool(asked.early_ids)

    def _fetch_due_bodies(
        self, conn: Connection[Any], stored: Sequence[StoredRow], bytes_left: int
    ) -> tuple[dict[int, Row], set[int]]:
        wanted = [(each.partition, each.record_id) for each in stored]
        try:
            found = self._fetch_bodies(conn, wanted, bytes_left) if wanted else ({}, set())
        except (QueryCanceled, HungError):
            self._row_limit = max(1, len(wanted) // 2)
            raise
        self._row_limit = min(MAX_ROWS, self._row_limit + self._row_limit // 4 + 1)
        return found

    def _find_cancelled(
        self, conn: Connection[Any], stored: Sequence[StoredRow], bodies: Mapping[int, Row]
    ) -> set[int]:
        # Returned are the ids of scheduled events that must not start because they are cancelled.
        # An event whose cancellation is about to commit counts as cancelled too.
        scheduled = (each.record_id for each in stored if each.state == RowState.SCHEDULED and each.record_id in bodies)
        cancelling = {id for id in scheduled if bodies[id][MAY_BE_CANCELLED]}
        if not cancelling:
            return cancelling
        return cancelling - parked.find_startable(conn, self._schema, self._context.subscription, sorted(cancelling))

    def _charge_suspects(
        self, conn: Connection[Any], me: UUID, suspects: Sequence[SuspectRow], bodies: Mapping[int, Row]
    ) -> dict[int, Verdict]:
        # One more attempt is counted for each event that may have killed its process, before the event runs again. The
        # fenced save does this in autocommit, so the charge is committed first.
        # Returned are the verdicts on suspects without attempts left, by record id.
        with_body = [each for each in suspects if each.row.id in bodies]
        dead = {
            each.row.id: verdict
            for each in with_body
            if (verdict := self._find_exhausted_verdict(each, bodies)) is not None
        }
        charged = [each for each in with_body if each.row.id not in dead]
        if not charged:
            return dead
        charge = self._parked_scheduler.build_charge(charged, bodies)
        subscription = self._context.subscription
        owned, _ = cursors.save(conn, self._schema, subscription, me, charge.cursors, charge.parks)
        lost = {each.partition for each in charged if each.partition.number not in owned}
        if lost:
            # The save refused these partitions, so the charge is tried again without them.
            self._context.signals.report_refused([partition.tenure for partition in lost])
            return (
                self._charge_suspects(conn, me, [each for each in charged if each.partition not in lost], bodies) | dead
            )
        self._parked_scheduler.note_charged(charged)
        return dead

    def _find_exhausted_verdict(self, suspect: SuspectRow, bodies: Mapping[int, Row]) -> Verdict | None:
        # The verdict is for an event whose process died at each allowed attempt. It is None if an attempt is left.
        row, endpoint = suspect.row, self._context.routes[bodies[suspect.row.id][ROUTE]]
        most = endpoint.handler.max_attempts
        return (
            endpoint.build_crash_verdict(row.attempts)
            if row.is_accused and most is not None and row.attempts >= most
            else None
        )

    def _fetch_bodies(
        self, conn: Connection[Any], wanted: Sequence[tuple[int, int]], bytes_left: int
    ) -> tuple[dict[int, Row], set[int]]:
        # At most `bytes_left` bytes of large payloads are fetched.
        # Returned are the records by id, and the ids left out because their payloads did not fit.
        bodies = {row[ID]: row for row in records.load_bodies(conn, self._schema, wanted)}
        large = {row[LOG_POSITION] for row in list_incomplete(list(bodies.values()))}
        if not large:
            return bodies, set()
        fetched = self._payloads.fetch_payloads(conn, [pair for pair in wanted if pair in large], bytes_left)
        for pair in large:
            # None in `fetched` means that the record is gone; a pair missing there did not fit.
            if (full_row := fetched.get(pair)) is None:
                del bodies[pair[1]]
            else:
                bodies[pair[1]] = (*full_row, bodies[pair[1]][MAY_BE_CANCELLED])
        return bodies, {pair[1] for pair in large if pair not in fetched}

    def _report_buried(self, buried: Sequence[BuriedEvent]) -> None:
        for event, verdict in buried:
            self._reports.report_parked(event, verdict)


def _sort_heads_first(woken: Sequence[WokenKey]) -> list[tuple[int, int]]:
    # The first row of every key precedes the second of any key. A row is given as (partition, id).
    ranked = sorted((rank, row.id, each.partition.number) for each in woken for rank, row in enumerate(each.rows))
    return [(number, id) for _, id, number in ranked]
