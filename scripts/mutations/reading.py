"""Bytes: what a page leaves out, what may be held, whose turn it is."""

from mutations.mutation import Mutation, scenario

LARGE = "tests/worker/poller/test_large_payloads.py"
RECORDS = "tests/engine/on_a_server/test_large_records.py"
NAMED = "tests/engine/on_a_server/test_held_names.py"
NAMES = "tests/worker/poller/test_large_names.py"

MUTATIONS = (
    Mutation(
        "a-backlog-polled-piece-by-piece",
        "Each save makes a little room, and each poll looks into every partition: most bring next to nothing.",
        "partbox/worker/poller/log_poll.py",
        "late=not recent",
        "late=True",
        (scenario("backlog"),),
    ),
    Mutation(
        "a-little-room-never-used",
        "Where the other partitions have no room at all, half a page never comes together: a backlog is never read.",
        "partbox/worker/poller/log_poll.py",
        "late=not recent",
        "late=False",
        (scenario("backlog"),),
    ),
    Mutation(
        "half-a-page-while-nothing-runs",
        "Where the windows hold less than half a page together, handlers would wait for the reader again and again.",
        "partbox/worker/engine/read_budget.py",
        "return room >= half or sum(partition.progress.in_flight() for partition in partitions) < half",
        "return room >= half",
        (scenario("full_page"),),
    ),
    Mutation(
        "what-is-new-waits-for-saves",
        "What comes to a partition without a backlog waits while another one has no room for more.",
        "partbox/worker/poller/log_poll.py",
        "recent and not more and backlogs == len(groups.together)",
        "recent and not more and bool(backlogs)",
        (scenario("backlog"),),
    ),
    Mutation(
        "pages-with-large-payloads",
        "A page of 10,000 records may have gigabytes: it is cancelled, or ends the process.",
        "partbox/worker/poller/payload_fetch.py",
        "min(left, self._step)",
        "2**40",
        (f"{RECORDS}::test_a_backlog_of_large_events_is_held_up_to_the_window_and_one_more",),
    ),
    Mutation(
        "late-ones-that-did-not-come-counted-as-read",
        "A late record whose payload was left out is consumed in the snapshot that the cursor moves to: it is lost.",
        "partbox/worker/engine/intake.py",
        "min(kept, brought.cap)",
        "len(ids)",
        (f"{RECORDS}::test_late_records_that_are_large_come_in_pieces_as_there_is_room",),
    ),
    Mutation(
        "the-first-partition-always-first",
        "Where there is room for one record only, the first partition takes it each time; the others wait for ever.",
        "partbox/worker/engine/read_budget.py",
        "self._turn = at + 1",
        "self._turn = 0",
        (f"{RECORDS}::test_where_bytes_are_used_up_every_partition_gets_its_turn",),
    ),
    Mutation(
        "nothing-passes-that-is-larger-than-the-window",
        "With nothing in memory nothing will ever make room: reading ends.",
        "partbox/worker/engine/read_budget.py",
        "max(1, int(left / self._mean)) if left > 0",
        "int(left / self._mean) if left > 0",
        (f"{RECORDS}::test_where_bytes_are_used_up_every_partition_gets_its_turn",),
    ),
    Mutation(
        "bytes-held-by-a-handler-that-hangs",
        "What waits behind a handler that hangs holds the bytes, and no other partition is read.",
        "partbox/worker/engine/credits.py",
        "self._state.partitions.values() if self._budget.starved else full",
        "full",
        (f"{LARGE}::test_a_handler_that_hangs_over_all_the_bytes_does_not_stop_the_other_partitions",),
    ),
    Mutation(
        "bytes-of-a-parked-event-that-hangs",
        "A parked event larger than the window, whose handler hangs, would hold all the bytes for as long.",
        "partbox/worker/engine/outcomes.py",
        "        partition.payload_bytes.drop((event.id,))\n        if event.parked.loaded",
        "        if event.parked.loaded",
        (f"{LARGE}::test_a_handler_that_hangs_over_all_the_bytes_does_not_stop_the_other_partitions",),
    ),
    Mutation(
        "names-that-count-for-nothing",
        "Five hundred aggregate ids of 4 MB take a process to 4 GB.",
        "partbox/events/record.py",
        "return data + max(",
        "return data + 0 * max(",
        (f"{NAMED}::test_large_names_are_held_up_to_the_window_and_one_more",),
    ),
    Mutation(
        "names-left-out-of-a-delayed-event",
        "A delayed record whose names were left out would be parked under none.",
        "partbox/worker/engine/intake.py",
        "        if lacks_names(row):\n            return True\n",
        "",
        (f"{NAMED}::test_a_delayed_event_is_parked_under_its_own_names",),
    ),
    Mutation(
        "lanes-under-another-key-than-chains",
        "A long id has its digest as its key: a lane that has the id itself does not know that its key is blocked.",
        "partbox/worker/engine/intake.py",
        "            if large:\n                key = key_of(event)\n",
        "",
        (f"{NAMES}::test_what_comes_while_a_parked_event_of_its_long_key_runs_waits_for_it",),
    ),
    Mutation(
        "keys-as-long-as-names",
        "Every blocked key stays in memory, and every parked row has a copy of its names.",
        "partbox/worker/engine/key.py",
        "return name if len(name) <= MAX_ID else",
        "return name if True else",
        (f"{NAMED}::test_a_delayed_event_is_parked_under_its_own_names",),
    ),
    Mutation(
        "chains-with-large-payloads",
        "At the end of an outage fifty chains of a hundred events each are fetched at once, however large.",
        "partbox/worker/poller/parked_fetch.py",
        "[pair for pair in wanted if pair in large], left)",
        "[pair for pair in wanted if pair in large], 2**40)",
        (f"{LARGE}::test_parked_events_that_run_again_are_held_up_to_the_window",),
    ),
)
