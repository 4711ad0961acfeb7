"""The sweep: which records it brings, and when there may be more."""

from mutations.mutation import Mutation, scenario

SWEEP = "partbox/protocol/sweep.py"
RECORDS = "sql/queries/records.sql"
MACHINE = "tests/engine/test_engine_machine.py"
RULES = "tests/protocol/test_sweep.py"
INTAKE = "partbox/worker/engine/intake.py"
POLLS = "tests/db/delivery/test_records.py"

MUTATIONS = (
    Mutation(
        "a-sweep-from-its-start-on-for-everybody",
        "Who has read further than the last of them gets records again that it has had.",
        RECORDS,
        "       and r.id > (%(swept_ids)s::bigint[])[r.partition + 1]\n",
        "",
        (f"{POLLS}::test_a_sweep_reads_in_id_order_the_records_above_the_last_id_of_each_partition",),
    ),
    Mutation(
        "a-brief-sweep-that-begins-above-an-id",
        "The record right above the last ids is passed by, and nobody looks there again.",
        SWEEP,
        "return Sweep(start, hi, hi - start + 1,",
        "return Sweep(start + 1, hi, hi - start + 1,",
        (
            f"{RULES}::test_one_brief_sweep_finds_all_new_ids_if_they_are_no_more_than_the_partitions",
            scenario("cut_page"),
        ),
    ),
    Mutation(
        "who-is-behind-asks-from-the-floor-on",
        "What it had no room for lies below the floor of the shared page, and is lost.",
        "partbox/protocol/cursor.py",
        "last_id = max(self.last_id, base.floor) if self.is_caught_up else self.last_id",
        "last_id = max(self.last_id, base.floor) if self.is_in_lockstep else self.last_id",
        (
            "tests/protocol/test_cursor.py::test_a_caught_up_cursor_asks_from_the_floor_of_the_shared_page_and_one_behind"
            "_from_its_last_id",
            scenario("full_page"),
        ),
    ),
    Mutation(
        "new-records-beside-the-sweep-too",
        "A partition that takes part would get its next records twice in one page.",
        SWEEP,
        "return [0 if ask.partition in self.last_ids else ask.room for ask in asks]",
        "return [ask.room for ask in asks]",
        (f"{RULES}::test_a_partition_in_the_sweep_gets_no_new_records_outside_it",),
    ),
    Mutation(
        "who-waits-for-the-sweep-reads-beside-it",
        "A partition a little ahead would stay ahead for the whole backlog, read by itself.",
        SWEEP,
        "        if ask.partition in self.waiting_partitions:\n            return 0\n",
        "",
        (f"{RULES}::test_a_partition_that_is_a_little_ahead_of_the_sweep_waits_for_the_others",),
    ),
    Mutation(
        "a-release-before-what-was-read-is-in-hand",
        "What the last piece of a cut page brought is in no lane yet, and the release would not park it: it is lost.",
        INTAKE,
        "if one.page_part.is_piece or partition.is_draining:",
        "if False:",
        (
            "tests/engine/test_reading_ahead.py::test_records_read_of_a_draining_partition_are_handed_over_before_it_may_be_released",
        ),
    ),
    Mutation(
        "what-was-lost-meanwhile-is-handed-over",
        "Another process owns it by now.",
        INTAKE,
        "                    if not each.partition.is_lost:\n",
        "                    if True:\n",
        ("tests/engine/test_reading_ahead.py::test_a_partition_lost_while_the_next_page_is_made_is_handed_no_events",),
    ),
    Mutation(
        "the-next-page-while-something-else-waits",
        "Ticks, due records and the end of the process would wait for a backlog to be read.",
        "partbox/worker/poller/full_poll.py",
        "next_request = self._build_next_request(horizon, request) if fits and may_continue() else None",
        "next_request = self._build_next_request(horizon, request) if fits else None",
        ("tests/engine/test_reading_ahead.py::test_a_step_reads_one_page_only_while_other_work_waits",),
    ),
    Mutation(
        "a-sweep-that-ended-early-is-whole",
        "What lies above the end of its range counts as seen, and no quick poll finds it.",
        SWEEP,
        "return records >= self.max_records or self.end < hi",
        "return records >= self.max_records",
        (f"{RULES}::test_a_sweep_is_cut_by_its_number_of_records_or_by_a_last_id_below_the_ceiling", MACHINE),
    ),
    Mutation(
        "a-sweep-that-was-full-is-whole",
        "What it had no room for counts as seen, and no quick poll finds it.",
        SWEEP,
        "return records >= self.max_records or self.end < hi",
        "return self.end < hi",
        (
            f"{RULES}::test_a_sweep_is_cut_by_its_number_of_records_or_by_a_last_id_below_the_ceiling",
            scenario("floor_of_the_saved_page"),
        ),
    ),
    Mutation(
        "reads-on-though-called",
        "On a backlog a replay, a wake-up or the end waits for the next tick.",
        "partbox/worker/poller/poller.py",
        "            self._wakeup.was_interrupted\n            or now >= self._tick_at\n",
        "            now >= self._tick_at\n",
        (
            "tests/engine/test_reading_ahead.py::test_reading_ahead_goes_on_after_a_save_that_makes_room_and_ends_when_the_poller_is_called",
        ),
    ),
    Mutation(
        "room-that-calls",
        "Each save ends the reading ahead: a process waits for its server instead of working beside it.",
        "partbox/worker/engine/saves.py",
        "        elif self._state.awaits_saves():\n            self._state.wakes.wake_poller()",
        "        elif self._state.awaits_saves():\n            self._state.wakes.interrupt_poller()",
        (scenario("who_wakes_the_reader"),),
    ),
)
