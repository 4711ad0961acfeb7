"""Bytes: what a page leaves out, what may be held, whose turn it is."""

from mutations.mutation import Mutation

LARGE = "tests/worker/test_large_payloads.py"
NAMES = "tests/worker/test_large_names.py"
BACKLOG = "tests/worker/test_backlog.py"

MUTATIONS = (
    Mutation(
        "a-backlog-polled-piece-by-piece",
        "Each save makes a little room, and each poll looks into every partition: most bring next to nothing.",
        "partbox/worker/reading/log_reader.py",
        "late=not recent",
        "late=True",
        (f"{BACKLOG}::test_what_saves_make_room_for_is_read_when_it_is_half_a_page",),
    ),
    Mutation(
        "a-little-room-never-used",
        "Where the other partitions have no room at all, half a page never comes together: a backlog is never read.",
        "partbox/worker/reading/log_reader.py",
        "late=not recent",
        "late=False",
        (f"{BACKLOG}::test_after_a_while_it_is_read_however_little_it_is",),
    ),
    Mutation(
        "half-a-page-while-nothing-runs",
        "Where the windows hold less than half a page together, handlers would wait for the reader again and again.",
        "partbox/worker/reading/read_budget.py",
        "return room >= half or sum(partition.progress.in_flight() for partition in partitions) < half",
        "return room >= half",
        (f"{BACKLOG}::test_where_little_is_left_to_run_it_is_read_however_little_it_is",),
    ),
    Mutation(
        "what-is-new-waits-for-saves",
        "What comes to a partition without a backlog waits while another one has no room for more.",
        "partbox/worker/reading/log_reader.py",
        "recent and not more and behind == len(partitions)",
        "recent and not more and bool(behind)",
        (f"{BACKLOG}::test_a_backlog_that_waits_for_saves_does_not_hold_up_what_is_new_in_other_partitions",),
    ),
    Mutation(
        "pages-with-large-payloads",
        "A page of 10,000 records may have gigabytes: it is cancelled, or ends the process.",
        "partbox/worker/reading/payloads.py",
        "min(left, self._step)",
        "2**40",
        (f"{LARGE}::test_a_backlog_of_large_events_is_held_up_to_the_window_and_one_more",),
    ),
    Mutation(
        "late-ones-that-did-not-come-counted-as-read",
        "A late record whose payload was left out is consumed in the snapshot that the cursor moves to: it is lost.",
        "partbox/worker/reading/intake.py",
        "min(kept, brought.cap)",
        "len(ids)",
        (f"{LARGE}::test_late_records_that_are_large_come_in_pieces_as_there_is_room",),
    ),
    Mutation(
        "the-first-partition-always-first",
        "Where there is room for one record only, the first partition takes it each time; the others wait for ever.",
        "partbox/worker/reading/read_budget.py",
        "self._turn = at + 1",
        "self._turn = 0",
        (f"{LARGE}::test_where_bytes_are_used_up_every_partition_gets_its_turn",),
    ),
    Mutation(
        "nothing-passes-that-is-larger-than-the-window",
        "With nothing in memory nothing will ever make room: reading ends.",
        "partbox/worker/reading/read_budget.py",
        "max(1, int(left / self._mean)) if left > 0",
        "int(left / self._mean) if left > 0",
        (f"{LARGE}::test_where_bytes_are_used_up_every_partition_gets_its_turn",),
    ),
    Mutation(
        "bytes-held-by-a-handler-that-hangs",
        "What waits behind a handler that hangs holds the bytes, and no other partition is read.",
        "partbox/worker/reading/full_reader.py",
        "            if self._room.starved:\n                stuck",
        "            if False:\n                stuck",
        (f"{LARGE}::test_a_handler_that_hangs_over_all_the_bytes_does_not_stop_the_other_partitions",),
    ),
    Mutation(
        "bytes-of-a-parked-event-that-hangs",
        "A parked event larger than the window, whose handler hangs, would hold all the bytes for as long.",
        "partbox/worker/delivering/settlement.py",
        "        partition.weight.drop((event.id,))\n        if event.parked.loaded",
        "        if event.parked.loaded",
        (f"{LARGE}::test_a_handler_that_hangs_over_all_the_bytes_does_not_stop_the_other_partitions",),
    ),
    Mutation(
        "names-that-count-for-nothing",
        "Five hundred aggregate ids of 4 MB take a process to 4 GB.",
        "partbox/db/delivery/records.py",
        "return data + max(",
        "return data + 0 * max(",
        (f"{NAMES}::test_large_names_are_held_up_to_the_window_and_one_more",),
    ),
    Mutation(
        "names-left-out-of-a-delayed-event",
        "A delayed record whose names were left out would be parked under none.",
        "partbox/worker/reading/intake.py",
        "        if lacks_names(row):\n            return True\n",
        "",
        (f"{NAMES}::test_a_delayed_event_is_parked_under_its_own_names",),
    ),
    Mutation(
        "chains-with-large-payloads",
        "At the end of an outage fifty chains of a hundred events each are fetched at once, however large.",
        "partbox/worker/reading/parked_reader.py",
        "[pair for pair in wanted if pair in large], left)",
        "[pair for pair in wanted if pair in large], 2**40)",
        (f"{LARGE}::test_parked_events_that_run_again_are_held_up_to_the_window",),
    ),
)
