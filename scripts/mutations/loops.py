"""The event loop of the application: handlers run in it as guests, and it is not blocked, starved or left too early."""

from mutations.mutation import Mutation

HOSTS = "partbox/worker/runners/loop_hosts.py"
EMBEDDED = "partbox/supervisor/embedded.py"
HERE = "tests/worker/runners/test_application_loop.py"
ENDS = "tests/worker/runners/test_application_loop_ends.py"
SLICES = f"{ENDS}::test_all_async_runners_of_a_loop_share_one_slice_of_each_round"

MUTATIONS = (
    Mutation(
        "slice-for-each-walker",
        "Each of a hundred walkers has a slice of its own, and the application waits for all of them.",
        HOSTS,
        "if self._has_round_passed and began > self._slice_end:",
        "if True:",
        (SLICES,),
    ),
    Mutation(
        "slice-in-each-round-twice",
        "Walkers begin one slice after the other, and never let the loop make its round.",
        HOSTS,
        "            self._has_round_passed = False\n",
        "",
        (SLICES,),
    ),
    Mutation(
        "walkers-called-once",
        "A walker that has its turn does not have the next one called: it waits though the loop is free.",
        HOSTS,
        "        self.loop.call_soon(self._wake_next)\n",
        "        pass\n",
        (f"{ENDS}::test_waiting_async_runners_are_called_one_after_the_other_as_long_as_the_slice_lasts",),
    ),
    Mutation(
        "ctrl-c-of-a-handler",
        "A Ctrl-C that meets a handler in the main thread is its error, charged, and gone.",
        "partbox/worker/runners/settlement.py",
        "        self.raise_interrupt(result)\n",
        "",
        (f"{ENDS}::test_ctrl_c_in_a_handler_is_for_the_application[False-True]",),
    ),
    Mutation(
        "bundle-past-its-slice",
        "A lone walker goes through its 64 lanes, however long ago its slice was over.",
        "partbox/worker/runners/dispatcher.py",
        "                        break\n",
        "                        pass\n",
        (f"{ENDS}::test_the_application_has_its_turn_while_handlers_that_never_wait_have_a_backlog[asyncio-1]",),
    ),
    Mutation(
        "end-of-the-program-charged",
        "A program that ends cancels all tasks, and each event in progress has an attempt less.",
        "partbox/worker/runners/event_loop.py",
        "if must_end(task):\n                raise asyncio.CancelledError from error",
        "if task in ending_tasks:\n                raise asyncio.CancelledError from error",
        (f"{ENDS}::test_an_application_that_ends_without_leaving_its_worker_ends_it_and_charges_nothing[asyncio]",),
    ),
    Mutation(
        "closed-loop-unnoticed",
        "The application closes its loop: the worker keeps its lease, and its events wait for ever.",
        HOSTS,
        "        except RuntimeError:\n            self._is_closed = True\n\n    def submit",
        "        except RuntimeError:\n            pass\n\n    def submit",
        (f"{ENDS}::test_a_loop_that_is_closed_under_the_worker_ends_it",),
    ),
    Mutation(
        "left-before-its-end",
        "Who is cancelled while it leaves goes on at once, and closes what handlers use.",
        "partbox/supervisor/embedded.py",
        "            cancelling = error\n",
        "            raise\n",
        (
            f"{HERE}::test_a_cancelled_application_leaves_in_order_and_one_that_is_cancelled_again_leaves_at_once[asyncio]",
        ),
    ),
    Mutation(
        "entered-by-nobody",
        "Who is cancelled while it enters leaves a worker behind that delivers on.",
        EMBEDDED,
        "            await run_in_thread(self.stop)\n",
        "            pass\n",
        (f"{HERE}::test_an_application_that_is_cancelled_while_it_enters_leaves_no_worker_behind[asyncio]",),
    ),
    Mutation(
        "stop-in-the-loop",
        "A stop blocks the loop in which the handlers must end that it waits for.",
        EMBEDDED,
        "asyncio._get_running_loop() is self._loop.application_loop:",
        "False:",
        (f"{HERE}::test_calls_that_would_block_the_loop_are_refused_with_the_remedy",),
    ),
    Mutation(
        "context-of-a-thread",
        "Handlers in the application's loop do not see its context variables.",
        "partbox/worker/worker.py",
        "context, entered = self._context, copy_context()",
        "context, entered = self._context, type(copy_context())()",
        (f"{HERE}::test_async_handlers_run_in_the_loop_that_entered_and_sync_ones_in_threads[asyncio]",),
    ),
    Mutation(
        "child-in-the-application",
        "A process that a handler forked in the application's loop goes on there as a second application.",
        HOSTS,
        "        if frame is not None:\n            _exit_with_loop",
        "        if False:\n            _exit_with_loop",
        (
            "tests/worker/runners/test_forks.py"
            "::test_a_fork_in_a_handler_repeats_nothing_and_leaves_nothing_behind[application-asyncio]",
        ),
    ),
    Mutation(
        "pools-given-to-nobody",
        "Handlers with a loop of their own take a pool that the application has made and not used yet.",
        HOSTS,
        "pool_guard.guard_pools(self._other_loop)",
        "pool_guard.guard_pools()",
        (
            "tests/worker/runners/test_two_loops.py"
            "::test_a_handler_that_uses_the_pool_of_the_application_is_refused_and_the_application_goes_on"
            "[sqlalchemy, psycopg-idle]",
        ),
    ),
)
