"""Lists for batch handlers: who comes in one, and how they are noted together."""

from mutations.mutation import Mutation, scenario

TESTS = "tests/worker/runners/test_lists.py"

MUTATIONS = (
    Mutation(
        "parked-done-with-the-new",
        "A parked event that is done in a list has a row to delete.",
        "partbox/worker/engine/outcomes.py",
        "if partition.incarnation != incarnation or was_parked:",
        "if partition.incarnation != incarnation:",
        (scenario("list_that_runs_for_long"),),
    ),
    Mutation(
        "list-of-any-handler",
        "The events of a lane may be of several handlers, and a list is of one.",
        "partbox/worker/engine/outcomes.py",
        "if routes[event.record[ROUTE]] is not endpoint:",
        "if False:",
        (f"{TESTS}::test_a_list_holds_events_of_one_handler_only_and_a_key_keeps_its_order_across_handlers",),
    ),
    Mutation(
        "a-line-s-list-of-any-handler",
        "The rows of a line may be for several handlers, and a list is for one.",
        "partbox/worker/engine/outcomes.py",
        "    at = len(rows) if types is not None and to.accepts_types(types) else to.count_leading(rows)\n",
        "    at = len(rows)\n",
        ("tests/worker/engine/test_lanes.py::test_a_list_from_a_shared_lane_ends_before_an_event_for_another_handler",),
    ),
    Mutation(
        "a-list-amid-a-lost-connection",
        "What a list has done in a partition that is read anew comes again, and has to be known then.",
        "partbox/worker/engine/outcomes.py",
        "if partition.incarnation != incarnation or was_parked:",
        "if was_parked:",
        (scenario("list_over_a_lost_connection"),),
    ),
    Mutation(
        "joining-in-a-partition-that-stops",
        "Between finding a lane and taking its events its partition may have to be let go.",
        "partbox/worker/engine/outcomes.py",
        "partition.is_stopping or partition.resumption.remembered or",
        "partition.resumption.remembered or",
        (
            "tests/worker/engine/test_lanes.py::test_no_event_joins_a_list_from_a_partition_that_changed_after_its_lane_was_found",
        ),
    ),
    Mutation(
        "joining-what-was-done-already",
        "After a lost connection what was done before comes again, and is not to be handed over.",
        "partbox/worker/engine/outcomes.py",
        "partition.is_stopping or partition.resumption.remembered or",
        "partition.is_stopping or",
        (
            "tests/worker/engine/test_lanes.py::test_no_event_joins_a_list_from_a_partition_that_changed_after_its_lane_was_found",
        ),
    ),
    Mutation(
        "joining-in-a-partition-that-is-read-anew",
        "The lane is one of those that were forgotten, and its events come again in another.",
        "partbox/worker/engine/outcomes.py",
        "partition.is_stopping or partition.resumption.remembered or read_anew",
        "partition.is_stopping or partition.resumption.remembered",
        (
            "tests/worker/engine/test_lanes.py::test_no_event_joins_a_list_from_a_partition_that_changed_after_its_lane_was_found",
        ),
    ),
    Mutation(
        "dead-letter-of-an-old-reading",
        "A dead event waits for the hook while the connection is lost: it is found again, and the hook has it twice.",
        "partbox/worker/engine/dead_letters.py",
        "not partition.is_stopping and partition.incarnation == dead_letter.incarnation",
        "not partition.is_stopping",
        ("tests/engine/test_scenarios.py::test_the_engine_answers_as_the_scenario_says[dead_letter]",),
    ),
    Mutation(
        "read-anew-amid-a-list",
        "The connection is lost between two events of a list: the first comes again, and joins its own list.",
        "partbox/worker/runners/batches.py",
        "(alone or lane.incarnation != incarnation)",
        "alone",
        ("tests/engine/test_scenarios.py::test_the_engine_answers_as_the_scenario_says[list_read_anew]",),
    ),
    Mutation(
        "failed-ones-in-the-list-of-others",
        "An event that has failed makes the list of others fail.",
        "partbox/worker/engine/outcomes.py",
        "        if event.parked is not None and must_run_alone(event):\n            break\n",
        "",
        (scenario("list_of_its_own"),),
    ),
    Mutation(
        "running-though-done",
        "The list of a line is done, and before its runner has ended the line it looks as if its handler waited.",
        "partbox/worker/engine/outcomes.py",
        "                lane.clear_current()\n                self._followers.pop(lane, None)\n",
        "                lane.ended_event = lane.current_event\n                self._followers.pop(lane, None)\n",
        (
            "tests/worker/engine/test_lanes.py::test_a_finished_list_does_not_count_as_running_though_its_shared_lane_has_not_ended",
        ),
    ),
    Mutation(
        "followers-forgotten",
        "Of a list that runs for long only the first event of a lane is parked, and the others hold up the cursor.",
        "partbox/worker/engine/outcomes.py",
        "        for follower in self._find_followers(lane):\n",
        "        for follower in ():\n",
        (scenario("list_that_runs_for_long"),),
    ),
)
