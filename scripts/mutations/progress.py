"""Saving: which cursor, what is parked, what is handed over."""

from mutations.mutation import Mutation, scenario

PROGRESS = "partbox/protocol/progress.py"
RULES = "tests/protocol/test_progress.py"
PARKS = "tests/db/delivery/test_saved_parks.py"
RAN = (
    "tests/worker/saver/test_reconnect.py"
    "::test_what_runs_while_the_connection_is_lost_is_not_repeated_though_its_partition_is_let_go_at_once"
)

MUTATIONS = (
    Mutation(
        "emptied-dicts-keep-their-tables",
        "Of 256 partitions each keeps the dicts that it had at its largest, and a process grows with every wave.",
        "partbox/protocol/progress.py",
        "            table.clear()\n",
        "            pass\n",
        (
            f"{RULES}::test_the_table_of_what_is_finished_out_of_turn_is_given_back_once_it_is_saved",
            "tests/engine/test_memory_given_back.py::test_what_was_parked_of_many_keys_leaves_no_large_dict_behind",
        ),
    ),
    Mutation(
        "current-floor-saved",
        "Above the floor of a later page an heir does not look for what is unfinished of an earlier one.",
        PROGRESS,
        "return Target(page, self.last_id, self.passed, min(read, self.passed))",
        "return Target(Page(page.snapshot, self.page.floor), self.last_id, self.passed, min(read, self.passed))",
        (f"{RULES}::test_a_late_record_that_is_unfinished_keeps_the_page_before_it",),
    ),
    Mutation(
        "newest-snapshot-saved",
        "For the newest snapshot a late record that still runs is consumed.",
        PROGRESS,
        "                return late.before, late.read_before\n",
        "                return self.page, self.read_new\n",
        (scenario("floor_of_the_saved_page"),),
    ),
    Mutation(
        "only-the-last-page-s-late-records",
        "The late records of every earlier page count, not only those of the page that is saved.",
        PROGRESS,
        "        for late in self.late:\n            if late.cut",
        "        for late in list(self.late)[-1:]:\n            if late.cut",
        (f"{RULES}::test_every_earlier_page_counts_not_only_the_page_itself",),
    ),
    Mutation(
        "last-id-beyond-the-unfinished",
        "A new record that is unfinished holds the last id back.",
        PROGRESS,
        "passed = list(takewhile(finished.__contains__, unread))",
        "passed = list(filter(finished.__contains__, unread))",
        (f"{RULES}::test_the_last_id_is_that_of_the_finished_prefix",),
    ),
    Mutation(
        "release-without-handing-over",
        "A release passes everything up to the highest finished id: what is unfinished below it must be parked.",
        "partbox/worker/engine/saves.py",
        "                partition.parked.park(waiting[id], READY)\n",
        "                pass\n",
        (scenario("release_in_a_cut_page"),),
    ),
    Mutation(
        "release-before-the-drain",
        "The next owner would run an aggregate beside a handler that still runs here.",
        "partbox/worker/engine/saves.py",
        "draining and partition.running == 0 and partition.cursor.cut is None",
        "draining and partition.cursor.cut is None",
        (scenario("release"),),
    ),
    Mutation(
        "release-before-what-was-done-is-found-again",
        "A release after a lost connection saves the old cursor: the next owner repeats what was done.",
        "partbox/worker/engine/claims.py",
        "if not partition.stopping and partition.may_drain(now):",
        "if not partition.stopping:",
        (scenario("release_after_a_reconnect"),),
    ),
    Mutation(
        "release-before-what-ran-is-found-again",
        "What ran when the connection was lost is done by and by: with nothing read again there is nothing to save.",
        "partbox/worker/engine/reconnect.py",
        "if self._reset_at is None or now > self._reset_at + SETTLE:\n            return True\n",
        "if not self.remembered or self._reset_at is None or now > self._reset_at + SETTLE:\n            return True\n",
        (RAN,),
    ),
    Mutation(
        "release-before-what-is-due-is-found-again",
        "The same of a parked record without an aggregate, which is found by its due time only.",
        "partbox/worker/engine/reconnect.py",
        "if self._parked_ids and not parked.due_read:",
        "if False:",
        (scenario("due_over_a_lost_connection"),),
    ),
    Mutation(
        "what-was-done-is-suspect-again",
        "After a death what was done before a lost connection would be parked, and handed over to be repeated.",
        "partbox/worker/engine/intake.py",
        "elif event.identity in remembered:",
        "elif False:",
        (scenario("suspects_over_a_lost_connection"),),
    ),
    Mutation(
        "release-inside-a-cut-page",
        "The rest of a cut page lies below the cursor that a release saves.",
        "partbox/worker/engine/saves.py",
        "draining and partition.running == 0 and partition.cursor.cut is None",
        "draining and partition.running == 0",
        (scenario("release_in_a_cut_page"),),
    ),
    Mutation(
        "end-of-a-cut-page-unsaved",
        "What was done before the last piece came stays unsaved until something else happens in its partition.",
        "partbox/worker/engine/intake.py",
        "partition.draining or (reading.last and partition.progress.count_finished())",
        "partition.draining",
        (scenario("end_of_a_cut_page"),),
    ),
    Mutation(
        "parks-ahead-forgotten",
        "What is parked above the saved cursor is read again: without its row it runs twice.",
        "partbox/worker/ownership/ownership.py",
        "ahead = parked.ahead(*where) if loading.needs_ahead else []",
        "ahead: list[tuple[int, int]] = []",
        (
            scenario("parks_ahead"),
            "tests/worker/runners/test_outcomes.py::test_parked_rows_survive_a_restart_in_their_order",
        ),
    ),
    Mutation(
        "remembered-for-ever",
        "What was saved though the answer was lost would be kept after each lost connection, and cost a lock an event.",
        "partbox/worker/engine/reconnect.py",
        "        self._unsure = set(self.remembered)\n",
        "",
        (scenario("remembered"),),
    ),
    Mutation(
        "forgotten-before-it-is-read-again",
        "What was done and not saved comes again: forgotten too early it runs twice.",
        "partbox/worker/engine/reconnect.py",
        "if pair[0] <= passed and pair[0] not in still_parked}",
        "if pair[0] not in still_parked}",
        ("tests/worker/engine/test_remembered.py::test_what_another_transaction_may_still_add_to_is_kept",),
    ),
    Mutation(
        "parking-again-resets",
        "A record that is read again after a crash would have all its attempts anew, for ever.",
        "sql/functions/save.sql",
        "on conflict (subscription, record_id) do nothing",
        "on conflict (subscription, record_id) do update set attempts = excluded.attempts",
        (f"{PARKS}::test_parking_again_changes_nothing_and_never_resets_attempts",),
    ),
    Mutation(
        "head-not-the-smallest",
        "Of a key's blocking rows only the one with the smallest id may run.",
        "partbox/protocol/parking.py",
        "insort(self.rows, row, key=lambda each: each.id)",
        "self.rows.append(row)",
        ("tests/protocol/test_parking.py::test_a_chain_is_in_id_order_however_its_rows_came",),
    ),
    Mutation(
        "backlog-not-awaited",
        "Saves make room for a backlog: while each waits for more progress than there is room for, nothing is read.",
        "partbox/worker/engine/state.py",
        "return self.backlog or bool(self._wakeups)",
        "return bool(self._wakeups)",
        (scenario("who_wakes_the_reader"),),
    ),
    Mutation(
        "wake-of-a-saved-key-missed",
        "A parked row runs only when its park has committed: nobody looks for it then.",
        "partbox/worker/engine/saves.py",
        "        elif self._state.await_saves():\n",
        "        elif self._state.backlog:\n",
        (scenario("who_wakes_the_reader"),),
    ),
    Mutation(
        "park-that-calls-nobody",
        "What was parked waits for the next tick, though its time may have come; so does what a release has freed.",
        "partbox/worker/engine/saves.py",
        "if any(save.release or save.rows for save in saves):\n",
        "if False:\n",
        (scenario("who_wakes_the_reader"),),
    ),
    Mutation(
        "discarded-forgotten-by-an-owner",
        "A discarded record that no cursor has passed is read again: its parked row alone keeps it from handlers.",
        "sql/queries/parked.sql",
        "and k.record_id > least(p.floor_id, p.last_id)",
        "and k.record_id > least(p.floor_id, p.last_id) and k.state <> 'discarded'",
        (
            "tests/db/operator/test_dead_replays.py::test_what_no_saved_cursor_has_passed_is_discarded_at_once_and_not_delivered",
        ),
    ),
    Mutation(
        "discarded-row-before-its-record",
        "Without its row a discarded record reads as done.",
        "sql/functions/purge_dead.sql",
        "and not exists (select from {schema}.record r\n"
        "                                            where r.partition = k.partition and r.id = k.record_id)",
        "",
        ("tests/db/operator/test_purge.py::test_a_discarded_row_does_not_keep_its_record_and_goes_after_it",),
    ),
    Mutation(
        "effects-rolled-back-and-noted",
        "What a transaction had noted when it failed is not so: saved, it would pass events without their effects.",
        "partbox/worker/engine/transactions.py",
        "                lane.partition.progress.unfinish(event.id)\n",
        "",
        (
            "tests/worker/engine/test_transaction_stages.py"
            "::test_one_that_is_about_to_commit_is_awaited_and_if_it_fails_it_has_done_nothing",
        ),
    ),
    Mutation(
        "a-lane-that-waits-under-its-id-of-before",
        "Held and loaded again while a transaction runs, the head has the same id and is parked: nobody looks for it.",
        "partbox/worker/engine/transaction_queue.py",
        "return event.id == id and event.parked is None",
        "return event.id == id",
        (scenario("late_in_a_transactional_lane"),),
    ),
    Mutation(
        "met-and-not-woken",
        "Met in a piece of a cut page, a row that was due before stands still: no later page tells that it is met.",
        "partbox/worker/engine/intake.py",
        "            self._state.wake(partition, key_of(event))\n        elif event.identity",
        "        elif event.identity",
        (scenario("met_in_a_piece"),),
    ),
)
