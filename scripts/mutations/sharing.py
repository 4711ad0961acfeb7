"""What the threads of one process share: the queues of lanes, the lock, a fork, a loop."""

from mutations.mutation import Mutation, scenario

RUNS = "tests/worker/engine/test_runs.py"
FORKS = "tests/worker/runners/test_forks.py::test_a_fork_in_a_handler_repeats_nothing_and_leaves_nothing_behind"

MUTATIONS = (
    Mutation(
        "hold-from-the-left",
        "The runner takes from the left without the lock: what it takes meanwhile runs before what was held.",
        "partbox/worker/engine/partition.py",
        "taken.append(self.queue.pop())",
        "taken.append(self.queue.popleft())",
        ("tests/worker/engine/test_lanes.py::test_parking_a_lane_while_a_runner_takes_its_first_event_holds_the_rest",),
    ),
    Mutation(
        "sorted-from-the-left",
        "The same, while the line is sorted.",
        "partbox/worker/engine/partition.py",
        "taken.append(self.queue.pop())",
        "taken.append(self.queue.popleft())",
        (
            "tests/worker/engine/test_lanes.py::test_splitting_a_shared_lane_while_a_runner_takes_its_first_event_moves_the_rest",
        ),
    ),
    Mutation(
        "put-back-unseen",
        "An event in a runner's hands is not in the queue when that is held: put back, it passes what came before it.",
        "partbox/worker/engine/outcomes.py",
        "if chains and lane.would_overtake(event):",
        "if False:",
        (scenario("put_back_behind_a_replay"),),
    ),
    Mutation(
        "chain-without-a-second-look",
        "What fails while its followers are fetched is parked behind them.",
        "partbox/worker/engine/parked_scheduler.py",
        "in_line = chain.select_in_line(rows)",
        "in_line = list(rows)",
        (scenario("fails_while_followers_are_fetched"),),
    ),
    Mutation(
        "line-beside-lanes",
        "Events join the line while lanes have some: the new ones of a key run before those that wait in its lane.",
        "partbox/worker/engine/intake.py",
        "and partition.may_share_lane and",
        "and",
        (scenario("put_back_into_a_sorted_line"),),
    ),
    Mutation(
        "line-holds-all",
        "An event of a line fails: all that is behind it in the line is parked, whatever its key.",
        "partbox/worker/engine/outcomes.py",
        "elif partition.parked.park(event, verdict).blocks:\n            lane.find_lane_behind(event).park_waiting()",
        "elif partition.parked.park(event, verdict).blocks:\n            lane.park_waiting()",
        (scenario("line"),),
    ),
    Mutation(
        "line-put-back",
        "A line is sorted while its runner has an event in hand: put back, it runs after those that came after it.",
        "partbox/worker/engine/outcomes.py",
        "if chains or not partition.may_share_lane:",
        "if chains:",
        (
            "tests/worker/engine/test_lanes.py::test_an_event_that_is_put_back_goes_before_the_rest_of_its_meanwhile_split_shared_lane",
        ),
    ),
    Mutation(
        "put-back-into-the-line",
        "An event of a line is put back when its key has just been blocked: in the line it does not wait for that.",
        "partbox/worker/engine/outcomes.py",
        "if chains or not partition.may_share_lane:",
        "if not partition.may_share_lane:",
        (
            "tests/worker/engine/test_lanes.py::test_the_last_event_of_a_shared_lane_is_held_if_its_key_is_blocked_when_it_is_put_back",
        ),
    ),
    Mutation(
        "line-of-an-old-claim",
        "A handler is given the fencing number of before the connection was lost.",
        "partbox/worker/runners/lane_runner.py",
        "                outcomes.record_done(lane)\n                claim = lane.claim",
        "                outcomes.record_done(lane)",
        (scenario("line"),),
    ),
    Mutation(
        "line-of-an-old-claim-after-a-failure",
        "What ended oddly has taken the lane over: the runner does not see that it was read anew.",
        "partbox/worker/runners/lane_runner.py",
        "settle_result(lane, endpoint, event, result, tally)\n                claim = lane.claim",
        "settle_result(lane, endpoint, event, result, tally)",
        (scenario("line"),),
    ),
    Mutation(
        "sorted-and-forgotten",
        "A line is sorted into lanes while it runs: nobody says that these have something to do.",
        "partbox/worker/engine/scheduler.py",
        "elif isinstance(lane, SharedLane):",
        "elif False:",
        (scenario("line"),),
    ),
    Mutation(
        "idle-and-uncounted",
        "A runner that found nothing waits, and nobody knows that it is to be called.",
        "partbox/worker/engine/scheduler.py",
        "self._idle_count += waits",
        "pass",
        (f"{RUNS}::test_some_runner_always_looks_for_a_ready_lane_in_any_order_of_steps",),
    ),
    Mutation(
        "place-lost",
        "A handler of the event loop ends while lanes wait for a place: no runner looks for them.",
        "partbox/worker/engine/scheduler.py",
        "self._end_lanes(lanes)\n        self._fill_slot()",
        "self._end_lanes(lanes)",
        (f"{RUNS}::test_some_runner_always_looks_for_a_ready_lane_in_any_order_of_steps",),
    ),
    Mutation(
        "place-left-to-one",
        "Two handlers of the event loop end at once: the one runner that is hired looks for both, one after the other.",
        "partbox/worker/engine/scheduler.py",
        "if not self._call_runner() and self._ready_queue:",
        "if not self._call_runner() and False:",
        (f"{RUNS}::test_two_slots_that_get_free_at_once_bring_two_runners",),
    ),
    Mutation(
        "stopped-and-uncalled",
        "Runners that wait do not hear that the worker stops.",
        "partbox/worker/engine/scheduler.py",
        "while self._call_runner():",
        "while False:",
        (f"{RUNS}::test_a_stop_calls_every_waiting_runner_and_no_lane_begins_any_more",),
    ),
    Mutation(
        "lanes-for-good",
        "What is sorted out of a line and held leaves an empty lane: its partition has no line any more.",
        "partbox/worker/engine/partition.py",
        "if lane.queue or lane.is_active}",
        "}",
        (
            "tests/worker/engine/test_lanes.py::test_a_partition_may_use_its_shared_lane_again_after_its_split_lanes_are_held",
        ),
    ),
    Mutation(
        "parked-beside-itself",
        "An event that runs through a lost connection is read again: parked beside itself, it blocks its key.",
        "partbox/worker/engine/outcomes.py",
        "if partition.incarnation != lane.incarnation or partition.epoch != event.epoch:",
        "if False:",
        (scenario("runs_through_a_lost_connection"),),
    ),
    Mutation(
        "tick-without-the-lock",
        "The saver drops a partition while the poller goes through them all: the poller's end.",
        "partbox/worker/engine/claims.py",
        "    @under_lock\n    def note_tick(",
        "    def note_tick(",
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
        "        call_when_forked(self.dispatcher.disown)\n",
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
        "        if self._engine.is_forked:",
        "        if False:",
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
        "partbox/worker/runners/pool_guard.py",
        "elif before is not loop and (before in handler_loops or loop in handler_loops):",
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
        "self.wrapped_call = guard_other_writes(self.wrapped_call)",
        "pass",
        ("tests/django/test_orm_in_handlers.py::test_a_worker_without_the_django_app_refuses_writes_of_the_orm_too",),
    ),
    Mutation(
        "the-event-loop-waits-for-the-interpreter",
        "After each wait of its handlers the event loop waits for up to 5 ms until threads let it go on.",
        "partbox/supervisor/child.py",
        "    if is_async:",
        "    if not is_async:",
        ("tests/supervisor/test_switch_interval.py",),
    ),
)
