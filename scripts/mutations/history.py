"""What the history tells of an event: attempts, ends, notes of progress."""

from mutations.mutation import Mutation

ATTEMPTS = "tests/worker/runners/test_attempts.py"
NOTED = "tests/worker/saver/test_noted_progress.py"
NOTES = "tests/db/delivery/test_progress_notes.py"
SAVE = "sql/functions/save.sql"

MUTATIONS = (
    Mutation(
        "history-without-failures",
        "An event that failed is told of as if it had been delivered at the first go.",
        "partbox/worker/engine/parked_rows.py",
        "            outcome=outcome,\n",
        "",
        (f"{ATTEMPTS}::test_each_failed_attempt_leaves_a_row_and_so_does_the_delivery_of_an_event_that_waited",),
    ),
    Mutation(
        "history-of-a-refusal",
        "What only waits for an open circuit is told as an attempt that failed.",
        "partbox/protocol/verdict.py",
        "failed = self.state is RowState.RETRYING or (self.state is RowState.DEFERRED and self.seconds is not None)",
        "failed = self.state in (RowState.RETRYING, RowState.DEFERRED)",
        (f"{ATTEMPTS}::test_an_attempt_that_opens_the_circuit_has_failed_and_events_that_wait_for_it_have_not",),
    ),
    Mutation(
        "ignored-is-done",
        "An event whose error was ignored is told as delivered.",
        "partbox/worker/engine/partition.py",
        "            self.parked.ignored_events.append(ignored)",
        "            pass",
        (f"{ATTEMPTS}::test_an_event_whose_error_is_ignored_is_not_said_to_be_done",),
    ),
    Mutation(
        "ignored-and-done",
        "An event that was ignored at a later attempt is told as delivered, too.",
        SAVE,
        "where j.id = gone.record_id and j.o = 'ignored'",
        "where false",
        (f"{ATTEMPTS}::test_an_event_whose_error_is_ignored_is_not_said_to_be_done",),
    ),
    Mutation(
        "attempts-for-ever",
        "An event that is retried for days leaves a row each time.",
        "sql/functions/attempts_kept.sql",
        "order by a.at desc offset 10",
        "order by a.at desc offset 1000",
        (f"{ATTEMPTS}::test_the_last_ten_attempts_are_kept",),
    ),
    Mutation(
        "run-once-only",
        "An event that a dead process may have run before its delivery is told as run once.",
        SAVE,
        "case when gone.charged then 'repeated' else 'done' end",
        "'done'",
        (f"{ATTEMPTS}::test_an_event_that_a_dead_process_had_begun_is_recorded_as_interrupted_and_repeated",),
    ),
    Mutation(
        "own-charge-interrupts",
        "An event that was charged and failed is told as cut off by a death.",
        SAVE,
        "where not j.new and k.started_at < p.claimed_at",
        "where not j.new and k.started_at is not null",
        (f"{ATTEMPTS}::test_a_charged_event_that_fails_is_not_recorded_as_interrupted",),
    ),
    Mutation(
        "discarded-is-done",
        "What an operator discards leaves no row, and its end has no time once its record is purged.",
        "sql/functions/discard.sql",
        "gone.attempts, 'discarded' from gone",
        "gone.attempts, 'discarded' from gone where false",
        (f"{ATTEMPTS}::test_actions_of_operators_leave_rows_and_a_discarded_event_is_not_recorded_as_done",),
    ),
    Mutation(
        "read-before-it-was",
        "Events that end out of order are told as delivered after a time at which their handlers had ended.",
        "partbox/protocol/progress.py",
        "return max(self.last_id, *self._unpassed_ids[-1:], max(self._finished, default=0))",
        "return self.last_id",
        (
            "tests/protocol/test_progress.py"
            "::test_the_highest_record_that_was_read_may_be_unfinished_or_finished_out_of_order",
        ),
    ),
    Mutation(
        "reading-forgotten",
        "After a lost connection nothing is known to have been read, and what was done then is told as done later.",
        "partbox/worker/engine/partition.py",
        "max(self.progress.find_highest_read(), self.resumption.read_to)",
        "self.progress.find_highest_read()",
        (f"{NOTED}::test_progress_notes_include_records_that_were_read_before_a_lost_connection",),
    ),
    Mutation(
        "read-at-the-save",
        "What was read, and done, while a save was on its way is told as delivered after it.",
        SAVE,
        "greatest(p.saved_at, p.claimed_at), j.r)",
        "clock_timestamp(), j.r)",
        (f"{NOTES}::test_a_note_has_the_cursor_of_its_save_and_how_far_was_read_at_the_save_before",),
    ),
    Mutation(
        "charged-is-saved",
        "What is done between a save and a charge beside it is told as delivered after the charge.",
        SAVE,
        "saved_at = case when sent.last_id is null then",
        "saved_at = case when sent.no is not null and sent.last_id is null then",
        (f"{NOTES}::test_a_charge_between_two_saves_does_not_count_as_the_earlier_save",),
    ),
    Mutation(
        "hour-long-minutes",
        "What was saved an hour before the next event is told as delivered within that hour.",
        SAVE,
        "p.saved_at >= p.claimed_at and p.saved_at < clock_timestamp() - interval '1 minute'",
        "false",
        (f"{NOTES}::test_a_cursor_saved_long_before_gets_a_note_with_its_own_time",),
    ),
    Mutation(
        "heirs-take-credit",
        "What a process delivered before it died is told as delivered by the next owner.",
        "sql/functions/bury.sql",
        "where o.saved_at >= o.claimed_at",
        "where false",
        (f"{NOTES}::test_a_bury_notes_the_last_save_of_a_dead_owner_and_nothing_for_one_that_never_saved",),
    ),
    Mutation(
        "release-unnoted",
        "What a process delivered in its last minute is told as delivered by the next owner.",
        "partbox/worker/engine/last_save.py",
        "(release or now >= self.due_at)",
        "now >= self.due_at",
        (f"{NOTED}::test_a_partition_is_noted_once_a_minute_and_when_it_is_released",),
    ),
    Mutation(
        "note-a-save",
        "Each save leaves a note, and a backlog some bytes an event.",
        "partbox/worker/engine/last_save.py",
        "(release or now >= self.due_at)",
        "True",
        (f"{NOTED}::test_a_partition_is_noted_once_a_minute_and_when_it_is_released",),
    ),
)
