"""The quick poll: who takes part, where it looks, and what counts."""

from mutations.mutation import Mutation, on_a_server, scenario

PRUNING = "tests/db/delivery/test_segment_pruning.py"
PREPARED = "tests/db/delivery/test_prepared.py"
CURSOR = "partbox/protocol/cursor.py"

MUTATIONS = (
    Mutation(
        "the-ceiling-of-a-quick-poll-known-before",
        "What is drawn and committed before its snapshot, but after the ceiling was read, is seen and never read.",
        "sql/queries/records.sql",
        "from (select {drawn} as g offset 0) as read",
        "from (select greatest(%(settled)s::bigint, 0 * pg_sequence_last_value({sequence})) as g offset 0) as read",
        (on_a_server("quick_poll"),),
    ),
    Mutation(
        "caught-up-below-the-ids-drawn",
        "What the snapshot of a full page sees above the page's ceiling no quick poll finds: it is not unseen.",
        "partbox/worker/poller/full_poll.py",
        "is_complete=hi >= drawn",
        "is_complete=True",
        (scenario("ids_above_the_ceiling"),),
    ),
    Mutation(
        "caught-up-without-room",
        "A partition that had room for no more has a backlog that the shared page sees: no quick poll finds it.",
        CURSOR,
        "has_all = together and page.is_complete and not full",
        "has_all = together and page.is_complete",
        (scenario("full_page"),),
    ),
    Mutation(
        "joined-at-the-shared-page",
        "A partition just claimed has not read what the shared page sees of it.",
        CURSOR,
        "has_all = together and page.is_complete and not full",
        "has_all = True",
        (scenario("backlog_below_the_floor"),),
    ),
    Mutation(
        "more-than-the-limit-kept",
        "The records beyond the limit of a quick poll are seen by its snapshot, and never read.",
        "partbox/protocol/quick_poll.py",
        "return records <= cursor.MAX_LATE and",
        "return records > 0 and",
        (scenario("quick_poll_of_too_many"),),
    ),
    Mutation(
        "no-room-kept",
        "A partition without room takes what comes all the same: its window, and the brake, hold nothing back.",
        "partbox/worker/engine/credits.py",
        "return fits and self",
        "return self",
        (scenario("full_page"),),
    ),
    Mutation(
        "a-floor-claimed-after-the-page",
        "The floor of a claim bounds what is open then, not what the shared page did not see before.",
        "partbox/worker/poller/log_poll.py",
        "polled = records.read_new_records(conn, self._schema, shared, groups.caught_up_bits,",
        "polled = records.read_new_records(conn, self._schema, type(shared)(shared.snapshot,"
        " max(shared.settled_id, horizon.claimed_floor)), groups.caught_up_bits,",
        ("tests/engine/test_owned_partitions.py::test_a_floor_claimed_after_the_shared_page_bounds_no_search_from_it",),
    ),
    Mutation(
        "late-ids-of-a-quick-page-as-new",
        "A cursor is saved that passes a late record before its handler is done: after a kill it is lost.",
        CURSOR,
        "return self._move_to(page, ids[:late], ids[late:], full=False)",
        "return self._move_to(page, [], ids, full=False)",
        (scenario("late_by_a_quick_poll"),),
    ),
    Mutation(
        "released-at-the-page-of-the-others",
        "A partition that drains has not read what the others' page sees of it: its heir never does.",
        "partbox/worker/poller/log_poll.py",
        "self._intake.move_caught_up(groups.caught_up.values(), shared)",
        "self._intake.move_caught_up(list(self._credits._state.partitions.values()), shared)",
        (scenario("release_at_its_own_page"),),
    ),
    Mutation(
        "idle-whatever-has-ended",
        "What commits late draws no new id: it waits until another one does.",
        "partbox/worker/poller/log_poll.py",
        "if check is None or not self._horizon.is_idle(check.fence.drawn_id, check.has_ended):",
        "if check is None or not self._horizon.is_idle(check.fence.drawn_id, False):",
        (scenario("idle"),),
    ),
    Mutation(
        "those-behind-taken-along",
        "Who is behind is read from the page that the others have moved to: what that one sees it has not read.",
        CURSOR,
        "self.base_page = self.base_page or shared",
        "pass",
        (scenario("behind"),),
    ),
    Mutation(
        "a-quick-poll-that-ends-too-early",
        "A page that counts may reach as far as a full one would search: what is left out of it nobody reads.",
        "partbox/protocol/quick_poll.py",
        "cursor.stretch_of(shared.settled_id) + 2 * cursor.STRETCH",
        "cursor.stretch_of(shared.settled_id) + cursor.STRETCH",
        (f"{PRUNING}::test_a_quick_poll_reads_to_the_end_of_the_ids_that_it_may_search",),
    ),
    Mutation(
        "a-quick-poll-that-begins-too-late",
        "What a transaction publishes that was open before lies above its bound, however far others have gone.",
        "partbox/protocol/quick_poll.py",
        "return cursor.stretch_of(shared.floor), end",
        "return cursor.stretch_of(shared.settled_id), end",
        ("tests/protocol/test_quick_poll.py::test_the_planned_range_contains_every_id_that_a_valid_page_may_search",),
    ),
    Mutation(
        "plans-for-other-ids-kept",
        "A connection that lasts for years would keep a plan for each million ids.",
        "partbox/db/blocking.py",
        "if len(prepared) > PREPARED_LIMIT:",
        "if False:",
        (f"{PREPARED}::test_a_connection_keeps_a_limited_number_of_prepared_statements_including_those_in_use",),
    ),
    Mutation(
        "the-plan-in-use-given-up",
        "What is sent a thousand times a second would be planned anew whenever something rare is sent.",
        "partbox/db/blocking.py",
        "prepared.move_to_end(text)",
        "pass",
        (f"{PREPARED}::test_a_connection_keeps_a_limited_number_of_prepared_statements_including_those_in_use",),
    ),
)
