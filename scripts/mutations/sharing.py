"""What the threads of one process share: the queues of lanes, the lock, a fork, a loop."""

from mutations.mutation import Mutation, scenario

RUNS = "tests/worker/engine/test_runs.py"
FORKS = "tests/worker/runners/test_forks.py::test_whatever_forks_in_a_handler_nothing_is_repeated_or_left_behind"

MUTATIONS = (
    Mutation(
        "hold-from-the-left",
        "The runner takes from the left without the lock: what it takes meanwhile runs before what was held.",
        "partbox/worker/engine/partition.py",
        "taken.append(self.queue.pop())",
        "taken.append(self.queue.popleft())",
        ("tests/worker/engine/test_lanes.py::test_what_is_held_while_a_runner_takes_the_next_are_the_last_ones",),
    ),
    Mutation(
        "sorted-from-the-left",
        "The same, while the line is sorted.",
        "partbox/worker/engine/partition.py",
        "taken.append(self.queue.pop())",
        "taken.append(self.queue.popleft())",
        ("tests/worker/engine/test_lanes.py::test_what_is_sorted_while_a_runner_takes_the_next_are_the_last_ones",),
    ),
    Mutation(
        "put-back-unseen",
        "An event in a runner's hands is not in the queue when that is held: put back, it passes what came before it.",
        "partbox/worker/engine/outcomes.py",
        "if chains and lane.overtakes(event):",
        "if False:",
        (scenario("put_back_behind_a_replay"),),
    ),
    Mutation(
        "chain-without-a-second-look",
        "What fails while its followers are fetched is parked behind them.",
        "partbox/worker/engine/parked_turns.py",
        "in_line = chain.in_line(rows)",
        "in_line = list(rows)",
        (scenario("fails_while_followers_are_fetched"),),
    ),
    Mutation(
        "line-beside-lanes",
        "Events join the line while lanes have some: the new ones of a key run before those that wait in its lane.",
        "partbox/worker/engine/intake.py",
        "and partition.lined_up and",
        "and",
        (scenario("put_back_into_a_sorted_line"),),
    ),
    Mutation(
        "line-holds-all",
        "An event of a line fails: all that is behind it in the line is parked, whatever its key.",
        "partbox/worker/engine/outcomes.py",
        "elif partition.parked.park(event, verdict).blocks:\n            lane.behind(event).hold_rest()",
        "elif partition.parked.park(event, verdict).blocks:\n            lane.hold_rest()",
        (scenario("line"),),
    ),
    Mutation(
        "line-put-back",
        "A line is sorted while its runner has an event in hand: put back, it runs after those that came after it.",
        "partbox/worker/engine/outcomes.py",
        "if chains or not partition.lined_up:",
        "if chains:",
        (
            "tests/worker/engine/test_lanes.py::test_what_is_put_back_goes_before_the_rest_of_its_line_that_was_sorted_meanwhile",
        ),
    ),
    Mutation(
        "put-back-into-the-line",
        "An event of a line is put back when its key has just been blocked: in the line it does not wait for that.",
        "partbox/worker/engine/outcomes.py",
        "if chains or not partition.lined_up:",
        "if not partition.lined_up:",
        (
            "tests/worker/engine/test_lanes.py::test_the_last_of_a_line_is_held_if_its_key_is_blocked_when_it_is_put_back",
        ),
    ),
    Mutation(
        "line-of-an-old-claim",
        "A handler is given the fencing number of before the connection was lost.",
        "partbox/worker/runners/lane_runner.py",
        "                outcomes.take_over(lane)\n                claim = lane.claim",
        "                outcomes.take_over(lane)",
        (scenario("line"),),
    ),
    Mutation(
        "line-of-an-old-claim-after-a-failure",
        "What ended oddly has taken the lane over: the runner does not see that it was read anew.",
        "partbox/worker/runners/lane_runner.py",
        "                claim = lane.claim  # the lane was taken over with it",
        "                # the lane was taken over with it",
        (scenario("line"),),
    ),
    Mutation(
        "sorted-and-forgotten",
        "A line is sorted into lanes while it runs: nobody says that these have something to do.",
        "partbox/worker/engine/runs.py",
        "elif isinstance(lane, SharedLane):",
        "elif False:",
        (scenario("line"),),
    ),
    Mutation(
        "idle-and-uncounted",
        "A runner that found nothing waits, and nobody knows that it is to be called.",
        "partbox/worker/engine/runs.py",
        "self._idle += waits  # whoever calls takes it off again",
        "pass",
        (f"{RUNS}::test_whatever_comes_first_a_lane_that_is_ready_is_looked_for",),
    ),
    Mutation(
        "place-lost",
        "A handler of the event loop ends while lanes wait for a place: no runner looks for them.",
        "partbox/worker/engine/runs.py",
        "self._end(lanes)\n        self._call()",
        "self._end(lanes)",
        (f"{RUNS}::test_whatever_comes_first_a_lane_that_is_ready_is_looked_for",),
    ),
    Mutation(
        "stopped-and-uncalled",
        "Runners that wait do not hear that the worker stops.",
        "partbox/worker/engine/runs.py",
        "while self._call():",
        "while False:",
        (f"{RUNS}::test_a_stop_calls_whoever_waits_and_nothing_begins_any_more",),
    ),
    Mutation(
        "lanes-for-good",
        "What is sorted out of a line and held leaves an empty lane: its partition has no line any more.",
        "partbox/worker/engine/partition.py",
        "if lane.queue or lane.active}",
        "}",
        ("tests/worker/engine/test_lanes.py::test_after_what_was_sorted_is_held_there_is_a_line_again",),
    ),
    Mutation(
        "parked-beside-itself",
        "An event that runs through a lost connection is read again: parked beside itself, it blocks its key.",
        "partbox/worker/engine/outcomes.py",
        "if partition.incarnation != lane.incarnation:  # read anew since: it comes again behind itself",
        "if False:",
        (scenario("runs_through_a_lost_connection"),),
    ),
    Mutation(
        "tick-without-the-lock",
        "The saver drops a partition while the poller goes through them all: the poller's end.",
        "partbox/worker/engine/claims.py",
        "@verb  # nothing is lost between",
        "# nothing is lost between",
        (
            "tests/worker/engine/test_lock_discipline.py"
            "::test_a_partition_that_is_released_during_a_tick_does_not_end_the_poller",
        ),
    ),
    Mutation(
        "cancelling-believed",
        "A handler that cancels its own task ends the walk of its lane, which nobody ever ends.",
        "partbox/worker/runners/event_loop.py",
        "if task is None or (",
        "if isinstance(error, asyncio.CancelledError) or task is None or (",
        (
            "tests/worker/runners/test_cancelled_handlers.py::test_whatever_an_async_handler_does_to_its_task_is_its_own_error_and_the_next_one_runs",
        ),
    ),
    Mutation(
        "cancelling-handed-on",
        "A cancelling that a handler asked for and did not wait for meets the next handler of its lane.",
        "partbox/worker/runners/event_loop.py",
        "            yield from _uncancel(task).__await__()\n",
        "            pass\n",
        (
            "tests/worker/runners/test_cancelled_handlers.py::test_whatever_an_async_handler_does_to_its_task_is_its_own_error_and_the_next_one_runs",
        ),
    ),
    Mutation(
        "child-that-walks-on",
        "A process that a handler forked would run the events of others, beside its parent.",
        "partbox/worker/worker.py",
        "        tell_forked(self.dispatcher.disown)\n",
        "        pass\n",
        (f"{FORKS}[embedded-asyncio]",),
    ),
    Mutation(
        "child-in-uvloop",
        "A process that an async handler forked goes on in uvloop, with what its parent has in hand there.",
        "partbox/worker/runners/loop_hosts.py",
        "    sys.setprofile(watch)\n",
        "",
        (f"{FORKS}[embedded-uvloop]",),
    ),
    Mutation(
        "async-child-that-awaits-on",
        "A process that an async handler forked goes back to the loop of its parent, and ends with an error.",
        "partbox/worker/runners/lane_runner.py",
        "        if self._engine.forked:  # nothing is walked on there",
        "        if False:  # nothing is walked on there",
        (f"{FORKS}[embedded-asyncio]",),
    ),
    Mutation(
        "sockets-inherited",
        "A child that forgets a connection takes leave of the server for its parent.",
        "partbox/db/connect.py",
        "            os.dup2(nothing, conn.fileno(), inheritable=False)\n",
        "            conn.fileno()\n",
        (
            "tests/db/test_inherited_connections.py"
            "::test_a_child_that_closes_a_connection_does_not_end_the_session_of_its_parent",
        ),
    ),
    Mutation(
        "pool-of-two-loops",
        "A handler takes a connection of the application's pool: requests share its transaction, or it crashes.",
        "partbox/worker/runners/two_loops.py",
        "elif before is not loop and (before in handling or loop in handling):",
        "elif False:",
        (
            "tests/worker/runners/test_two_loops.py"
            "::test_a_handler_that_uses_the_pool_of_the_application_is_refused_and_the_application_goes_on"
            "[sqlalchemy, psycopg-idle]",
        ),
    ),
    Mutation(
        "orm-beside-the-transaction",
        "What Django's ORM writes in a transactional handler is committed by itself, and again with the event.",
        "partbox/worker/runners/endpoint.py",
        "self.call = within_its_transaction(self.call)",
        "pass",
        ("tests/django/test_orm_in_handlers.py::test_a_worker_without_the_app_refuses_it_too",),
    ),
)
