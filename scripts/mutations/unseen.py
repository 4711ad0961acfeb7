"""Answers that are less than everything, and have no error."""

from mutations.mutation import Mutation

PROOFS = "tests/db/delivery/test_proofs.py"
TRIGGER_BLOCKS_INBOX = "tests/publish/integrations/test_kept_out.py"
ALL_WRITTEN = "tests/db/delivery/test_all_written.py"
WRITTEN = f"{ALL_WRITTEN}::test_every_write_that_a_trigger_suppresses_is_an_error"
WALK = "tests/worker/poller/test_nothing_unseen.py::test_hiding_a_table_for_a_while_loses_repeats_and_reorders_nothing"

MUTATIONS = (
    Mutation(
        "row-security-believed",
        "PostgreSQL hides rows instead of raising, and every statement has to prove in a transaction that it saw all.",
        "partbox/db/connect.py",
        'ROW_SECURITY_OPTION = "-c row_security=off"',
        'ROW_SECURITY_OPTION = "-c row_security=on"',
        (f"{PROOFS}::test_row_security_is_off_in_sessions_of_partbox_and_unchanged_in_those_of_applications",),
    ),
    Mutation(
        "row-security-believed-behind-a-pooler",
        "No session option gets through: polls return no rows of the log, and no error.",
        "sql/functions/log_now.sql",
        "if current_setting('row_security') <> 'off' and row_security_active(log) then",
        "if false then",
        (f"{PROOFS}::test_row_security_is_an_error_and_hides_no_rows_behind_a_pooler_either",),
    ),
    Mutation(
        "a-null-for-no-id",
        "PostgreSQL 18 answers null to who may not read the sequence: taken for none drawn, nothing is read.",
        "sql/queries/proofs.sql",
        "case when has_sequence_privilege({sequence}, 'SELECT') or",
        "case when true or",
        (f"{PROOFS}::test_a_role_that_may_not_read_the_id_sequence_gets_an_error",),
    ),
    Mutation(
        "ids-drawn-that-fall",
        "A sequence that was set back gives out ids below the floor, where nobody looks any more.",
        "partbox/db/delivery/proof.py",
        "if now < baseline.drawn_ids:",
        "if now < 0:",
        (f"{PROOFS}::test_a_sequence_that_has_gone_backwards_ends_the_session",),
    ),
    Mutation(
        "a-cut-page-believed",
        "A LIMIT that somebody puts in cuts a page: what was cut off is passed.",
        "partbox/db/delivery/records.py",
        "if not rows or rows[-1][0] is not None:",
        "if not rows:",
        (f"{PROOFS}::test_a_page_that_was_cut_on_its_way_is_an_error",),
    ),
    Mutation(
        "another-log-believed",
        "A table or a view of the log's name has other records, or none.",
        "partbox/db/delivery/proof.py",
        "if log != (baseline_of(conn).log_oids or log):",
        "if log == 0:",
        (
            f"{PROOFS}::test_another_table_in_the_place_of_the_log_ends_the_session",
            f"{PROOFS}::test_a_sequence_that_has_replaced_that_of_the_log_ends_the_session",
        ),
    ),
    Mutation(
        "a-detached-segment-not-missed",
        "The records of a segment that was taken out by hand are invisible; cursors pass them.",
        "partbox/db/delivery/proof.py",
        "if int(log_version) == baseline.log_version or baseline.log_oids is None:",
        "if baseline.log_version or baseline.log_oids is None:",
        (f"{PROOFS}::test_polls_fail_while_a_segment_that_they_need_is_detached_by_hand",),
    ),
    Mutation(
        "segments-of-an-old-snapshot",
        "A segment is detached while a poll waits for the log: its plan has it no more, its snapshot still has.",
        "sql/functions/log_now.sql",
        "language plpgsql volatile",
        "language plpgsql stable",
        (f"{PROOFS}::test_a_poll_fails_if_a_segment_is_detached_while_the_poll_waits",),
    ),
    Mutation(
        "a-park-that-was-dropped",
        "A trigger keeps the row from being written: the cursor passes an event that is neither done nor parked.",
        "sql/functions/save.sql",
        "if missing > 0 and exists (",
        "if missing < 0 and exists (",
        (f"{PROOFS}::test_a_save_saves_nothing_if_a_trigger_suppresses_a_part_of_it",),
    ),
    Mutation(
        "a-save-into-another-table",
        "What is parked there is gone when the table is put back.",
        "sql/queries/cursors.sql",
        "case when coalesce({schema}.tables_saved() = %(tables)s::bigint, true) then bool_and(life.same)",
        "case when true then bool_and(life.same)",
        (f"{PROOFS}::test_a_save_into_another_table_of_the_same_name_is_rolled_back",),
    ),
    Mutation(
        "a-purge-of-what-is-needed",
        "Where subscriptions are hidden nobody seems to need a record.",
        "sql/functions/purge_records.sql",
        "    perform {schema}.intact();\n",
        "",
        (f"{PROOFS}::test_a_purge_deletes_no_records_if_it_cannot_see_who_needs_them",),
    ),
    Mutation(
        "everybody-buried-in-another-table",
        "In an empty table nobody is alive: the partitions of all are freed under their hands.",
        "sql/functions/bury.sql",
        "        perform {schema}.intact();\n",
        "        null;\n",
        (f"{PROOFS}::test_a_bury_frees_nothing_if_another_table_has_replaced_that_of_the_instances",),
    ),
    Mutation(
        "an-insert-believed",
        "A trigger keeps the event out and raises nothing: it is lost.",
        "partbox/publish/steps.py",
        "if cursor.rowcount < 1:\n            cursor",
        "if cursor.rowcount < 0:\n            cursor",
        (f"{TRIGGER_BLOCKS_INBOX}::test_a_publish_fails_as_a_whole_when_a_trigger_keeps_a_row_out[psycopg-on-record]",),
    ),
    Mutation(
        "a-copy-believed",
        "The same of some of many.",
        "partbox/publish/writing.py",
        "if copied is not None and copied != number:",
        "if copied == 0:",
        (f"{TRIGGER_BLOCKS_INBOX}::test_a_publish_fails_as_a_whole_when_a_trigger_keeps_a_row_out[psycopg-on-record]",),
    ),
    Mutation(
        "a-key-believed-to-be-used",
        "A trigger keeps the key out: the event is taken for one that was published before.",
        "partbox/publish/writing.py",
        "!= [(len(keys),)]:",
        "== []:",
        (
            f"{TRIGGER_BLOCKS_INBOX}::test_a_publish_fails_as_a_whole_when_a_trigger_keeps_a_row_out[psycopg-on-idempotency]",
        ),
    ),
    Mutation(
        "an-insert-in-a-pipeline-believed",
        "Nobody waits for the answer there.",
        "sql/queries/publish.sql",
        "select case when count(*) < 1 then {unwritten} end from written",
        "select null from written",
        (f"{TRIGGER_BLOCKS_INBOX}::test_the_server_raises_the_error_for_a_publish_in_a_pipeline[on-one-True]",),
    ),
    Mutation(
        "a-park-again-that-was-dropped",
        "A trigger keeps the parked row as it was: what has become of its event is forgotten.",
        "sql/functions/save.sql",
        "from json_to_recordset(save.parks) as j (new boolean) where not j.new) and exists (",
        "from json_to_recordset(save.parks) as j (new boolean) where not j.new) and not exists (",
        (f"{WRITTEN}[a save that parks again]",),
    ),
    Mutation(
        "written-without-a-count",
        "A trigger keeps rows as they are, and what writes them goes on as if they were written.",
        "sql/functions/all_written.sql",
        "if written < wanted then",
        "if false then",
        (f"{WRITTEN}[a plan]", f"{WRITTEN}[a start again that unparks]"),
    ),
    Mutation(
        "dead-records-not-put-back",
        "A segment is emptied, and its dead records are gone.",
        "sql/functions/segment_empty.sql",
        "perform {schema}.all_written('record', cardinality(dead), kept);",
        "null;",
        (f"{ALL_WRITTEN}::test_a_segment_is_not_emptied_if_its_dead_records_cannot_be_put_back",),
    ),
    Mutation(
        "fewer-cursors-believed",
        "Rows of `partition` are gone: workers take them for lost to others, and nobody reads their events.",
        "sql/functions/all_cursors.sql",
        "having count(p.partition) < 256",
        "having count(p.partition) < 0",
        (
            "tests/db/delivery/test_missing_cursors.py"
            "::test_a_partition_whose_row_is_missing_is_an_error_and_does_not_count_as_idle[a session-true]",
            f"{WALK}[some rows deleted-0]",
        ),
    ),
    Mutation(
        "an-event-seen-by-nobody",
        "A trigger keeps the row out of the inbox: the consumer takes the event for a repetition, and skips it.",
        "partbox/inbox.py",
        "if not any(_CONFLICT_LINE in line for (line,) in plan):",
        "if not plan:",
        ("tests/publish/test_inbox.py::test_a_consumer_that_may_only_insert_gets_the_right_answers_too",),
    ),
    Mutation(
        "lost-by-mistake-for-good",
        "The database still says that the partition is mine, with the digest that is known: nobody reads it any more.",
        "partbox/worker/engine/claims.py",
        "            self.is_settled = False",
        "          ",
        (
            "tests/engine/test_owned_partitions.py::test_a_partition_that_was_lost_by_mistake_is_taken_up_again_at_the_next_tick",
        ),
    ),
    Mutation(
        "born-dead",
        "A publisher's event for the last moment of all is taken for one that had failed where it was imported from.",
        "partbox/worker/engine/parked_rows.py",
        "if micros == NEVER_AVAILABLE and event.had_failed:",
        "if micros == NEVER_AVAILABLE:",
        (
            "tests/worker/poller/test_far_times.py"
            "::test_an_event_that_is_published_for_the_end_of_time_is_scheduled_and_not_dead",
        ),
    ),
    Mutation(
        "what-is-gone-asked-for-for-ever",
        "A session whose plans fit no more, or that has old oids, goes on with them until somebody restarts it.",
        "partbox/worker/poller/poller.py",
        "if session.reading.closed or proof.ends_session(error):",
        "if session.reading.closed:",
        ("tests/worker/poller/test_nothing_unseen.py::test_a_session_whose_cached_plans_no_longer_fit_is_replaced",),
    ),
    Mutation(
        "a-node-keeps-a-session-that-fails",
        "Functions of a session remember the types of a table that was dropped: no process is buried any more.",
        "partbox/supervisor/membership_pool.py",
        "if proof.ends_session(error):",
        "if False:",
        (
            "tests/supervisor/test_membership_pool.py::"
            "test_a_session_that_remembers_a_table_in_the_place_of_ours_is_closed",
        ),
    ),
    Mutation(
        "everybody-is-nobody",
        "PUBLIC is no role, so of a database that PostgreSQL 14 made nobody would be warned of it.",
        "sql/queries/doctor.sql",
        "where a.grantee = 0::oid\n",
        "where false\n",
        (
            "tests/doctor/test_doctor_access.py::test_the_right_of_everybody_to_create_in_public_as_in_postgresql_14_is_a_finding",
        ),
    ),
    Mutation(
        "an-owner-who-may-not-create-yet",
        "An owner of a schema in the search_path grants itself what was revoked, and is not in the list of grants.",
        "sql/queries/doctor.sql",
        " union select n.nspowner) a",
        ") a",
        (
            "tests/doctor/test_doctor_access.py::test_a_role_that_has_more_power_anyway_may_create_in_the_search_path[superuser]",
        ),
    ),
    Mutation(
        "a-question-that-others-answer",
        "Who may create a function there has his own quote_ident(name), which fits better, hide that he may.",
        "sql/queries/doctor.sql",
        "select quote_ident(n.nspname::text)",
        "select quote_ident(n.nspname)",
        (
            "tests/doctor/test_doctor_access.py::test_the_check_of_the_search_path_runs_no_function_that_others_have_put_there",
        ),
    ),
)
