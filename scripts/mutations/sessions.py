"""What others give: DSNs, settings of a database, policies, times, names of hosts."""

from mutations.mutation import Mutation

CONNECT = "partbox/db/connect.py"
CALLABLES = "tests/settings/test_dsn_callables.py"
SETTINGS = "tests/db/test_foreign_settings.py"

MUTATIONS = (
    Mutation(
        "a-life-that-stays-unreadable",
        "After the promotion of a standby no worker ever reads again.",
        "partbox/db/delivery/server_incarnation.py",
        '        conn.execute(load_query("life_anew", schema), {})\n',
        "        pass\n",
        ("tests/db/test_standby.py::test_an_incarnation_sequence_that_cannot_be_read_is_made_anew",),
    ),
    Mutation(
        "dsn-quoted",
        "libpq quotes the password of a DSN that it cannot read.",
        "partbox/text/dsn.py",
        "        raise make_dsn_error(_find_reason(str(error)) + _find_hint(dsn)) from None\n",
        "        raise make_dsn_error(str(error) + _find_hint(dsn)) from None\n",
        ("tests/settings/test_dsn_secrets.py::test_no_error_about_a_dsn_contains_a_password_with_odd_characters",),
    ),
    Mutation(
        "dsn-misread",
        "Behind an unescaped @ or / the rest of a password is a host or a port, which errors of connecting name.",
        "partbox/text/dsn.py",
        "    if (reason := _find_misread_sign(dsn, found)) is not None:\n",
        "    if (reason := _find_misread_sign(dsn, found)) is not None and not found:\n",
        ("tests/settings/test_dsn_secrets.py::test_no_error_about_a_dsn_contains_a_password_with_odd_characters",),
    ),
    Mutation(
        "dsn-callable-ends-workers",
        "A callable that fails for a moment is no reason to end.",
        CONNECT,
        "class NoDsnError(psycopg.OperationalError):",
        "class NoDsnError(RuntimeError):",
        (f"{CALLABLES}::test_a_faulty_dsn_callable_makes_no_connection_and_one_clear_line_without_secrets",),
    ),
    Mutation(
        "results-as-text",
        "Text is what DateStyle says, and psycopg reads ISO alone.",
        CONNECT,
        "    factory, adapters = (PlainCursor[Any], None) if is_lent else (BinaryCursor, DEFAULTS)\n",
        "    factory, adapters = PlainCursor[Any], None if is_lent else DEFAULTS\n",
        (f"{SETTINGS}::test_results_are_binary_on_our_own_connections_and_unchanged_on_those_of_the_application",),
    ),
    Mutation(
        "delay-believed",
        "What a policy of the application returns may be no delay.",
        "partbox/protocol/verdict.py",
        "            delay = delay_of(policy.retry.next_delay(attempts))\n",
        "            delay = policy.retry.next_delay(attempts)\n",
        ("tests/protocol/test_odd_policies.py::test_any_other_delay_is_an_error_of_the_policy_and_the_fallback_delay_applies",),
    ),
    Mutation(
        "any-name-is-answered",
        "A name that another site made to point here reads what the browser reaches.",
        "partbox/http/address.py",
        'or "." not in name or',
        'or "." in name or',
        ("tests/http/test_hosts.py::test_a_host_name_that_can_be_registered_is_refused",),
    ),
    Mutation(
        "streams-without-end",
        "Open pages take the connections that probes need.",
        "partbox/dashboard/routes.py",
        "        self._streams += 1\n",
        "",
        ("tests/http/test_shut_out.py::test_a_burst_of_streams_at_once_is_bounded_too",),
    ),
    Mutation(
        "answers-that-nobody-reads",
        "Clients that read nothing of their streams keep all connections.",
        "partbox/http/connections.py",
        "if self._request.lacks_body or self.transport.get_write_buffer_size():",
        "if self._request.lacks_body:",
        ("tests/http/test_shut_out.py::test_streams_that_nobody_reads_make_room_for_a_probe",),
    ),
    Mutation(
        "answer-without-headway",
        "An answer that nobody reads is kept for ever.",
        "partbox/http/connections.py",
        "if now - self._progress_at >= REQUEST_TIMEOUT or (",
        "if (",
        ("tests/http/test_shut_out.py::test_an_answer_that_nobody_reads_is_given_up",),
    ),
)  # fmt: skip
