"""Lifespans and dependencies: entered before handlers, left after them, where they run, and only for who asks."""

from mutations.mutation import Mutation

ENTERED = "tests/worker/runners/test_lifespan_entered.py"
PROVIDERS, LIFESPANS = "tests/handlers/test_providers.py", "tests/handlers/test_lifespans.py"
WORKER, LIVES = "partbox/worker/worker.py", "partbox/worker/runners/process_lifespan.py"
LEFT_AFTER = f"{ENTERED}::test_a_lifespan_is_entered_before_the_first_handler_and_left_after_the_last_of_any_kind"

MUTATIONS = (
    Mutation(
        "a-start-that-fails-after-joining",
        "A process whose lifespan cannot start owns partitions until its lease ends, and its events wait.",
        "partbox/supervisor/embedded.py",
        "        self._worker.lifespan.enter()\n        try:\n            self._membership.open()\n"
        "            self._membership.tick([self._registered_process])\n",
        "        try:\n            self._membership.open()\n            "
        "self._membership.tick([self._registered_process])\n"
        "            self._worker.lifespan.enter()\n",
        (f"{ENTERED}::test_a_lifespan_whose_start_fails_raises_its_error_before_anything_is_delivered[sync-embedded]",),
    ),
    Mutation(
        "a-start-that-fails-for-ever",
        "A client that cannot be made for a moment would end the whole node, and not only try again.",
        "partbox/supervisor/child.py",
        'worker.lifespan.log_error(error, "so nothing is delivered by this process, which ends")\n        return 1',
        'worker.lifespan.log_error(error, "so nothing is delivered by this process, which ends")\n        return FATAL',
        (
            "tests/cli/test_worker_lifespan.py::test_a_failing_lifespan_start_is_logged_in_one_line_and_retried_while_events_wait",
        ),
    ),
    Mutation(
        "left-under-running-transactions",
        "The clients of a transactional handler are closed while it uses them.",
        WORKER,
        "        transactions_ended = self.poller.end_transactions()\n        self.dead_letters.stop(until)\n"
        "        self.leave_lifespan(until)\n"
        "",
        "        self.leave_lifespan(until)\n        transactions_ended = self.poller.end_transactions()\n  "
        "      self.dead_letters.stop(until)\n",
        (f"{ENTERED}::test_a_lifespan_is_left_after_a_transaction_that_a_stop_waits_for",),
    ),
    Mutation(
        "a-loop-that-ends-first",
        "The loop is gone before its clients are closed, which never are.",
        WORKER,
        "        self.lifespan.leave(until - time.monotonic())\n        self.dispatcher.close()\n",
        "        self.dispatcher.close()\n        self.lifespan.leave(until - time.monotonic())\n",
        (f"{LEFT_AFTER}[async-embedded]",),
    ),
    Mutation(
        "left-when-it-is-entered",
        "The clients are closed before the first handler gets them.",
        LIVES,
        "                await self._wait_until_left()\n        except",
        "        except",
        (f"{LEFT_AFTER}[async-embedded]",),
    ),
    Mutation(
        "ended-by-a-handler",
        "A handler that cancels all tasks of its loop closes the clients of all others.",
        LIVES,
        "await (await_undisturbed(waiting) if self._loop.application_loop is None else waiting)",
        "await waiting",
        (f"{ENTERED}::test_a_handler_that_cancels_all_tasks_of_its_loop_does_not_end_the_lifespan",),
    ),
    Mutation(
        "who-asks-for-nothing-pays",
        "Every handler goes through the plan of those that need something.",
        "partbox/handlers/argument_plan.py",
        "        if not models and needs is None:\n            return None\n",
        "",
        (f"{LIFESPANS}::test_a_handler_that_asks_for_nothing_more_is_called_without_a_wrapper",),
    ),
    Mutation(
        "a-state-taken-for-a-payload",
        "A state that could be a payload is read from each event, which is dead then.",
        "partbox/handlers/registry.py",
        "planned = {key: _plan_registration(each, lifespan) for key, each in self._registered.items()}",
        "planned = dict(self._registered)",
        (f"{LIFESPANS}::test_a_class_that_could_be_a_payload_is_the_state_once_a_lifespan_yields_it",),
    ),
    Mutation(
        "an-async-provider-for-a-sync-handler",
        "A sync handler gets a coroutine that nobody awaits.",
        "partbox/handlers/dependencies.py",
        "    if not awaits and _is_async_provider(provider):",
        "    if False:",
        (f"{PROVIDERS}::test_a_provider_that_cannot_work_is_refused_at_registration",),
    ),
)
