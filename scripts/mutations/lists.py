"""Lists for batch handlers: who comes in one, and how they are noted together."""

from mutations.mutation import Mutation

TESTS = "tests/worker/test_lists.py"

MUTATIONS = (
    Mutation(
        "parked-done-with-the-new",
        "A parked event that is done in a list has a row to delete.",
        "partbox/worker/lists.py",
        "if event.parked is not None or lane.unstuck",
        "if lane.unstuck",
        (f"{TESTS}::test_parked_events_that_come_back_in_a_list_leave_no_row_when_they_are_done",),
    ),
    Mutation(
        "list-of-any-handler",
        "The events of a lane may be of several handlers, and a list is of one.",
        "partbox/worker/gathering.py",
        "if _runs_alone(event) or routes[event._row[3:5]] is not endpoint:",
        "if _runs_alone(event):",
        (f"{TESTS}::test_a_list_holds_events_of_its_own_handler_alone_and_the_order_of_a_key_goes_over_both",),
    ),
)
