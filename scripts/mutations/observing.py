"""Observing: a log that nobody reads, one that is to name the remedy, and what leaves the process."""

from mutations.mutation import Mutation

OUTLET = "partbox/observe/logs/setup.py"
FULL = "tests/observe/logs/test_full_pipe.py"
SENTRY, REPORTS = "partbox/observe/sentry.py", "tests/observe/test_sentry.py"

MUTATIONS = (
    Mutation(
        "patience-with-a-reader-that-does-not-read",
        "Each line would hold up its thread for half a second: heartbeats, saves and reads among them.",
        OUTLET,
        "            if not self._is_stalled:\n",
        "            if True:\n",
        (f"{FULL}::test_only_the_first_write_waits_for_a_stalled_reader",),
    ),
    Mutation(
        "lines-kept-without-bound",
        "A reader that never reads again would cost all the memory there is.",
        OUTLET,
        "if len(self._waiting_lines) >= MAX_WAITING:",
        "if False:",
        (f"{FULL}::test_lines_that_a_stalled_reader_does_not_take_are_queued_up_to_a_bound_and_then_counted",),
    ),
    Mutation(
        "a-purge-without-the-remedy",
        "The line about a full disk would say what PostgreSQL says, and not what to do.",
        "partbox/supervisor/purging.py",
        "reason: object = error\n",
        "reason: object = str(error)\n",
        ("tests/supervisor/test_purger.py::test_a_purge_that_finds_no_room_on_the_servers_disk_names_the_remedy",),
    ),
    Mutation(
        "variables-in-a-report",
        "Sentry would be sent payloads, in the variables of handlers and of partbox.",
        SENTRY,
        '"include_local_variables": False',
        '"include_local_variables": True',
        (f"{REPORTS}::test_a_failure_that_a_handler_returns_is_reported_too",),
    ),
    Mutation(
        "all-lines-of-an-error",
        "Sentry would be sent the row that PostgreSQL quotes, and the input of a model.",
        SENTRY,
        '(str(each.get("value") or "").splitlines() or [""])[0]',
        'str(each.get("value") or "")',
        (f"{REPORTS}::test_no_report_contains_a_payload_or_an_identity",),
    ),
    Mutation(
        "variables-of-our-frames",
        "What the application reports to Sentry would hold payloads in the variables of partbox.",
        SENTRY,
        '                frame.pop("vars", None)\n',
        "                pass\n",
        (f"{REPORTS}::test_a_report_of_the_application_has_no_local_variables_when_its_stack_includes_partbox",),
    ),
    Mutation(
        "a-second-issue-by-the-log",
        "Each dead event would be an issue for itself, beside that of its cause.",
        SENTRY,
        '"event", None) in REPORTED_EVENTS',
        '"event", None) in ()',
        (f"{REPORTS}::test_worker_processes_report_each_failure_once_beside_all_that_sentry_does_by_itself",),
    ),
    Mutation(
        "two-instruments-of-one-name",
        "Of two outboxes in a process OpenTelemetry would show the same series twice, with different values.",
        "partbox/observe/metering.py",
        "if prefix not in of:",
        "if True:",
        (
            "tests/observe/metrics/test_metering.py::"
            "test_outboxes_with_one_provider_are_added_up_unless_their_prefixes_differ",
        ),
    ),
)
