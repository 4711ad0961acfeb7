"""Limits: how much starts, whose turn it is, and what waiting may not cost."""

from mutations.mutation import Mutation, scenario

RULE = "tests/protocol/test_turns.py"
TURNS = "partbox/protocol/turns.py"
LIMITED = "tests/worker/runners/test_limited.py"
QUEUE = "partbox/worker/engine/limited_queue.py"
ENGINE = "tests/worker/engine/test_limit_turns.py"

MUTATIONS = (
    Mutation(
        "saved-up-without-end",
        "After an hour without events an hour's calls start at once.",
        TURNS,
        "self.saved = min(bounds.saved, self.saved + bounds.pace * max(0.0, now - self.at))",
        "self.saved = self.saved + bounds.pace * max(0.0, now - self.at)",
        (f"{RULE}::test_in_any_window_no_more_starts_than_the_rate_and_once_what_a_second_brings",),
    ),
    Mutation(
        "a-cut-share-keeps-what-is-saved",
        "Each rebalance adds what a second brings: who gives up partitions keeps what they had saved up.",
        TURNS,
        "        for each in (self.unused, *self.places.values()):\n            each.settle(self.bounds, now)\n",
        "        pass\n",
        (f"{RULE}::test_who_gives_up_partitions_gives_up_what_it_has_saved_for_them",),
    ),
    Mutation(
        "a-change-settles-by-the-new-share",
        "A process that gets partitions counts the time before as if it had had them.",
        TURNS,
        "            each.settle(self.bounds, now)\n        self.limit",
        "            each.settle(ProcessBounds.of(limit, share), now)\n        self.limit",
        (f"{RULE}::test_a_change_of_the_share_or_of_the_limit_never_adds_a_start",),
    ),
    Mutation(
        "begins-with-a-second-saved",
        "A process that is restarted again and again starts what a second brings each time.",
        TURNS,
        "self.unused = Bucket[T](0.0, now)",
        "self.unused = Bucket[T](self.bounds.saved, now)",
        (f"{RULE}::test_a_process_begins_with_nothing_saved_and_saves_one_call_at_most_where_the_rate_is_low",),
    ),
    Mutation(
        "a-new-value-begins-full",
        "Values that come once each start at once after a restart, whatever the rate.",
        TURNS,
        "Bucket(self.unused.saved, now)",
        "Bucket(self.bounds.saved, now)",
        (f"{RULE}::test_a_value_that_comes_anew_has_what_one_that_was_never_used_has",),
    ),
    Mutation(
        "forgotten-while-it-saves",
        "A value is forgotten and comes anew with what it has used: more of it starts than the rate.",
        TURNS,
        "if self.places[idle].saved < self.unused.saved:",
        "if False:",
        (f"{RULE}::test_a_value_is_not_forgotten_while_it_has_less_than_one_that_was_never_used",),
    ),
    Mutation(
        "values-remembered-for-ever",
        "Memory grows with each value that ever came.",
        TURNS,
        "del self.places[idle], self._idle[idle]",
        "break",
        (f"{RULE}::test_values_that_come_once_are_forgotten",),
    ),
    Mutation(
        "at-once-rounded-down",
        "A process whose share is less than one call starts none, and its partitions stand still.",
        TURNS,
        "ceil(limit.at_once * share)",
        "int(limit.at_once * share)",
        (f"{RULE}::test_never_more_run_at_once_than_the_share_rounded_up_and_always_so_many",),
    ),
    Mutation(
        "one-more-at-once",
        "One call more than may runs at once.",
        TURNS,
        "if self.running >= bounds.most:",
        "if self.running > bounds.most:",
        (f"{RULE}::test_never_more_run_at_once_than_the_share_rounded_up_and_always_so_many",),
    ),
    Mutation(
        "an-end-gives-no-turn",
        "Where a limit is only of calls at once, nothing starts any more when the first have ended.",
        TURNS,
        "            if not bucket.in_line:\n                self._line(place, bucket, now)\n\n    def take(",
        "\n    def take(",
        (f"{RULE}::test_never_more_run_at_once_than_the_share_rounded_up_and_always_so_many",),
    ),
    Mutation(
        "the-same-value-again",
        "A value with much to do starts one call after the other, and others wait for it.",
        TURNS,
        "                self._ring.append(place)",
        "                self._ring.appendleft(place)",
        (f"{RULE}::test_whoever_waits_has_a_turn_before_another_has_two",),
    ),
    Mutation(
        "a-share-of-what-drains",
        "A process that gives up partitions uses its share of them, and whoever has claimed them theirs.",
        "partbox/worker/engine/limit_turns.py",
        "sum(not each.stopping for each in",
        "sum(True for each in",
        (scenario("limit"),),
    ),
    Mutation(
        "lines-beside-limits",
        "New events stand in line, where each that waits for its turn goes from runner to runner and back.",
        "partbox/worker/engine/runs.py",
        "return self._lines and self.limited is None and not",
        "return self._lines and not",
        (f"{LIMITED}::test_limits_change_while_a_worker_runs",),
    ),
    Mutation(
        "what-waits-holds-the-window",
        "A partition whose window is full of events that wait for their turn is read on when they have had it.",
        QUEUE,
        "return waiting.lane.partition in full and waiting.since < before",
        "return False",
        (scenario("limit"),),
    ),
    Mutation(
        "put-away-charged",
        "An event is charged for having waited, and dead after some waits.",
        "partbox/worker/engine/outcomes.py",
        "self.note(lane, event, Verdict(RowState.DEFERRED, event.attempt - 1,",
        "self.note(lane, event, Verdict(RowState.DEFERRED, event.attempt,",
        (scenario("limit"),),
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
        "partbox/worker/engine/limit_turns.py",
        "        if limited.is_sooner():\n            self._state.wakes.look()\n",
        "",
        (f"{ENGINE}::test_the_poller_is_woken_for_a_turn_sooner_than_it_knows_of_and_asked_for_no_others",),
    ),
)
