"""Connections: those that hang, and those that outlive the server behind a pooler."""

from mutations.mutation import Mutation

DEADLINE = "partbox/db/deadline.py"
CURSORS = "sql/queries/cursors.sql"
HANGING = "tests/worker/test_hanging_connections.py"
LIFE = "tests/db/delivery/test_life.py"

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
        "        self._sessions.hurry(timeout)\n",
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
        (f"{LIFE}::test_a_save_in_another_life_writes_nothing_and_is_a_lost_connection",),
    ),
    Mutation(
        "look-in-another-life",
        "Behind a pooler ids that a crash has lost, and that come again, would be taken for consumed.",
        "partbox/db/delivery/looks.py",
        "    life.check(conn, alive == value)\n",
        "",
        (f"{LIFE}::test_reading_in_another_life_is_a_lost_connection",),
    ),
)
