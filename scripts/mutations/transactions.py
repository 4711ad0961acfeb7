"""Transactional handlers: what commits with the cursor, what is called behind that, what leaks from event to event."""

from mutations.mutation import Mutation

ROOM = "partbox/worker/runners/effects"
SESSIONS = "tests/worker/runners/test_sqlalchemy_sessions.py"
EFFECTS = "tests/worker/runners/test_sqlalchemy_effects.py"
AWAITED = "tests/worker/runners/test_async_effects.py"
LAST = "tests/worker/runners/test_last_statements.py::test_the_save_is_the_last_statement_before_the_commit"
CONTEXTS = "tests/worker/runners/test_contexts.py"
SHARED = "tests/worker/runners/test_shared_transactions.py"
HANGING = "tests/worker/saver/test_hanging_connections.py"
DJANGO = "tests/django/test_transactional_models.py"
REFUSED = "test_ending_the_transaction_of_a_session_is_refused_and_charged_to_its_event_alone"

MUTATIONS = (
    Mutation(
        "statement-behind-the-save",
        "A statement comes behind the save, while partition rows are locked: a bury waits for it.",
        f"{ROOM}/effects.py",
        "return cursors.save(self.conn, *told, durable=True, session=self.session)",
        "saved = cursors.save(self.conn, *told, durable=True, session=self.session)\n"
        '        self.conn.execute("select 1")\n        return saved',
        (f"{LAST}[SQLAlchemy]",),
    ),
    Mutation(
        "hooks-at-the-savepoint",
        "after_commit is called when the event's savepoint is released: of what is rolled back with the others, too.",
        f"{ROOM}/sessions.py",
        "self._transaction._prepare_impl()",
        "self._transaction.commit()",
        (f"{SESSIONS}::test_hooks_are_called_after_the_final_commit_and_not_at_the_savepoint",),
    ),
    Mutation(
        "hooks-of-what-is-rolled-back",
        "Hooks of a transaction whose COMMIT has failed are called all the same.",
        f"{ROOM}/sqlalchemy.py",
        "context.run(each.call_rollback_hooks)",
        "context.run(each.call_commit_hooks)",
        (f"{SESSIONS}::test_hooks_of_a_transaction_that_is_rolled_back_are_not_called",),
    ),
    Mutation(
        "variables-of-the-last-event",
        "A handler sees the context variables that the one before it has set.",
        "partbox/worker/runners/lane_runner.py",
        "result = context.run(endpoint.first_step, event)",
        "result = endpoint.first_step(event)",
        (f"{CONTEXTS}::test_no_event_sees_context_variables_of_another_and_all_see_those_set_at_the_start",),
    ),
    Mutation(
        "settings-of-the-last-event",
        "What an event sets for its tenant holds for the events of others in its transaction.",
        "sql/queries/effects.sql",
        "\n{set_back}; ",
        "\n",
        (f"{SHARED}::test_no_setting_of_an_event_holds_for_the_next_event_of_its_transaction",),
    ),
    Mutation(
        "locks-awaited-behind-locks",
        "Processes that update the same rows wait for each other with the locks of many events, until a deadlock.",
        "sql/queries/effects.sql",
        "set local lock_timeout = {patience}",
        "set local lock_timeout = 0",
        (f"{SHARED}::test_a_lock_that_is_not_free_is_waited_for_without_the_locks_of_others",),
    ),
    Mutation(
        "a-commit-that-repeats-innocents",
        "Events whose effects another has committed by SQL run again.",
        "partbox/worker/runners/transaction.py",
        "if effects.conn.closed or not effects.begin_anew():",
        "if effects is not None:",
        (f"{SHARED}::test_events_that_ran_before_one_that_commits_are_done_and_only_that_one_is_charged",),
    ),
    Mutation(
        "one-session-for-all",
        "What an event had in its session is there for the next one.",
        f"{ROOM}/sqlalchemy.py",
        "with join_session(on, build_session(kind, on)) as joined:",
        'with join_session(on, on.info.setdefault("session", build_session(kind, on))) as joined:',
        (f"{EFFECTS}::test_a_failed_event_leaves_no_effect_and_is_parked_while_the_effects_of_others_are_kept",),
    ),
    Mutation(
        "committed-by-the-handler",
        "A handler commits by the connection of its session: what it did stays when its event fails.",
        f"{ROOM}/sqlalchemy.py",
        "refuse_transaction_end(self._sql_conn, lambda: self._may_end)",
        "refuse_transaction_end(self._sql_conn, lambda: True)",
        (f"{EFFECTS}::{REFUSED}[the connection's commit]",),
    ),
    Mutation(
        "closed-by-the-handler",
        "A handler closes its session, which forgets what was to be flushed: the event is done, its effect is not.",
        f"{ROOM}/sessions.py",
        '        _refuse("close()")',
        "        super().close()",
        (f"{AWAITED}::{REFUSED}[leave_the_block]",),
    ),
    Mutation(
        "bound-elsewhere",
        "A session with engines of its own writes into other transactions.",
        f"{ROOM}/sessions.py",
        "    def get_bind(self",
        "    def get_no_bind(self",
        (f"{SESSIONS}::test_a_session_that_has_engines_of_its_own_writes_into_the_transaction_all_the_same",),
    ),
    Mutation(
        "kinds-mixed",
        "A transaction of one connection has an event that is for another: it has its effect in none that commits.",
        "partbox/worker/engine/transactions.py",
        "fits = None if transaction.kind is None else partial(self._fits_kind, transaction)",
        "fits = None",
        (
            "tests/worker/engine/test_transaction_stages.py"
            "::test_a_transaction_has_events_of_one_kind_and_the_next_one_those_of_the_other",
        ),
    ),
    Mutation(
        "swallowed-by-a-model",
        "Django rolls the event's savepoint back, for an error that the handler has caught, and the event is done.",
        f"{ROOM}/django.py",
        "if django.needs_rollback:",
        "if False:",
        (
            f"{DJANGO}::test_a_failed_event_leaves_nothing_behind_and_the_others_are_committed"
            "[swallow-the handler has caught a database error]",
        ),
    ),
    Mutation(
        "hooks-left-to-django",
        "A hook that raises keeps Django from calling the others.",
        f"{ROOM}/django.py",
        "self._commit_hooks, django.run_on_commit = django.run_on_commit, []",
        "self._commit_hooks = []",
        (f"{DJANGO}::test_a_failing_hook_does_not_keep_other_hooks_from_being_called",),
    ),
    Mutation(
        "models-of-another-database",
        "Models write in another database than the cursor's: saves are refused, and nobody is told why.",
        f"{ROOM}/django.py",
        "if theirs != ours:",
        "if False:",
        (f"{DJANGO}::test_the_database_of_the_alias_must_be_that_of_the_outbox",),
    ),
    Mutation(
        "cancelled-by-a-stop-and-charged",
        "A stop cancels an async handler, and the event has failed.",
        f"{ROOM}/async_psycopg.py",
        "            ending_tasks.add(self._task)\n",
        "",
        (f"{AWAITED}::test_a_stop_cancels_running_handlers_and_charges_no_event",),
    ),
    Mutation(
        "flush-within-our-deadline",
        "What a session sends when its handler has returned may take no longer than a statement of partbox.",
        f"{ROOM}/sqlalchemy.py",
        "            with allow_long_statements(self.conn):\n                joined.prepare()",
        "            if True:\n                joined.prepare()",
        (
            f"{HANGING}::test_effects_that_hang_are_cut_and_run_again_while_a_handlers_own_statement_may_take_its_time"
            "[SQLAlchemy]",
        ),
    ),
    Mutation(
        "prepared-behind-a-pooler",
        "Statements of handlers are prepared in sessions that a pooler hands to others.",
        "partbox/db/connect.py",
        "prepare_threshold = PREPARE_THRESHOLD if is_lent and not pooler else None",
        "prepare_threshold = PREPARE_THRESHOLD if is_lent else None",
        (
            "tests/worker/runners/test_effects.py::test_statements_that_handlers_repeat_are_prepared_except_behind_a_pooler[psycopg-True]",
        ),
    ),
)
