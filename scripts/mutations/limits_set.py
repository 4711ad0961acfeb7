"""Limits that operators set: what is stored, who takes it, and what is told of it."""

from mutations.mutation import Mutation

SET, TICKED = "tests/db/operator/test_limits_set.py", "tests/db/delivery/test_limits_ticked.py"
GIVEN, DOCTOR = "tests/worker/ownership/test_limits_given.py", "tests/doctor/test_doctor_limits.py"
PAGE = "tests/dashboard/test_page_requests.py"
QUERIES, TICK, TOLD = "sql/queries/limits.sql", "sql/queries/cursors.sql", "partbox/db/delivery/limits.py"
DECISION, CASE = "partbox/worker/ownership/decision.py", "partbox/doctor/case.py"

MUTATIONS = (
    Mutation(
        "limit-one-bound-clears-the-other",
        "Setting how many calls run at once lifts the rate that was set.",
        QUERIES,
        "set rate = coalesce(excluded.rate, l.rate), at_once",
        "set rate = excluded.rate, at_once",
        (f"{SET}::test_each_bound_of_a_limit_is_set_by_itself_and_lifted_by_the_word_none",),
    ),
    Mutation(
        "limit-set-in-silence",
        "Workers are not told of a limit that was set, and take it late.",
        QUERIES,
        "({schema}.tell('changed ' || subscription) is not null)::integer as changed\n\n-- name: limit_reset\n",
        "1 as changed\n\n-- name: limit_reset\n",
        (f"{SET}::test_workers_are_notified_of_a_changed_limit_at_once",),
    ),
    Mutation(
        "limits-outlive-their-subscription",
        "A subscription of the name of a dropped one begins with that one's limits.",
        "sql/functions/subscription_drop.sql",
        "    delete from {schema}.handler_limit l where l.subscription = subscription_drop.subscription;\n",
        "",
        (f"{SET}::test_a_dropped_subscription_takes_its_limits_along",),
    ),
    Mutation(
        "limits-unseen-by-ticks",
        "A running worker does not see that limits have changed.",
        "sql/functions/digest.sql",
        "bit_xor(hashtextextended(row(l.handler, l.rate, l.at_once)::text, 0))",
        "bit_xor(0::bigint)",
        (TICKED,),
    ),
    Mutation(
        "limits-of-others",
        "A worker takes the limits of another subscription's handlers.",
        TICK,
        "from {schema}.handler_limit l where l.subscription = %(subscription)s",
        "from {schema}.handler_limit l where %(subscription)s::text is not null",
        (f"{TICKED}::test_a_tick_ignores_the_limits_of_another_subscription",),
    ),
    Mutation(
        "limit-never-lifted",
        "What an operator has lifted holds as the code declares it.",
        DECISION,
        "None if rate == inf else Rate(rate)",
        "of.rate if rate == inf else Rate(rate)",
        (GIVEN,),
    ),
    Mutation(
        "limit-lifted-is-told-as-declared",
        "A bound that an operator has lifted is shown as the one that the code declares.",
        TOLD,
        "declared if given is None else None if isinstance(given, str) else given",
        "declared if given is None or isinstance(given, str) else given",
        (f"{SET}::test_each_handler_with_a_limit_is_listed_once_and_every_waiting_event_is_counted",),
    ),
    Mutation(
        "limited-is-blocked",
        "Aggregates that only wait for their turn are listed as blocked, and hide those behind an event that fails.",
        "sql/queries/blocked.sql",
        "having not bool_or({waits_for_turn}) and (%(since)s::timestamptz is null or min(k.parked_at) >= %(since)s)\n"
        "                  and (%(until)s::timestamptz is null or min(k.parked_at) < %(until)s)\n            order by",
        "having (%(since)s::timestamptz is null or min(k.parked_at) >= %(since)s)\n"
        "                  and (%(until)s::timestamptz is null or min(k.parked_at) < %(until)s)\n            order by",
        ("tests/db/operator/test_limits_not_blocked.py",),
    ),
    Mutation(
        "limited-is-stalled",
        "Doctor takes a process for stalled whose events wait for their turn.",
        CASE,
        "return waits and (process.limits_age or 0.0) < REPORT_AGE_LIMIT",
        "return False",
        (f"{DOCTOR}::test_events_that_wait_for_a_limit_do_not_make_their_process_look_stalled",),
    ),
    Mutation(
        "limited-is-never-stalled",
        "Doctor does not find a process that hangs, because events waited there for their turn when it began to.",
        CASE,
        "return waits and (process.limits_age or 0.0) < REPORT_AGE_LIMIT",
        "return waits",
        (f"{DOCTOR}::test_events_that_wait_for_a_limit_do_not_make_their_process_look_stalled",),
    ),
    Mutation(
        "limits-changed-by-who-may-look",
        "Whoever may look at the page may change limits.",
        "partbox/dashboard/routes.py",
        'return "limit" if path.startswith("limit/") else',
        'return "look" if path.startswith("limit/") else',
        (f"{PAGE}::test_an_action_without_the_token_or_from_another_site_is_refused_and_changes_nothing",),
    ),
)
