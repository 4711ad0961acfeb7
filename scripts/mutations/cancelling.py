"""Cancelling: told to be in time exactly where no handler runs the event."""

from mutations.mutation import Mutation

CANCEL, START, DOUBT = (f"sql/functions/{name}.sql" for name in ("cancel", "may_start", "cancelling"))
RECORDS, FETCH = "sql/queries/records.sql", "partbox/worker/poller/parked_fetch.py"
TESTS, TOLD = "tests/publish/test_cancel.py", "tests/publish/test_cancel_told.py"
WAITS = f"{TESTS}::test_an_event_waits_while_an_open_transaction_is_about_to_cancel_it"
READ_LATE = f"{TESTS}::test_a_cancelled_event_that_is_already_due_when_it_is_first_read_does_not_run_either"

MUTATIONS = (
    Mutation(
        "clock-before-the-lock",
        "Who waited for the lock is told to be in time, though a worker has run the event meanwhile.",
        CANCEL,
        "if clock_timestamp() >= due or exists (",
        "if exists (",
        (f"{TESTS}::test_a_cancellation_that_waited_for_a_rolled_back_one_is_too_late_if_the_event_is_due",),
    ),
    Mutation(
        "clock-that-was-set-back",
        "An event that has run is told to be cancelled in time, for the clock says so.",
        CANCEL,
        "then k.state not in ('scheduled', 'discarded')",
        "then false",
        (f"{TESTS}::test_a_cancellation_is_too_late_if_a_handler_has_run_the_event_whatever_the_clock_says",),
    ),
    Mutation(
        "cancelled-rows-wait",
        "What is cancelled counts as scheduled until its time.",
        CANCEL,
        "and k.record_id = any (ids) and k.state = 'scheduled';",
        "and k.record_id = any (ids) and k.state = 'none';",
        (f"{TOLD}::test_the_standing_of_an_event_shows_who_cancelled_it_and_when",),
    ),
    Mutation(
        "open-cancelling-unseen-when-polled",
        "A worker that reads an event after its time runs it while a transaction is about to cancel it.",
        DOUBT,
        "and r.xmax <> 0)",
        "and false)",
        (WAITS,),
    ),
    Mutation(
        "cancelled-unseen-when-polled",
        "An event that was cancelled before anybody read it runs, where its lock is forgotten.",
        DOUBT,
        "or exists (select from {schema}.cancellation c where c.record_id = cancelling.record_id)",
        "",
        (READ_LATE,),
    ),
    Mutation(
        "open-cancelling-unseen-when-due",
        "A parked event runs while a transaction is about to cancel it.",
        RECORDS,
        "(r.xmax <> 0 or exists",
        "(exists",
        (WAITS,),
    ),
    Mutation(
        "cancelled-unseen-when-due",
        "An event that was cancelled before it was parked runs, where its lock is forgotten.",
        RECORDS,
        "(r.xmax <> 0 or exists (select from {schema}.cancellation c where c.record_id = r.id))",
        "r.xmax <> 0",
        (READ_LATE,),
    ),
    Mutation(
        "locked-may-start",
        "An event that is locked starts.",
        START,
        "        if found then\n            free",
        "        if true then\n            free",
        (WAITS,),
    ),
    Mutation(
        "cancelled-may-start",
        "An event that is cancelled starts.",
        START,
        "\n     where not exists (select from {schema}.cancellation c where c.record_id = id)",
        "",
        (READ_LATE,),
    ),
    Mutation(
        "kept-back-runs",
        "What may not start starts.",
        FETCH,
        "list_incomplete | cancelled",
        "list_incomplete",
        (READ_LATE,),
    ),
    Mutation(
        "cancelled-runs-in-a-copy",
        "In a copy that is rebased a cancelled event runs, as late records do.",
        "sql/queries/rebase.sql",
        "or exists (select from {schema}.cancellation x where x.record_id = r.id)",
        "",
        (f"{TESTS}::test_a_cancelled_event_that_comes_late_in_a_copy_of_the_outbox_does_not_run_either",),
    ),
    Mutation(
        "cancelled-told-as-scheduled",
        "Who looks for a cancelled event that no worker has read finds that it waits.",
        "sql/queries/find.sql",
        "case when over.at is not null then 'cancelled' when",
        "case when",
        (f"{TOLD}::test_a_cancelled_event_is_shown_as_cancelled_before_any_subscription_has_read_it",),
    ),
    Mutation(
        "cancelled-without-its-mark",
        "A trigger that keeps the mark out would let an event run that was told to be cancelled.",
        CANCEL,
        "perform {schema}.all_written('cancellation', cardinality(ids), count(*))",
        "perform count(*)",
        (f"{TOLD}::test_an_event_is_not_cancelled_if_a_trigger_keeps_the_cancellation_from_being_stored",),
    ),
)
