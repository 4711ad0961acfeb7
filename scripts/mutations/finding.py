"""The search for records, and the story that it tells of one."""

from mutations.mutation import Mutation

FIND, VIEW = "tests/db/inspect/test_find.py", "tests/db/inspect/test_delivery_view.py"
RULE, COMMAND = "tests/protocol/test_standing.py", "tests/cli/test_find_command.py"
SEARCH, HISTORY = "partbox/db/inspect/log_search.py", "sql/migrations/0019_ignored.sql"
STANDING, QUERIES = "partbox/protocol/delivery_status.py", "sql/queries/find.sql"

MUTATIONS = (
    Mutation(
        "given-up-is-delivered",
        "A discarded record is told as delivered.",
        STANDING,
        "status = _derive_consumed(facts) if facts.consumed and facts.parked is None else _derive_unfinished(facts)",
        "status = _derive_consumed(facts) if facts.consumed else _derive_unfinished(facts)",
        (RULE,),
    ),
    Mutation(
        "ignored-is-delivered",
        "A record whose error was ignored is told as delivered.",
        STANDING,
        '    if end.outcome != "ignored":\n',
        "    if True:\n",
        (RULE,),
    ),
    Mutation(
        "the-dead-wait",
        "A dead record is told as if it waited for something.",
        STANDING,
        "        if parked.state in ENDED_STATES:\n            return status\n",
        "",
        (RULE,),
    ),
    Mutation(
        "delivered-before-read",
        "A delivery is told without what says that it was not read yet.",
        HISTORY,
        "n.read_id < r.id",
        "n.read_id < r.id - 1000000",
        (VIEW,),
    ),
    Mutation(
        "late-is-early",
        "A record that committed late is told as delivered when others above it were.",
        HISTORY,
        "                  and n.last_id >= r.id and pg_visible_in_snapshot(r.xid, n.snapshot)\n",
        "                  and n.last_id >= r.id\n",
        (VIEW,),
    ),
    Mutation(
        "first-of-two-deliveries",
        "Of a record that was delivered again the time of the first delivery is told.",
        HISTORY,
        "and n.at >= greatest(r.created_at, last.at, unread.at)\n",
        "and n.at >= greatest(r.created_at, last.at)\n",
        (VIEW,),
    ),
    Mutation(
        "anybody-did-it",
        "A process is named that may have claimed the partition after the delivery.",
        HISTORY,
        "select coalesce(note.epoch, c.epoch) <= extract(epoch from r.created_at) * 1000\n",
        "select true\n",
        (VIEW,),
    ),
    Mutation(
        "cut-and-silent",
        "A search that was cut says that it is complete.",
        SEARCH,
        "return SearchPage(tuple(positions[:limit]), last, _find_publish_time(conn, schema, last))",
        "return SearchPage(tuple(positions[:limit]))",
        (f"{FIND}::test_a_result_that_is_cut_off_says_where_the_search_continues",),
    ),
    Mutation(
        "half-a-search",
        "A search ends after its first step.",
        SEARCH,
        "        if edge is None:\n",
        "        if step:\n",
        (f"{FIND}::test_a_search_proceeds_step_by_step_up_to_its_bound",),
    ),
    Mutation(
        "wrong-half",
        "The ids of a stretch of time are looked for on the wrong side.",
        "sql/functions/id_at.sql",
        "case when probe.created_at < moment then probe.id + 1 else h.low end",
        "case when probe.created_at > moment then probe.id + 1 else h.low end",
        (f"{FIND}::test_an_event_is_found_around_its_moment_in_a_long_log",),
    ),
    Mutation(
        "unnoted-before-a-loss",
        "What was saved before a lost connection is told as delivered by the next owner.",
        "partbox/worker/engine/last_save.py",
        "LastNote(self.note.due_at, NO_COUNT if owed else 0)",
        "LastNote(self.note.due_at)",
        (
            "tests/worker/saver/test_noted_progress.py"
            "::test_progress_that_was_saved_before_a_lost_connection_is_noted_at_the_release",
        ),
    ),
)
