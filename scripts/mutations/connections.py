"""Connections: those that hang, and those that outlive the server behind a pooler."""

from mutations.mutation import Mutation

DEADLINE = "partbox/db/deadline.py"
CURSORS = "sql/queries/cursors.sql"
HANGING = "tests/worker/saver/test_hanging_connections.py"
UNKNOWN = "tests/publish/integrations/test_unknown_ends.py"
INSTANCES = "sql/queries/instances.sql"
MARKS = "tests/cluster/test_marks.py"
LIFE = "tests/db/delivery/test_server_incarnation.py"

MUTATIONS = (
    Mutation(
        "statement-without-a-deadline",
        "A proxy that hangs, or a backend that is stopped, would stall the process for ever.",
        DEADLINE,
        "                end.shutdown(socket.SHUT_RDWR)",
        "                pass",
        (f"{HANGING}::test_a_backend_that_is_stopped_costs_no_events",),
    ),
    Mutation(
        "stop-that-waits-for-a-connection-that-hangs",
        "With a short drain timeout what is done would not be saved, and be delivered again.",
        "partbox/worker/worker.py",
        "        self._sessions.limit_statements(timeout)\n",
        "",
        (f"{HANGING}::test_a_stop_shorter_than_a_deadline_saves_over_another_connection_too",),
    ),
    Mutation(
        "poller-and-saver-judged-together",
        "A process that saves and does not read, or the other way round, would keep its partitions for ever.",
        "partbox/supervisor/worker_handle.py",
        "now - max(min(ticks), since)",
        "now - max(max(ticks), since)",
        ("tests/supervisor/test_hanging_node.py::test_poller_and_saver_are_each_judged_by_their_own_tick",),
    ),
    Mutation(
        "save-in-another-life",
        "Behind a pooler an owner would save cursors that lie above what a crash has left.",
        CURSORS,
        "case when life.same then %(me)s::uuid end",
        "%(me)s::uuid",
        (f"{LIFE}::test_a_save_in_another_server_incarnation_writes_nothing_and_is_a_lost_connection",),
    ),
    Mutation(
        "look-in-another-life",
        "Behind a pooler ids that a crash has lost, and that come again, would be taken for consumed.",
        "partbox/db/delivery/idle_check.py",
        "    server_incarnation.check_incarnation(conn, alive == value)\n",
        "",
        (f"{LIFE}::test_reading_in_another_server_incarnation_is_a_lost_connection",),
    ),
    Mutation(
        "unanswered-commit-told-as-a-rollback",
        "A hook would undo what has committed: PostgreSQL does not stop for a client that is gone.",
        "partbox/publish/transaction_outcome.py",
        "        return Outcome.COMMITTED if error is None else Outcome.UNKNOWN",
        "        return Outcome.COMMITTED if error is None else Outcome.ROLLED_BACK",
        (f"{UNKNOWN}::test_hooks_hear_nothing_of_a_commit_whose_connection_is_cut",),
    ),
    Mutation(
        "fatal-error-told-as-a-rollback",
        "A session that waited for a synchronous standby has committed when it is ended.",
        "partbox/publish/failures.py",
        'and not code.startswith(_OF_LOST_SESSIONS) and _severity_of(error) == "ERROR"',
        "",
        (f"{UNKNOWN}::test_a_session_that_is_terminated_during_its_commit_is_not_reported_as_a_rollback",),
    ),
    Mutation(
        "copy-left-open",
        "A cancelled request would leave a transaction open that takes no statement any more.",
        "partbox/publish/transaction.py",
        "            conn.pgconn.finish()",
        "            pass",
        (f"{UNKNOWN}::test_a_request_that_is_cancelled_during_copy_leaves_no_transaction_open",),
    ),
    Mutation(
        "rewrite-taken-for-a-copy",
        "After pg_repack every worker would end at its next connection.",
        INSTANCES,
        "coalesce(mark.marked or mark.own or mark.catalog, false)",
        "coalesce(mark.marked, false)",
        (f"{MARKS}::test_a_rewritten_table_is_not_taken_for_a_copy_and_is_marked_anew",),
    ),
    Mutation(
        "copy-taken-for-a-rewrite",
        "A restored dump would pass for the original, and its workers would lose events.",
        INSTANCES,
        "s.value like m.xid || ' ' || a.xmin || ' %%' and s.xmin = m.xmin as catalog",
        "s.value like m.xid || ' %%' and s.xmin = m.xmin as catalog",
        (f"{MARKS}::test_a_database_that_has_lost_all_witnesses_is_refused_until_it_is_rebased",),
    ),
    Mutation(
        "copy-marked-as-an-original",
        "A restored dump would pass for the original once a session had looked at it.",
        "sql/functions/mark.sql",
        "or s.value like m.xid || ' ' || a.xmin || ' %' and s.xmin = m.xmin)",
        "or s.value like m.xid || ' %' and s.xmin = m.xmin)",
        (f"{MARKS}::test_a_database_that_has_lost_all_witnesses_is_refused_until_it_is_rebased",),
    ),
    Mutation(
        "witnesses-noted-once",
        "A second rewrite, or pg_upgrade after a rewrite, would make a copy of the original.",
        "partbox/db/connect.py",
        "    if any(worn) and conn",
        "    if not worn and conn",
        (f"{MARKS}::test_a_rewritten_table_is_not_taken_for_a_copy_and_is_marked_anew",),
    ),
)
