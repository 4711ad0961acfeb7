"""Reading: fences, floors, pages, the idle rule, what survives a lost connection."""

from mutations.mutation import Mutation

RECORDS = "sql/queries/records.sql"
HORIZON = "partbox/protocol/horizon.py"
CURSOR = "partbox/protocol/cursor.py"
FENCES = "tests/worker/poller/test_fences.py"
LATE_RECORDS = "tests/worker/poller/test_late_records.py"
LOG_POLLS = "tests/worker/poller/test_log_polls.py"
LOST_TAIL = "tests/worker/poller/test_lost_tail.py"
RULES = "tests/protocol/test_horizon.py"

MUTATIONS = (
    Mutation(
        "fence-by-last-value",
        "The row of a sequence can be ahead of ids that are not drawn yet: a fence made of it hides them.",
        RECORDS,
        "(select {drawn} as g offset 0) as drawn",
        "(select last_value as g from {schema}.record_id_seq offset 0) as drawn",
        (
            f"{FENCES}::test_nothing_selects_from_the_sequence",
            f"{FENCES}::test_a_fence_before_the_first_event_does_not_hide_it",
        ),
    ),
    Mutation(
        "fence-of-a-fresh-sequence",
        "Before the first event nothing is drawn; a fence at 1 hides event 1.",
        RECORDS,
        "(select {drawn} as g offset 0) as drawn",
        "(select greatest({drawn}, 1) as g offset 0) as drawn",
        (f"{FENCES}::test_a_fence_before_the_first_event_does_not_hide_it",),
    ),
    Mutation(
        "xmax-as-a-fence",
        "A running transaction may have an xid at or above xmax and is then not listed: xmax says nothing of it.",
        HORIZON,
        "return Page(snapshot.text, self._bound(snapshot.xmax), listed, whole)",
        "return Page(snapshot.text, max((f.drawn for f in self.fences), default=0), listed, whole)",
        (f"{RULES}::test_a_running_transaction_at_xmax_or_above_is_bounded_though_it_is_not_listed",),
    ),
    Mutation(
        "bound-by-the-fence-of-its-own-xid",
        "A fence speaks of transactions above its xid, not of that one itself.",
        HORIZON,
        "if fence.xid < xid)",
        "if fence.xid <= xid)",
        (RULES,),
    ),
    Mutation(
        "bound-that-moves",
        "A bound is fixed when a transaction is first seen; a later one may lie above what it has written.",
        HORIZON,
        "self._bounds.setdefault(xid, self._bound(xid))",
        "self._bounds[xid] = self._bound(xid)",
        (f"{RULES}::test_a_bound_stays_as_it_was_when_the_transaction_was_first_seen",),
    ),
    Mutation(
        "floor-without-the-least",
        "What is below the floor will not appear any more, but need not have been read: a backlog is lost.",
        CURSOR,
        "return max(min(floor, self.last_id), self.cut.read_to if self.cut else 0)",
        "return max(floor, self.cut.read_to if self.cut else 0)",
        (f"{LATE_RECORDS}::test_an_unread_backlog_below_the_floor_is_read",),
    ),
    Mutation(
        "status-without-the-least",
        "The same in the view: an unread backlog shows as done.",
        "sql/migrations/0014_baseline.sql",
        "when r.id <= least(c.floor_id, c.last_id)",
        "when r.id <= c.floor_id",
        (f"{LATE_RECORDS}::test_an_unread_backlog_below_the_floor_is_read",),
    ),
    Mutation(
        "purge-without-the-least",
        "The same in the purge: an unread backlog is deleted.",
        "sql/functions/purge_records.sql",
        "least(p.floor_id, p.last_id)",
        "p.floor_id",
        (
            "tests/db/operator/test_purge.py::test_only_what_is_terminal_everywhere_and_expired_goes",
            "tests/db/operator/test_purge.py::test_a_purge_leaves_what_the_rule_says",
        ),
    ),
    Mutation(
        "limit-over-late-and-new",
        "Room limits the new records only: a late one left out counts as consumed.",
        RECORDS,
        "order by r.id limit %(cap)s::bigint + 1)",
        "order by r.id limit c.room)",
        (f"{LATE_RECORDS}::test_all_late_records_come_however_small_the_room",),
    ),
    Mutation(
        "no-late-records-without-room",
        "A partition without room moves to the new snapshot like the others: it must have read what came late.",
        RECORDS,
        "where start.id < c.last_id\n",
        "where c.room > 0 and start.id < c.last_id\n",
        (f"{LATE_RECORDS}::test_a_full_window_does_not_lose_late_records",),
    ),
    Mutation(
        "cut-page-not-noticed",
        "Only one record beyond the cap tells that there are more.",
        RECORDS,
        "limit %(cap)s::bigint + 1)",
        "limit %(cap)s::bigint)",
        (f"{LATE_RECORDS}::test_a_cut_page_brings_every_late_record_before_any_new_one",),
    ),
    Mutation(
        "new-records-beside-a-cut-page",
        "What precedes a new record may be in the rest of the cut page.",
        CURSOR,
        "Ask(self.partition, last_id, 0, base, self.cut",
        "Ask(self.partition, last_id, max(room, 0), base, self.cut",
        (
            "tests/protocol/test_cursor.py::test_too_many_late_records_come_in_pieces_of_the_first_page",
            "tests/protocol/test_log_machine.py",
        ),
    ),
    Mutation(
        "cut-page-from-its-floor",
        "The floor of a page counts transactions that stay open: every next page would be cut again, nothing new read.",
        CURSOR,
        "self.to(ReadMode.FRESH if self.fresh else ReadMode.BACKLOG, page)",
        "self.to(ReadMode.FRESH if self.fresh else ReadMode.BACKLOG, Page(page.snapshot, page.floor))",
        (
            "tests/worker/poller/test_open_transactions.py::test_after_a_restart_new_records_are_read",
            "tests/protocol/test_cursor.py::test_after_the_pieces_only_transactions_that_have_ended_count",
        ),
    ),
    Mutation(
        "lockstep-from-the-start",
        "A claimed partition was not read at the snapshot that the others share.",
        CURSOR,
        "self.to(mode, None if together else page)",
        "self.to(mode, None)",
        ("tests/protocol/test_cursor.py::test_it_takes_two_whole_pages_to_be_in_lockstep",),
    ),
    Mutation(
        "raise-of-a-full-page",
        "What a full page has left out lies below its floor too.",
        CURSOR,
        "if not full and page.floor > self.last_id",
        "if page.floor > self.last_id",
        (f"{LATE_RECORDS}::test_an_unread_backlog_below_the_floor_is_read",),
    ),
    Mutation(
        "no-raise",
        "The last id of a quiet partition stands still, and pins pruning and purge for ever.",
        CURSOR,
        "raised = page.floor if not full and page.floor > self.last_id else 0",
        "raised = 0",
        ("tests/protocol/test_cursor.py::test_a_page_with_room_to_spare_raises_the_last_id_to_its_floor",),
    ),
    Mutation(
        "sort-by-xid",
        "The lower xid may have waited for a lock and written later: the order is that of ids.",
        RECORDS,
        "order by r.id limit c.room)",
        "order by r.xid, r.id limit c.room)",
        ("tests/db/delivery/test_records.py::test_new_records_come_in_the_order_of_ids_not_of_transactions",),
    ),
    Mutation(
        "idle-beside-a-full-page",
        "What a full page has left out waits for the next publish.",
        "partbox/worker/poller/log_poll.py",
        "if not more and groups.in_lockstep() and self._horizon.still(",
        "if groups.in_lockstep() and self._horizon.still(",
        (f"{LOG_POLLS}::test_a_full_page_is_not_taken_for_the_end",),
    ),
    Mutation(
        "idle-though-one-has-ended",
        "What a listed transaction wrote appears when it ends, without an id being drawn.",
        HORIZON,
        "self.shared is not None and not ended and drawn == self.shared.settled",
        "self.shared is not None and drawn == self.shared.settled",
        (f"{RULES}::test_nothing_is_unread_while_no_id_is_drawn_and_no_listed_transaction_ends",),
    ),
    Mutation(
        "idle-by-the-newest-fence",
        "What was drawn and committed between a fence and the snapshot lies above the ceiling and is unread.",
        HORIZON,
        "not ended and drawn == self.shared.settled",
        "not ended and drawn == self.fences[-1].drawn",
        (f"{RULES}::test_a_fence_at_or_above_xmax_does_not_make_it_quiet",),
    ),
    Mutation(
        "id-before-xid",
        "With DEFAULT in a VALUES list the id would be drawn first, and a fence between the two be wrong.",
        "sql/migrations/0014_baseline.sql",
        "default case when pg_current_xact_id() is not null\n                                                     "
        "then nextval({sequence}) end,",
        "default nextval({sequence}),",
        ("tests/publish/test_insert_forms.py::test_the_xid_is_drawn_before_the_id",),
    ),
    Mutation(
        "memory-kept-over-a-lost-connection",
        "A server that lost a tail gives ids and xids out again: what was read is of another life.",
        "partbox/worker/engine/claims.py",
        "            held[row.partition].begin(row, now)\n",
        "",
        (
            f"{LOST_TAIL}::test_after_a_reconnect_nothing_is_remembered_but_what_is_done",
            f"{LOST_TAIL}::test_events_that_reuse_the_ids_of_a_lost_tail_are_delivered",
        ),
    ),
    Mutation(
        "fences-kept-over-a-lost-connection",
        "A server that lost a tail gives ids out again: a fence of before says too much of who draws an xid after it.",
        "partbox/worker/poller/poller.py",
        "        self.reader.forget()\n",
        "",
        (f"{LOST_TAIL}::test_a_fence_of_a_lost_tail_bounds_nothing_after_it",),
    ),
    Mutation(
        "what-is-done-forgotten-with-the-connection",
        "What is done and not saved would run again after every lost connection.",
        "partbox/worker/engine/reconnect.py",
        "self.remembered.update(progress.done(), parked.deleting.items(), parked.done_ahead.items())",
        "self.remembered.clear()",
        (f"{LOST_TAIL}::test_after_a_reconnect_nothing_is_remembered_but_what_is_done",),
    ),
    Mutation(
        "poll-on-a-standby",
        "A standby shows every running transaction as ended.",
        "partbox/db/connect.py",
        "    if standby:\n",
        "    if False:\n",
        ("tests/db/test_standby.py::test_a_worker_refuses_a_standby",),
    ),
    Mutation(
        "snapshot-after-the-rows",
        "What commits between the rows and the snapshot is visible in it and was not returned.",
        "partbox/db/delivery/records.py",
        "return Polled(\n        head[SNAPSHOT],",
        'after = conn.execute("select pg_current_snapshot()::text").fetchall()[0][0]\n'
        "    return Polled(\n        after,",
        (f"{LOG_POLLS}::test_a_page_holds_exactly_what_its_snapshot_sees",),
    ),
    Mutation(
        "poll-with-an-xid",
        "A transaction's own xid counts as visible in its own snapshot, whether it has ended or not.",
        RECORDS,
        "       age(case when g >= 0 then '3'::xid end) as age,\n",
        "       age(case when pg_current_xact_id() is not null then '3'::xid end) as age,\n",
        (f"{LOG_POLLS}::test_reading_draws_no_transaction_id",),
    ),
)
