"""The log reader: decides for each step how the log is polled (the rules are in `partbox.protocol`).

Partitions that are caught up are polled quickly, and partitions just claimed have a poll of their own. All are polled
in full while some are behind."""

import time
from collections.abc import Callable
from typing import Any

from psycopg import Connection

from partbox.db.delivery import idle_check, records
from partbox.db.delivery.bell import bell_of
from partbox.db.delivery.idle_check import IdleCheck
from partbox.db.delivery.records import QuickPage
from partbox.events.record import PARTITION, PageStats, list_incomplete
from partbox.protocol import quick_poll as quick
from partbox.protocol.bell import BellPoll
from partbox.protocol.cursor import STRETCH, LateLimits
from partbox.protocol.horizon import Horizon, Page, Snapshot
from partbox.worker.context import Context
from partbox.worker.engine.intake import FetchedPage
from partbox.worker.engine.poll_groups import PollGroups
from partbox.worker.poller.full_poll import FullReader
from partbox.worker.poller.payload_fetch import PayloadFetcher

# Seconds for which the newest fence serves on a backlog, and for which the poller pauses while it waits for saves.
FENCE_SECONDS = 0.05
FULL_READ_INTERVAL = 0.01  # seconds
# Seconds after which partitions without new records are moved to the shared page.
FOLLOW_INTERVAL = 1.0


