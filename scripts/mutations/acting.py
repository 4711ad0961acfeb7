"""What operators did: whatever changes something is noted with it, by whom, and nothing else is."""

from mutations.mutation import Mutation

QUERIES, ACTIONS = "sql/queries/actions.sql", "partbox/db/operator/actions.py"
TESTS = "tests/db/operator/test_actions.py"

MUTATIONS = (
    Mutation(
        "act-without-its-note",
        "A trigger that keeps the note out would let somebody act unseen.",
        QUERIES,
        "(select count(*) from note))",
        "9)",
        (f"{TESTS}::test_an_act_and_its_note_are_both_there_or_neither",),
    ),
    Mutation(
        "subscription-without-its-note",
        "So would it who makes a subscription.",
        "sql/queries/subscriptions.sql",
        "\n       and {schema}.all_written('action', (select count(*) from act), (select count(*) from note))",
        "",
        (f"{TESTS}::test_an_act_and_its_note_are_both_there_or_neither",),
    ),
    Mutation(
        "note-of-nothing",
        "What changed nothing would be told as an act.",
        QUERIES,
        " where act.changed > 0\nreturning",
        " where act.changed is not null\nreturning",
        (f"{TESTS}::test_an_act_that_changes_nothing_leaves_no_note",),
    ),
    Mutation(
        "role-that-was-taken-on",
        "Who logs in as himself and takes on a role of many would be told as those many.",
        QUERIES,
        "session_user",
        "current_user",
        (f"{TESTS}::test_a_note_names_the_role_that_logged_in_and_not_one_that_was_set_later",),
    ),
    Mutation(
        "function-of-others-in-an-act",
        "Who may create functions where operators' sessions look them up would have an operator run his own.",
        QUERIES,
        "session_user::text",
        "session_user",
        (f"{TESTS}::test_a_publisher_who_may_create_functions_cannot_have_an_operator_run_them",),
    ),
    Mutation(
        "identity-that-stays",
        "The next act of the thread would be told as that of the last user.",
        ACTIONS,
        "        _identity.reset(tokens[0])\n",
        "        pass\n",
        (f"{TESTS}::test_an_identity_ends_with_its_block_and_is_that_of_one_thread",),
    ),
    Mutation(
        "identity-as-it-comes",
        "A name with line ends and escapes would forge notes of others in whatever shows it.",
        ACTIONS,
        "identity and shorten_line(identity)",
        "identity",
        (f"{TESTS}::test_every_identity_is_noted_as_one_printable_line",),
    ),
    Mutation(
        "long-act-that-counts-its-last-step",
        "An import would be told as the last of its batches.",
        QUERIES,
        "set count = count + %(changed)s",
        "set count = %(changed)s",
        (f"{TESTS}::test_an_import_is_one_note_that_counts_what_has_committed",),
    ),
    Mutation(
        "purge-of-a-worker-as-an-act",
        "Every hour there would be an act of nobody.",
        "partbox/operations/purge.py",
        "is_noted = by_hand and not",
        "is_noted = not",
        (f"{TESTS}::test_a_purge_by_workers_is_not_noted_as_an_act_of_an_operator",),
    ),
    Mutation(
        "verb-in-the-event-loop",
        "An operator's verb that is awaited would stop the whole event loop.",
        "partbox/operations/aio.py",
        "return await asyncio.to_thread(self._command, noun.sync_commands, *args, **kwargs)",
        "return self._command(noun.sync_commands, *args, **kwargs)",
        ("tests/db/operator/test_from_async_code.py::test_a_verb_runs_beside_the_event_loop_and_not_in_it",),
    ),
)
