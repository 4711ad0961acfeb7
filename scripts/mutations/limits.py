"""Limits: how much starts, whose turn it is, and what waiting may not cost."""

from mutations.mutation import Mutation, scenario

RULE = "tests/protocol/test_turns.py"
TURNS = "partbox/protocol/turns.py"
LIMITED = "tests/worker/runners/test_limited.py"
QUEUE = "partbox/worker/engine/limited_queue.py"
CREDITS = "tests/engine/test_credits.py"
ENGINE = "tests/worker/engine/test_limit_turns.py"

MUTATIONS = (
    Mutation(
        "saved-up-without-end",
        "After an hour without events an hour's calls start at once.",
        TURNS,
        "self.saved_starts = min(bounds.max_saved, self.saved_starts + bounds.pace * max(0.0, now - self.settled_at))",
        "self.saved_starts = self.saved_starts + bounds.pace * max(0.0, now - self.settled_at)",
        (f"{RULE}::test_starts_in_any_window_never_exceed_the_rate_and_the_burst_of_one_second",),
    ),
    Mutation(
        "a-cut-share-keeps-what-is-saved",
        "Each rebalance adds what a second brings: who gives up partitions keeps what they had saved up.",
        TURNS,
        "        for each in (self.fresh_bucket, *self.buckets.values()):\n            "
        "each.accrue_starts(self.bounds, now)\n",
        "        pass\n",
        (f"{RULE}::test_a_process_that_gives_up_partitions_gives_up_the_credit_saved_for_them",),
    ),
    Mutation(
        "a-change-settles-by-the-new-share",
        "A process that gets partitions counts the time before as if it had had them.",
        TURNS,
        "            each.accrue_starts(self.bounds, now)\n        self.limit",
        "            each.accrue_starts(ProcessBounds.from_limit(limit, share), now)\n        self.limit",
        (f"{RULE}::test_a_change_of_the_share_or_of_the_limit_never_adds_a_start",),
    ),
    Mutation(
        "begins-with-a-second-saved",
        "A process that is restarted again and again starts what a second brings each time.",
        TURNS,
        "self.fresh_bucket = Bucket[T](0.0, now)",
        "self.fresh_bucket = Bucket[T](self.bounds.max_saved, now)",
        (f"{RULE}::test_a_process_begins_without_credit_and_saves_at_most_one_call_where_the_rate_is_low",),
    ),
    Mutation(
        "a-new-value-begins-full",
        "Values that come once each start at once after a restart, whatever the rate.",
        TURNS,
        "Bucket(self.fresh_bucket.saved_starts, now)",
        "Bucket(self.bounds.max_saved, now)",
        (f"{RULE}::test_a_value_that_occurs_for_the_first_time_has_the_credit_of_one_that_was_never_used",),
    ),
    Mutation(
        "forgotten-while-it-saves",
        "A value is forgotten and comes anew with what it has used: more of it starts than the rate.",
        TURNS,
        "if self.buckets[idle].saved_starts < self.fresh_bucket.saved_starts:",
        "if False:",
        (f"{RULE}::test_a_value_is_not_forgotten_while_it_has_less_credit_than_one_that_was_never_used",),
    ),
    Mutation(
        "values-remembered-for-ever",
        "Memory grows with each value that ever came.",
        TURNS,
        "del self.buckets[idle], self._idle[idle]",
        "break",
        (f"{RULE}::test_values_that_come_once_are_forgotten",),
    ),
    Mutation(
        "at-once-rounded-down",
        "A process whose share is less than one call starts none, and its partitions stand still.",
        TURNS,
        "ceil(limit.at_once * share)",
        "int(limit.at_once * share)",
        (f"{RULE}::test_calls_at_once_never_exceed_the_share_rounded_up_and_reach_it_while_others_wait",),
    ),
    Mutation(
        "one-more-at-once",
        "One call more than may runs at once.",
        TURNS,
        "if self.running_count >= bounds.max_running:",
        "if self.running_count > bounds.max_running:",
        (f"{RULE}::test_calls_at_once_never_exceed_the_share_rounded_up_and_reach_it_while_others_wait",),
    ),
    Mutation(
        "an-end-gives-no-turn",
        "Where a limit is only of calls at once, nothing starts any more when the first have ended.",
        TURNS,
        "            if not bucket.is_scheduled:\n                self._schedule(limit_key, bucket, now)\n\n"
        "    def take_joining(",
        "\n    def take_joining(",
        (f"{RULE}::test_calls_at_once_never_exceed_the_share_rounded_up_and_reach_it_while_others_wait",),
    ),
    Mutation(
        "the-same-value-again",
        "A value with much to do starts one call after the other, and others wait for it.",
        TURNS,
        "                self._rotation.append(limit_key)",
        "                self._rotation.appendleft(limit_key)",
        (f"{RULE}::test_every_waiting_value_has_a_turn_before_another_has_two",),
    ),
    Mutation(
        "a-share-of-what-drains",
        "A process that gives up partitions uses its share of them, and whoever has claimed them theirs.",
        "partbox/worker/engine/limit_permits.py",
        "sum(not each.is_stopping for each in",
        "sum(True for each in",
        (scenario("limit"),),
    ),
    Mutation(
        "lines-beside-limits",
        "New events stand in line, where each that waits for its turn goes from runner to runner and back.",
        "partbox/worker/engine/scheduler.py",
        "return self._uses_shared_lanes and self.limited_queue is None and not",
        "return self._uses_shared_lanes and not",
        (f"{LIMITED}::test_limits_change_while_a_worker_runs",),
    ),
    Mutation(
        "what-waits-holds-the-window",
        "A partition whose window is full of events that wait for their turn is read on when they have had it.",
        QUEUE,
        "return ahead + 1 > _count_starts(bounds, KEEP_SECONDS_FULL) or is_long or waiting.since < before",
        "return False",
        (scenario("limit"),),
    ),
    Mutation(
        "put-away-charged",
        "An event is charged for having waited, and dead after some waits.",
        "partbox/worker/engine/outcomes.py",
        "state, attempts = RowState.DEFERRED, event.attempt - 1",
        "state, attempts = RowState.DEFERRED, event.attempt",
        (scenario("limit"),),
    ),
    Mutation(
        "what-waits-brakes",
        "A tenant over its rate stops all others of its partition.",
        "partbox/worker/engine/outcomes.py",
        "is_wait=keeps_error, waits=True)",
        "is_wait=keeps_error)",
        (scenario("waiting_rows"), scenario("waiting_chain")),
    ),
    Mutation(
        "a-head-in-line-is-trouble",
        "An aggregate over its rate stops its partition each time that the first of its events is done.",
        QUEUE,
        "                    lane.partition.parked.count_as_waiting(lane.key)\n",
        "                    pass\n",
        (f"{ENGINE}::test_queued_rows_that_were_handed_over_do_not_brake_reading",),
    ),
    Mutation(
        "written-again-and-again",
        "Each row of a long backlog is updated whenever it leaves memory.",
        "partbox/worker/engine/outcomes.py",
        "if not was_charged and partition.parked.put_off(event, now, evicted.delay):",
        "if False:",
        (f"{ENGINE}::test_a_row_that_is_marked_as_waiting_is_evicted_again_without_a_save",),
    ),
    Mutation(
        "the-newest-first",
        "While more comes than may start, what was put away never has its turn.",
        QUEUE,
        "self._now, first=parked)",
        "self._now)",
        (f"{ENGINE}::test_events_that_come_back_go_before_events_that_were_just_read",),
    ),
    Mutation(
        "no-guard-of-the-disk",
        "A limit that is too tight fills the disk with rows.",
        "partbox/worker/engine/read_budget.py",
        "min(share, ahead, rows)",
        "min(share, ahead)",
        (f"{CREDITS}::test_a_partition_may_use_its_share_of_the_waiting_rows_and_what_other_partitions_leave",),
    ),
    Mutation(
        "a-list-of-two-values",
        "A list that starts in the turn of one value has events of another, which has had none.",
        "partbox/worker/engine/outcomes.py",
        "    if to.fits is not None:\n",
        "    if False:\n",
        (f"{LIMITED}::test_a_list_ends_where_its_lane_has_another_value",),
    ),
    Mutation(
        "nobody-knows-of-a-sooner-turn",
        "A limit that is raised lets what waits start when it would have before.",
        "partbox/worker/engine/limit_permits.py",
        "        if limited.advance_timer():\n            self._state.wakes.wake_poller()\n",
        "",
        (f"{ENGINE}::test_the_poller_is_woken_only_for_a_turn_that_is_sooner_than_the_one_it_knows_of",),
    ),
    Mutation(
        "waits-in-memory-for-ever",
        "A new event that waits for its permit holds back the saved cursor: a crash repeats all that was done since.",
        "partbox/worker/engine/limited_queue.py",
        "return ahead >= few and waiting.since < now - KEEP_SECONDS",
        "return False",
        (
            "tests/worker/engine/test_limit_turns.py"
            "::test_new_events_that_wait_for_long_leave_memory_although_no_window_is_full",
        ),
    ),
    Mutation(
        "all-stored-waits-at-once",
        "After a takeover every event that waits for a limit would be fetched at once, and all others would wait.",
        "partbox/worker/engine/evicted_rows.py",
        "            while group.rows and len(group.loaded) < group.size:\n",
        "            while group.rows:\n",
        (
            "tests/worker/engine/test_stored_waits.py"
            "::test_after_a_claim_a_few_rows_of_each_group_come_and_no_other_wakes",
        ),
    ),
    Mutation(
        "behind-another-and-counted",
        "A row that cannot be loaded before another one of its key takes the place of the next probe for ever.",
        "partbox/worker/engine/evicted_rows.py",
        "return not self.row.blocks or self.partition.parked.chains[self.key].rows[0] is self.row",
        "return True",
        (
            "tests/worker/engine/test_limit_turns.py"
            "::test_an_evicted_row_behind_another_one_of_its_key_takes_nobodys_place",
        ),
    ),
)