class LogReader:
    """The reader of new event records for the partitions of one process. Only the poller's thread uses it.

    `waits_for_saves`: all partitions have a backlog, and enough of it is in memory. `log_state`: the log at the last
    poll, or None if more may be readable."""

    def __init__(self, context: Context, payloads: PayloadFetcher) -> None:
        self._credits = context.engine.credits
        self._intake = context.engine.intake
        self._payloads = payloads
        self._schema = context.schema
        self._full_reader = FullReader(context, payloads)
        self.waits_for_saves = False
        self.log_state: BellPoll | None = None
        self.forget_session()

    def forget_session(self) -> None:
        """Forget all read positions and snapshots of the last database session."""
        # A server that has crashed or was restored may use ids and transaction ids again.
        self._horizon = Horizon()
        self._idle_checked_at = self._read_at = self._credit_at = self._followed_at = 0.0
        self._full_reader.forget_page_size()
        self._tick_check: IdleCheck | None = None
        # The check of the last read, if that found nothing.
        self._still_check: IdleCheck | None = None
        self._followed_page: Page | None = None
        self.discard_groups()

    def add_claimed(self, floor: int) -> None:
        """Begin to read a partition that this process has just taken over."""
        # `floor` is the lowest record id from which the partition's saved cursor reads.
        self._horizon.note_claimed_floor(floor)
        self.discard_groups()

    def discard_groups(self) -> None:
        """Make the next read sort the partitions anew into caught-up, lagging and newly claimed partitions."""
        # Some partitions may have come, gone, begun to drain, or changed their mode.
        self._groups: PollGroups | None = None

    def list_transactions(self) -> list[int]:
        """Return the ids of the database transactions that were still open at the last shared snapshot."""
        # All partitions share this snapshot. The periodic check of the database tests whether the transactions have
        # ended.
        return self._horizon.list_open_xids()

    def take_tick_check(self, tick_check: IdleCheck) -> None:
        """Store the result of a check for new records, so that the next read need not repeat the check."""
        # A periodic statement, the tick, has just made the check.
        # `tick_check` is the result of this statement. The next read then needs no check of its own.
        self._horizon.add_fence(tick_check.fence)
        self._idle_checked_at = time.monotonic()
        self._tick_check = tick_check

    def read(self, conn: Connection[Any], may_continue: Callable[[], bool] = lambda: False) -> bool:
        """Read new events from the log of events. Return True if any came."""
        # Further pages of a backlog are read while `may_continue` returns True.
        self.waits_for_saves = False
        self.log_state = None
        check, self._tick_check = self._tick_check, None
        still, self._still_check = self._still_check, None
        if self._credits.is_starved:
            self._full_reader.evict_slow(self._credits.recount_bytes())
        groups = self._groups or self._credits.group_partitions(self._horizon.shared_page)
        self._groups = None if groups.has_cut_page else groups
        self._credits.note_backlog(groups)
        if groups.caught_up and not groups.fresh and self._full_reader.is_calm and not self._is_full_read_due(groups):
            has_new = self._read_quickly(conn, groups, check or self._look_again(conn, still))
            if has_new is not None:
                return has_new
        self.discard_groups()
        self._read_at = time.monotonic()
        # Partitions just claimed have a statement of their own. Their first search begins at a saved cursor, may be
        # long, and would hold up the other partitions.
        if groups.fresh:
            check = self._check_idle(conn)
            request = self._full_reader.build_request(
                self._horizon, self._full_reader.take_credit(groups.fresh), alone=True
            )
            self._full_reader.read_pages(conn, self._horizon, request)
        has_new = bool(groups.together) and self._read_together(conn, groups, check, may_continue)
        return has_new or bool(groups.fresh)

    def _read_quickly(self, conn: Connection[Any], groups: PollGroups, check: IdleCheck | None) -> bool | None:
        # One cheap query reads the new records of the partitions that are up to date. The result is True if any came,
        # and None if a full poll is necessary.
        # After None, all partitions must be read in full instead.
        has_new = False
        if check is None or not self._horizon.is_idle(check.fence.drawn_id, check.has_ended):
            page = self._poll_quickly(conn, groups)
            if page is None:
                return None
            has_new, check = page
        self._advance_caught_up(groups)
        if not groups.behind:
            # The log is settled if no open transaction has drawn an id: nothing can appear below the drawn ids.
            settled = self._horizon.shared_page is not None and self._horizon.shared_page.floor == check.fence.drawn_id
            self.log_state = BellPoll(check.fence.drawn_id, settled, check.flag_up_for)
        self._still_check = None if has_new else check
        return has_new

    def _look_again(self, conn: Connection[Any], before: IdleCheck | None) -> IdleCheck | None:
        # After a read that found nothing, a cheap statement may show that there is still nothing. The result is a check
        # of now, or None if the log must be read.
        # A worker that hears the bell sleeps and ticks instead. Right after new records, more may come, and the
        # statement would be one more round trip on their way.
        if before is None or bell_of(conn) is not None or not self._horizon.is_idle(before.fence.drawn_id, False):
            return None
        if self._horizon.list_open_xids():
            return self._check_idle(conn)
        # No fence is made, because no id was drawn since the newest one.
        return before if idle_check.is_drawn_unchanged(conn, self._schema, before.fence.drawn_id) else None

    def _poll_quickly(self, conn: Connection[Any], groups: PollGroups) -> tuple[bool, IdleCheck] | None:
        # The result tells whether any record came, and has the poll's check for idleness. It is None if the page may be
        # incomplete; no cursor has moved then.
        shared, horizon = self._horizon.shared_page, self._horizon
        # Partitions are caught up only after they have read a shared page.
        assert shared is not None
        asked_at = time.monotonic()
        polled = records.read_new_records(conn, self._schema, shared, groups.caught_up_bits, self._intake.wanted_types)
        if not quick.has_found_all(len(polled.rows), polled.floor, polled.fence.drawn_id):
            return None
        wanted = self._intake.pass_unwanted(groups.caught_up, polled.rows)
        if len(wanted) < len(polled.rows):
            polled = polled._replace(rows=wanted, stats=PageStats(wanted))
        fetched = None
        if polled.rows and (fetched := self._complete_page(conn, groups, polled)) is None:
            return None
        # The fence was read after the snapshot, as the ceiling was, so it may be added before the page is built.
        horizon.add_fence(polled.fence)
        snapshot = Snapshot.parse(polled.snapshot)
        page = horizon.build_page(snapshot, is_complete=True)
        horizon.share_page(snapshot, page)
        if fetched is not None:
            self._full_reader.notify_read(polled.rows, asked_at, polled.fence.drawn_id - polled.floor)
            self._intake.take_quick_page(groups.caught_up, page, fetched)
        return fetched is not None, IdleCheck(polled.fence, has_ended=False, flag_up_for=polled.flag_up_for)

    def _complete_page(self, conn: Connection[Any], groups: PollGroups, polled: QuickPage) -> FetchedPage | None:
        # Large payloads that the quick poll left out are added. The result is None if memory has no room for them.
        rows, clock, stats = polled.rows, polled.clock, polled.stats
        limits = LateLimits(len(rows), STRETCH)
        if not self._credits.reserve_page(groups.caught_up, rows):
            return None
        large = list_incomplete(rows) if stats.has_incomplete else []
        large = [row for row in large if self._intake.needs_parts(groups.caught_up[row[PARTITION]], row, clock)]
        if not large:
            return FetchedPage(rows, {}, {}, limits, clock, stats)
        fetched = self._payloads.complete_page(
            conn, rows, large, (), self._credits.bytes_for_quick_page(len(rows)), limits, clock
        )
        return fetched if not fetched.first_omitted else None

    def _is_full_read_due(self, groups: PollGroups) -> bool:
        # While a few partitions are behind with a backlog that waits for handlers, the others go on by quick polls. All
        # are then read in full every `FULL_READ_INTERVAL` seconds if that brings much, else when their credit is worth
        # a poll (`Credit.is_poll_worthwhile`).
        # A full read is due at once, unless each partition that is behind has a backlog, for which memory may have no
        # room.
        if not groups.behind or not groups.have_backlogs():
            return bool(groups.behind)
        now = time.monotonic()
        if now - self._credit_at < FULL_READ_INTERVAL:
            return False
        self._credit_at = now
        credit = self._full_reader.take_credit(groups.together)
        waited = now - self._read_at
        return waited > credit.patience or credit.is_poll_worthwhile(waited)

    def _advance_caught_up(self, groups: PollGroups) -> None:
        # The saved cursors of partitions without new records are advanced now and then.
        # An old saved cursor keeps the purge from removing records.
        now, shared = time.monotonic(), self._horizon.shared_page
        if shared is not None and shared is not self._followed_page and now - self._followed_at > FOLLOW_INTERVAL:
            self._followed_page, self._followed_at = shared, now
            self._intake.move_caught_up(groups.caught_up.values(), shared)

    def _read_together(
        self, conn: Connection[Any], groups: PollGroups, check: IdleCheck | None, may_continue: Callable[[], bool]
    ) -> bool:
        # An idle process runs this 25 times a second, so the credit of 256 partitions is computed only where it may
        # matter.
        backlogs = groups.count_backlogs()
        credit = self._full_reader.take_credit(groups.together) if backlogs else None
        waited = time.monotonic() - self._idle_checked_at
        more = credit is not None and credit.is_poll_worthwhile(waited)
        if credit is not None and not more and backlogs == len(groups.together) and waited <= credit.patience:
            self.waits_for_saves = True
            return False
        if not more or waited > FENCE_SECONDS:
            check = check or self._check_idle(conn)
            # `is_idle` is about the shared page. A partition with a page of its own may have unread records all the
            # same, such as the rest of a cut page. They would wait until the next event is published.
            if not more and groups.are_in_lockstep() and self._horizon.is_idle(check.fence.drawn_id, check.has_ended):
                return False
        request = self._full_reader.build_request(
            self._horizon, credit or self._full_reader.take_credit(groups.together), alone=False
        )
        return self._full_reader.read_pages(conn, self._horizon, request, may_continue)

    def _check_idle(self, conn: Connection[Any]) -> IdleCheck:
        # The database is asked whether any record may be new.
        # The answer also bounds the ids drawn so far, so that the shared page becomes settled without other traffic.
        check = idle_check.run_check(conn, self._schema, self._horizon.list_open_xids())
        self._horizon.add_fence(check.fence)
        self._idle_checked_at = time.monotonic()
        return check
