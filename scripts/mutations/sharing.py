"""What the threads of one process share: the queues of lanes, the lock, a fork, a loop."""

from mutations.mutation import Mutation

QUEUES = "tests/worker/test_shared_queues.py"

MUTATIONS = (
    Mutation(
        "hold-from-the-left",
        "The runner takes from the left without the lock: what it takes meanwhile runs before what was held.",
        "partbox/worker/delivery.py",
        "held.append(lane.queue.pop())",
        "held.append(lane.queue.popleft())",
        (f"{QUEUES}::test_what_is_held_while_a_runner_takes_the_next_are_the_last_ones",),
    ),
    Mutation(
        "put-back-unseen",
        "An event in a runner's hands is not in the queue when that is held: put back, it passes what came before it.",
        "partbox/worker/delivery.py",
        "if partition.chains and _overtakes(lane, event):",
        "if False:",
        (f"{QUEUES}::test_an_event_that_is_put_back_waits_for_what_was_replayed_meanwhile",),
    ),
    Mutation(
        "chain-without-a-second-look",
        "What fails while its followers are fetched is parked behind them.",
        "partbox/worker/intake.py",
        "            rows = in_line\n",
        "",
        (f"{QUEUES}::test_what_fails_while_its_followers_are_fetched_goes_before_them",),
    ),
    Mutation(
        "parked-beside-itself",
        "An event that runs through a lost connection is read again: parked beside itself, it blocks its key.",
        "partbox/worker/delivery.py",
        "if partition.life != lane.life:  # read anew since it started: it comes a second time behind itself",
        "if False:",
        (f"{QUEUES}::test_what_runs_since_before_a_lost_connection_is_not_parked_beside_itself",),
    ),
)
