"""The bell: who sleeps for how long, who rings, and what a worker or a publisher must not remember."""

from mutations.mutation import Mutation, scenario

RULES = "partbox/protocol/bell.py"
MODEL = "tests/protocol/test_bell.py"
RINGS = "tests/publish/integrations/test_rings.py"
WAKING = "tests/worker/poller/test_waking.py"
HEARD_TIME = f"{MODEL}::test_no_event_waits_longer_than_a_short_nap_when_every_ring_is_heard"
ASLEEP = f"{MODEL}::test_no_event_waits_longer_than_a_nap_whatever_rings_are_lost"

MUTATIONS = (
    Mutation(
        "asleep-at-once",
        "Who has just heard that nobody sleeps does not ask, and rings nobody.",
        RULES,
        "HEARD_TIME = 0.040",
        "HEARD_TIME = 0.0",
        (HEARD_TIME,),
    ),
    Mutation(
        "a-full-nap-beside-an-open-transaction",
        "A transaction that asked before the flag was up, and commits after the last look, rings nobody.",
        RULES,
        "return self._nap if self._is_settled else SHORT_NAP",
        "return NAP",
        (HEARD_TIME, f"{MODEL}::test_while_an_id_is_drawn_and_not_committed_the_nap_is_short"),
    ),
    Mutation(
        "settled-whatever-is-open",
        "The floor of the page tells that an id is drawn and not committed; the reader does not say so.",
        "partbox/worker/poller/log_poll.py",
        "self._horizon.shared_page.floor == check.fence.drawn_id",
        "True",
        (scenario("bell"),),
    ),
    Mutation(
        "nobody-sleeps-remembered-from-the-answer",
        "A statement may be on its way for long: what it heard is as old as the statement.",
        "partbox/publish/bell.py",
        "self._memory.note_answer(self._sent_at, bool(rows[0][-1]))",
        "self._memory.note_answer(time.monotonic(), bool(rows[0][-1]))",
        (f"{RINGS}::test_the_age_of_an_answer_counts_from_when_the_publisher_asked",),
    ),
    Mutation(
        "a-ring-remembered",
        "A rollback to a savepoint takes the ring back, and nobody rings again.",
        RULES,
        "if not rang:",
        "if rang or not rang:",
        (
            f"{MODEL}::test_a_publisher_that_heard_that_nobody_sleeps_does_not_ask_again_for_a_moment",
            f"{RINGS}::test_a_ring_that_is_rolled_back_is_not_remembered",
        ),
    ),
    Mutation(
        "a-flag-left-up-for-busy-publishers",
        "One idle worker costs all who publish most of their rate.",
        RULES,
        "        if self._is_busy(now, seen.drawn_id) and seen.flag_seconds:\n            return FlagChange.LOWER\n",
        "        self._is_busy(now, seen.drawn_id)\n",
        (
            f"{MODEL}::test_a_wakeup_does_not_lower_the_flag_but_a_log_that_moves_on_does",
            f"{WAKING}::test_an_awake_worker_lowers_the_flag_that_busy_publishers_find_up_and_sleeping_workers_wake",
        ),
    ),
    Mutation(
        "lowered-and-nobody-called",
        "Others sleep on, and nobody rings for them any more.",
        "partbox/db/delivery/bell.py",
        "    notify_listeners(conn, schema, RING_BACK)",
        "    return",
        (f"{WAKING}::test_an_awake_worker_lowers_the_flag_that_busy_publishers_find_up_and_sleeping_workers_wake",),
    ),
    Mutation(
        "raised-for-less-than-by-another",
        "Who raises the flag for less than another has leaves that one asleep without a flag.",
        "sql/queries/bell.sql",
        "greatest(now + %(ahead)s::bigint, case when up between 1 and 3000 then now + up end)",
        "now + %(ahead)s::bigint",
        (f"{WAKING}::test_raising_the_flag_does_not_shorten_what_another_worker_has_raised",),
    ),
    Mutation(
        "a-flag-that-is-up-for-less-than-the-nap",
        "Who has few partitions sleeps for two seconds, and for one of them nobody rings.",
        RULES,
        "FLAG_TIME = 2.400\n",
        "FLAG_TIME = 0.950\n",
        (f"{MODEL}::test_the_flag_is_up_for_longer_than_any_nap_and_never_further_ahead_than_a_publisher_believes",),
    ),
    Mutation(
        "a-long-nap-of-who-hears-nothing",
        "Where the bell is off nobody tells of a plan, and partitions wait for two seconds.",
        "partbox/protocol/intervals.py",
        "    if not calm:\n",
        "    if False:\n",
        (
            "tests/protocol/test_ticks.py::test_a_process_that_would_miss_a_plan_or_runs_a_handler_ticks_at_the_usual_interval",
        ),
    ),
    Mutation(
        "a-tick-as-late-as-the-last-one-said",
        "A calm process that parks an event without aggregate looks for it after the rest of two seconds.",
        "partbox/worker/poller/poller.py",
        "        self._tick_at = min(self._tick_at, self._ticked_at + most)",
        "        self._tick_at = min(self._tick_at, self._tick_at)",
        (
            "tests/worker/poller/test_long_naps.py::"
            "test_a_parked_event_that_blocks_nothing_runs_when_it_is_due_though_its_process_rarely_ticks",
        ),
    ),
    Mutation(
        "up-however-far-ahead",
        "A clock that is set back leaves the flag up: all who publish ring, for as long as it was set back.",
        "sql/queries/bell.sql",
        "from (select to_regclass({bell}) as sequence offset 0) as bell) between 1 and 3000",
        "from (select to_regclass({bell}) as sequence offset 0) as bell) >= 1",
        (f"{RINGS}::test_a_flag_that_is_over_or_that_a_clock_left_far_ahead_rings_nobody",),
    ),
    Mutation(
        "asked-before-the-ids-are-drawn",
        "A worker that falls asleep in between sees no id drawn, and sleeps for a full nap.",
        "sql/queries/publish.sql",
        "case when events < %(number)s::bigint then {unwritten} else {rings_many} end\n"
        "  from (select count(*) from written) as written (events)",
        "{rings_many}",
        (f"{RINGS}::test_a_publisher_reads_the_flag_after_the_ids_are_drawn",),
    ),
    Mutation(
        "raised-where-transactions-are-prepared",
        "A ring makes PREPARE TRANSACTION fail.",
        RULES,
        'if prepared and wanted != "on":',
        'if prepared and wanted == "never":',
        (
            f"{MODEL}::test_the_bell_is_off_where_a_ring_cannot_come_or_would_break_something",
            f"{WAKING}::test_nobody_listens_or_raises_the_flag_where_the_bell_is_off",
        ),
    ),
    Mutation(
        "asleep-though-deaf",
        "LISTEN behind a pooler, or in another database, succeeds, and nothing is ever heard.",
        "partbox/worker/poller/listener.py",
        "        self._probe_awaited = self._probe_to_send = uuid4().hex\n",
        "        self._probe_awaited = self._probe_to_send = uuid4().hex\n        self.is_hearing = True\n",
        (f"{WAKING}::test_a_worker_that_listens_to_another_database_hears_nothing_and_does_not_sleep",),
    ),
    Mutation(
        "deaf-while-no-session-can-be-had",
        "What a listener does not read fills the server's queue of notifications, and then nobody can publish.",
        "partbox/worker/poller/poller.py",
        "self.pacer.listener.read_notifications()\n            self._pause_after_failure()\n\n    def _pause",
        "self._pause_after_failure()\n\n    def _pause",
        (
            "tests/worker/poller/test_rings_in_trouble.py::test_a_worker_that_cannot_read_still_receives_its_notifications",
        ),
    ),
    Mutation(
        "deaf-while-statements-fail",
        "The same where the connection lives on.",
        "partbox/worker/poller/poller.py",
        "self.pacer.listener.read_notifications()\n            self._pause_after_failure()\n\n    def run_step",
        "self._pause_after_failure()\n\n    def run_step",
        (
            "tests/worker/poller/test_rings_in_trouble.py::test_a_worker_that_cannot_read_still_receives_its_notifications",
        ),
    ),
    Mutation(
        "asleep-on-a-lost-connection",
        "Nobody can wake who does not listen.",
        "partbox/worker/poller/listener.py",
        "        self.is_hearing, self._probe_to_send = False, None\n        self._wakeup.interrupt_poller()\n",
        "        self._probe_to_send = None\n",
        (f"{WAKING}::test_a_lost_connection_of_the_listener_wakes_its_worker_and_is_replaced",),
    ),
    Mutation(
        "a-flag-that-was-down-in-between",
        "Who asked while it was down heard that nobody sleeps, and believes it.",
        RULES,
        "self._is_flag_up = self._is_flag_up and was_up and now < self._until",
        "pass",
        (f"{MODEL}::test_a_flag_that_was_down_in_between_is_raised_as_the_first",),
    ),
    Mutation(
        "asleep-under-a-flag-that-ends-before",
        "What comes after its end rings for nobody, and waits for the rest of the nap.",
        RULES,
        "if now + nap >= until:",
        "if now >= until:",
        (
            f"{MODEL}::test_a_worker_does_not_raise_a_flag_that_is_up_long_enough_but_stays_awake_as_if_it_had",
            f"{MODEL}::test_no_event_waits_longer_than_a_short_nap_when_every_ring_is_heard",
        ),
    ),
    Mutation(
        "asleep-at-once-under-the-flag-of-another",
        "Since when it is up is not known: who asked before heard that nobody sleeps, and has not committed yet.",
        RULES,
        "            self._is_flag_up, self._up_from = True, now\n",
        "            self._is_flag_up = True\n",
        (
            f"{MODEL}::test_a_worker_does_not_raise_a_flag_that_is_up_long_enough_but_stays_awake_as_if_it_had",
            f"{MODEL}::test_no_event_waits_longer_than_a_short_nap_when_every_ring_is_heard",
        ),
    ),
    Mutation(
        "rings-into-a-full-queue",
        "A session of some other program fails every business transaction that publishes.",
        "sql/queries/bell.sql",
        "(pg_notification_queue_usage() < 0.5)",
        "(pg_notification_queue_usage() <= 1)",
        (
            f"{RINGS}::test_no_library_fails_for_a_ring_that_cannot_be_sent",
            f"{RINGS}::test_sql_does_not_fail_for_a_ring_that_cannot_be_sent",
            "tests/db/operator/test_changes_are_told.py::test_a_change_is_made_without_a_notification_while_the_notification_queue_is_full",
        ),
    ),
    Mutation(
        "asleep-though-nobody-may-ring",
        "An event waits for the rest of each nap, while a queue is full.",
        "partbox/worker/poller/pacing.py",
        "        self._queue_full_until = now + QUEUE_FULL_PAUSE\n",
        "        self._queue_full_until = 0.0\n",
        (
            "tests/worker/poller/test_rings_in_trouble.py::test_a_worker_waits_out_a_full_queue_before_it_raises_the_flag_again",
        ),
    ),
    Mutation(
        "asleep-with-a-backlog",
        "What was not read for want of room is unread, whatever the log does.",
        "partbox/worker/poller/log_poll.py",
        "if not groups.behind:\n            settled",
        "if True:\n            settled",
        (scenario("bell"),),
    ),
)
