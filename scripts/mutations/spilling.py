"""Spills: what makes a key that leaves its events in the log lose one, run one twice, or never go on."""

from mutations.mutation import Mutation, scenario

MACHINE = (
    "tests/engine/test_engine_machine.py"
    "::test_nothing_is_lost_doubled_or_reordered_when_blocked_keys_leave_events_in_the_log"
)
INTAKE = "partbox/worker/engine/intake.py"
RULES = "partbox/protocol/spill.py"
CHAIN = "partbox/protocol/parking.py"
KEYS = "tests/worker/engine/test_spilled_keys.py"

MUTATIONS = (
    Mutation(
        "spilled-though-it-has-run",
        "S1: an event that ran before a lost connection lies above the start of a spill: it runs again.",
        "partbox/worker/engine/spilled_keys.py",
        "if len(chain.rows) < self._size or event.id <= read_before:",
        "if len(chain.rows) < self._size:",
        (f"{KEYS}::test_no_spill_starts_at_a_record_that_was_read_before_a_lost_connection",),
    ),
    Mutation(
        "late-ones-pass-without-a-row",
        "S2: a refill under an older cursor has moved past the late record, so nobody reads it again.",
        INTAKE,
        "elif is_blocked and event.id > last_late and parked.pass_spilled",
        "elif is_blocked and parked.pass_spilled",
        (MACHINE,),
    ),
    Mutation(
        "spilled-ones-run",
        "S3: a late record runs before the records of its key that wait in the log.",
        CHAIN,
        "return self.spill is not None and self.spill.holds_back(row.id)",
        "return False",
        (MACHINE,),
    ),
    Mutation(
        "refilled-beyond-the-saved-cursor",
        "S4: the saved snapshot does not see all records up to the last id in memory: those are passed over for good.",
        "partbox/worker/engine/parked_scheduler.py",
        "partition.progress.last_id_for_good, wants, wanted",
        "partition.progress.last_id, wants, wanted",
        (scenario("spill_late"), MACHINE),
    ),
    Mutation(
        "ended-before-the-save",
        "S5: the spill ends while a record that passed without a row is not consumed by the saved cursor.",
        RULES,
        "return self.last_passed_id <= self.consumed_id",
        "return True",
        (MACHINE,),
    ),
    Mutation(
        "forgotten-although-it-comes-again",
        "An event that was done when the server crashed waits in the log, comes again, and runs again.",
        "partbox/worker/engine/resumption.py",
        "passed = min(page.floor, last_id, parked.spills.find_first_id() - 1)",
        "passed = min(page.floor, last_id)",
        (f"{KEYS}::test_done_records_are_remembered_while_they_may_wait_in_the_log",),
    ),
    Mutation(
        "new-rows-pass-while-it-ends",
        "A spill that has read all its records passes new ones without a row, and never ends.",
        RULES,
        "            self.is_passing = False\n",
        "            pass\n",
        ("tests/protocol/test_spill.py",),
    ),
    Mutation(
        "released-before-a-lost-row-is-found-again",
        "A crash of the server has lost the row of an event that is done: the next owner runs it again.",
        "partbox/worker/engine/resumption.py",
        "if any(id >= first_spilled for id, _ in self.remembered):",
        "if False:",
        (f"{KEYS}::test_a_partition_is_kept_while_a_done_record_waits_in_the_log_without_its_row",),
    ),
    Mutation(
        "refilled-by-ones",
        "Rows that wait behind the spill make its refills small: a long backlog comes back a row at a time.",
        CHAIN,
        "return len(self.rows) if self.spill is None else bisect_left(self.rows, self.spill.from_id, key=_get_id)",
        "return len(self.rows)",
        (f"{KEYS}::test_rows_that_wait_behind_the_spill_do_not_make_refills_smaller",),
    ),
)
