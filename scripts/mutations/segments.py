"""Segments: the terms of what may be emptied, and what keeps publishers from failing or waiting."""

from mutations.mutation import Mutation

HOLDS = "sql/functions/segment_holds.sql"
EMPTY = "sql/functions/segment_empty.sql"
ADD = "sql/functions/segment_add.sql"
DETACH = "sql/functions/segment_detach.sql"
BUSY = "sql/functions/segment_busy.sql"
AHEAD = "partbox/segments/provisioning.py"
RULES = "partbox/protocol/segments.py"
PATIENCE = "tests/db/segments/test_segments_patience.py"
PASSED = "tests/db/segments/test_segments_retention.py"
IN_USE = "tests/db/segments/test_segments_in_use.py"
MADE = "tests/db/segments/test_segments_provisioning.py"
RULED = "tests/protocol/test_segments.py"
EVERY = f"{PASSED}::test_only_segments_that_no_subscription_needs_are_emptied_whatever_state_keeps_a_record"
ANY = f"{PASSED}::test_maintenance_removes_only_records_that_nobody_needs_whatever_the_log_holds"

MUTATIONS = (
    Mutation(
        "segment-by-the-floor-alone",
        "Below the floor nothing becomes visible any more, but it need not have been read.",
        HOLDS,
        "number::smallint as partition, coalesce(least(p.floor_id, p.last_id), 0) as id",
        "number::smallint as partition, coalesce(p.floor_id, 0) as id",
        (EVERY, ANY),
    ),
    Mutation(
        "segment-by-the-last-id-alone",
        "What the cursor has passed may still become visible, and comes late.",
        HOLDS,
        "number::smallint as partition, coalesce(least(p.floor_id, p.last_id), 0) as id",
        "number::smallint as partition, coalesce(p.last_id, 0) as id",
        (EVERY, ANY),
    ),
    Mutation(
        "segment-that-is-read-to-the-last-but-one",
        "The newest record of a segment is needed as any other.",
        HOLDS,
        "where c.id < newest\n     order",
        "where c.id < newest - 1\n     order",
        (EVERY,),
    ),
    Mutation(
        "segment-of-one-partition",
        "Every partition has a cursor of its own; the furthest behind counts.",
        HOLDS,
        "order by 2, 1 limit 1) c",
        "order by 2 desc, 1 limit 1) c",
        (EVERY, ANY),
    ),
    Mutation(
        "segment-without-a-cursor",
        "A partition without a cursor has passed nothing.",
        HOLDS,
        "coalesce(least(p.floor_id, p.last_id), 0) as id",
        "coalesce(least(p.floor_id, p.last_id), newest) as id",
        (f"{PASSED}::test_a_subscription_without_a_cursor_for_a_partition_has_passed_nothing",),
    ),
    Mutation(
        "segment-that-is-young",
        "It is kept for the retention, whoever has passed it.",
        HOLDS,
        "if recent >= segment_holds.before then",
        "if false then",
        (EVERY, ANY),
    ),
    Mutation(
        "segment-that-is-not-full",
        "Ids of it may be drawn and not written yet.",
        HOLDS,
        "if {schema}.drawn() < segment_holds.upper - 1 then",
        "if false then",
        (f"{PASSED}::test_full_segments_are_emptied_by_age_alone_if_there_is_no_subscription",),
    ),
    Mutation(
        "segment-with-what-is-parked",
        "A parked record is still to be delivered.",
        HOLDS,
        "and (k.state not in ('dead', 'discarded') or k.due_at is not null)",
        "and k.due_at is not null",
        (EVERY, ANY),
    ),
    Mutation(
        "segment-with-a-hook-that-is-owed",
        "A dead-letter hook gets the whole event.",
        HOLDS,
        "and (k.state not in ('dead', 'discarded') or k.due_at is not null)",
        "and k.state not in ('dead', 'discarded')",
        (EVERY, ANY),
    ),
    Mutation(
        "segment-with-any-number-of-dead",
        "Setting many dead records aside would keep polls waiting.",
        HOLDS,
        "having count(*) > most_dead",
        "having count(*) > 1000000000",
        (f"{PASSED}::test_a_segment_is_emptied_with_up_to_a_thousand_dead_records_set_aside",),
    ),
    Mutation(
        "segment-with-any-bytes-of-dead",
        "So would large ones.",
        HOLDS,
        "+ coalesce(pg_column_size(r.headers), 0)) > most_size;",
        "+ coalesce(pg_column_size(r.headers), 0)) > 1000000000;",
        (f"{PASSED}::test_too_many_dead_records_keep_their_segment",),
    ),
    Mutation(
        "segment-without-its-dead",
        "A dead record can be shown and replayed until it is purged.",
        EMPTY,
        "insert into {schema}.record select d.* from unnest(dead) as d;",
        "null;",
        (f"{PASSED}::test_a_dead_record_outlives_its_segment_and_is_shown_and_replayed", ANY),
    ),
    Mutation(
        "segment-whose-dead-are-new-events",
        "What reads the WAL takes every row that is written to the log for a new event.",
        EMPTY,
        "            execute format('alter table %s set unlogged', found.path);\n",
        "            null;\n",
        (
            "tests/cdc/test_publication.py::test_a_segment_made_ahead_is_published_and_the_removal_of_an_emptied_one_is_not",
        ),
    ),
    Mutation(
        "segment-emptied-beside-a-new-subscription",
        "One that begins, or is set back, at this moment needs what it has seen.",
        EMPTY,
        "not {schema}.locked('purge')",
        "false",
        (
            f"{IN_USE}::test_no_segment_is_emptied_while_a_subscription_is_being_created",
            f"{IN_USE}::test_no_segment_is_emptied_while_a_subscription_is_being_replayed",
        ),
    ),
    Mutation(
        "segment-that-is-not-asked-about-under-its-lock",
        "Between the look and the lock anything may have come.",
        EMPTY,
        "    if {schema}.segment_state(found.segment, found.lower, found.upper) <> state then\n        freed := 0;",
        "    if false then\n        freed := 0;",
        (f"{IN_USE}::test_the_decision_to_empty_a_segment_is_checked_again_under_the_lock",),
    ),
    Mutation(
        "segment-emptied-and-not-noted",
        "A replay from there would say that it delivers what is gone.",
        EMPTY,
        "values ('purged_id', newest)",
        "values ('purged_id', 0)",
        (EVERY,),
    ),
    Mutation(
        "segment-with-a-patient-lock",
        "Polls and publishers queue behind whoever waits for a lock.",
        EMPTY,
        "set lock_timeout = '25ms'",
        "set lock_timeout = '0'",
        (f"{IN_USE}::test_a_step_gives_up_at_once_on_a_lock_that_it_cannot_get",),
    ),
    Mutation(
        "segment-that-is-in-use",
        "Beside a transaction that stays, every try would hold publishers up.",
        BUSY,
        "if holders is null then",
        "if true then",
        (f"{IN_USE}::test_a_segment_that_somebody_uses_is_left_for_later_and_nobody_waits",),
    ),
    Mutation(
        "segment-dropped-with-a-record",
        "A record that came after the segment was emptied is still in it.",
        DETACH,
        "        return 'filled';\n    end if;\n    execute format('alter",
        "        null;\n    end if;\n    execute format('alter",
        (f"{IN_USE}::test_an_emptied_segment_that_gets_a_record_while_it_is_being_locked_is_kept",),
    ),
    Mutation(
        "log-locked-while-a-segment-is-waited-for",
        "Publishers stand behind both waits, one after the other.",
        DETACH,
        "    perform set_config('lock_timeout', '1ms', true);\n",
        "",
        (f"{PATIENCE}::test_a_step_that_has_locked_the_log_waits_for_no_lock_on_any_segment",),
    ),
    Mutation(
        "log-locked-while-the-disc-is-waited-for",
        "Publishers stand still for as long as the disc takes.",
        DETACH,
        "set_config('synchronous_commit', 'off', true)",
        "null",
        (f"{PATIENCE}::test_a_step_commits_asynchronously_so_that_no_slow_disk_or_standby_prolongs_its_locks",),
    ),
    Mutation(
        "segment-locked-while-its-large-values-are-waited-for",
        "Workers stand behind an autovacuum of them.",
        EMPTY,
        "    perform set_config('lock_timeout', '1ms', true);\n",
        "",
        (f"{PATIENCE}::test_a_step_that_has_locked_a_segment_does_not_wait_for_its_toast_table",),
    ),
    Mutation(
        "partitions-locked-while-one-is-waited-for",
        "Saves of the others stand still.",
        EMPTY,
        "for no key update nowait;",
        "for no key update;",
        (f"{PATIENCE}::test_a_step_that_has_locked_some_partitions_does_not_wait_for_another",),
    ),
    Mutation(
        "net-locked-while-the-log-is-waited-for",
        "Publishers into the default segment stand behind a vacuum.",
        ADD,
        "    execute format('lock table only %I.record in share update exclusive mode', {schema_name});\n"
        "    execute format('lock table only %s in access exclusive mode', net::regclass);\n",
        "    execute format('lock table only %s in access exclusive mode', net::regclass);\n"
        "    execute format('lock table only %I.record in share update exclusive mode', {schema_name});\n",
        (f"{PATIENCE}::test_attaching_a_segment_waits_for_the_log_before_it_locks_out_publishers",),
    ),
    Mutation(
        "segment-in-use-by-its-large-values",
        "Beside an autovacuum of them, every try would hold workers up.",
        BUSY,
        "where c.oid = any (tables) and c.reltoastrelid <> 0",
        "where false",
        (f"{PATIENCE}::test_a_segment_counts_as_in_use_if_only_its_toast_table_is_locked",),
    ),
    Mutation(
        "segment-among-drawn-ids",
        "Who has drawn an id before its segment is there, and writes it afterwards, fails.",
        ADD,
        "elsif segment_add.lower <= {schema}.drawn() then",
        "elsif false then",
        (f"{MADE}::test_a_new_segment_for_ids_that_are_drawn_or_taken_is_refused",),
    ),
    Mutation(
        "segment-that-is-not-proven",
        "Publishers would wait until all of the default segment is searched.",
        ADD,
        "where p.valid and p.lower <= segment_add.lower",
        "where p.lower <= segment_add.lower",
        (f"{MADE}::test_a_large_default_segment_is_never_searched_while_it_is_locked",),
    ),
    Mutation(
        "proof-that-stays",
        "Publishing fails when it comes to ids that are kept out of the default segment and have none of their own.",
        AHEAD,
        "needed and not rules.must_end_proof(exclusion[0], steps.find_newest_id(conn, schema))",
        "needed",
        (f"{MADE}::test_a_leftover_exclusion_that_is_still_needed_stays_until_publishing_comes_near_its_ids",),
    ),
    Mutation(
        "proof-that-nobody-needs",
        "A constraint that keeps ids out of the default segment stays for months, though no segment is to come.",
        AHEAD,
        "needed=bool(segments_to_add) and large",
        "needed=large",
        (f"{MADE}::test_a_leftover_exclusion_is_removed_at_once_if_no_segment_has_to_be_made",),
    ),
    Mutation(
        "segment-right-ahead",
        "A statement that began to publish before, and draws one of its ids afterwards, fails.",
        RULES,
        "    return end if end >= start else",
        "    return end if end > drawn else",
        (f"{RULED}::test_a_segment_that_would_begin_too_near_begins_an_hour_of_ids_ahead",),
    ),
    Mutation(
        "segments-tended-by-everybody",
        "Two hundred nodes open a connection each every half minute to look at what one of them has looked at.",
        "partbox/supervisor/purging.py",
        "elif random() < compute_turn_chance(self._count_nodes()):",
        "elif random() < compute_turn_chance(1):",
        ("tests/supervisor/test_purger.py::test_each_of_many_nodes_checks_the_segments_only_when_it_is_its_turn",),
    ),
    Mutation(
        "publishers-wait-behind-a-migration",
        "A migration that waits for a lock on the log for as long as it takes stops all who publish.",
        "sql/migrations/begin.sql",
        "set local lock_timeout = '2s';",
        "set local lock_timeout = 0;",
        ("tests/db/schema/test_patience.py::test_a_script_does_not_keep_publishers_waiting_either",),
    ),
)
