"""What opens the circuit of a handler, and what it may not overrule."""

from mutations.mutation import Mutation

BOTH = "tests/worker/runners/test_bugs_and_outages.py"
CIRCUIT = "tests/protocol/test_circuit.py"
ENDPOINT = "partbox/worker/runners/endpoint.py"
HANDLER_CIRCUIT = "partbox/worker/runners/handler_circuit.py"

MUTATIONS = (
    Mutation(
        "any-error-is-an-outage",
        "Ten aggregates with a bug open the circuit: their events never die, and healthy ones wait.",
        ENDPOINT,
        "if not is_outage(result, self.handler.circuit):",
        "if False:",
        (
            "tests/worker/runners/test_downstream.py::test_the_errors_that_open_the_circuit_can_be_named_for_all_handlers_and_for_one",
        ),
    ),
    Mutation(
        "the-last-attempt-of-an-outage",
        "An event whose last attempt meets an open circuit is dead by the outage.",
        ENDPOINT,
        "return verdict if deferral is None else",
        'return verdict if deferral is None or verdict.state == "dead" else',
        (f"{BOTH}::test_an_outage_kills_nothing_not_even_at_the_last_attempt",),
    ),
    Mutation(
        "a-bug-keeps-the-probe",
        "A probe that fails with an error of its own is waited for as if it had been lost.",
        "partbox/protocol/circuit.py",
        "            self._probing_since = None\n            self._other_error_keys.add(key)\n",
        "            self._other_error_keys.add(key)\n",
        (f"{CIRCUIT}::test_a_probe_with_another_error_makes_room_for_the_next_at_once_and_leaves_the_pause_as_it_was",),
    ),
    Mutation(
        "a-bug-never-closes-it",
        "All that is probed has a bug: one event after the other is tried, and the others wait.",
        "partbox/protocol/circuit.py",
        "if len(self._other_error_keys) >= self._threshold:",
        "if False:",
        (f"{CIRCUIT}::test_the_circuit_closes_when_probes_of_ten_keys_end_with_other_errors",),
    ),
    Mutation(
        "the-same-probe-each-time",
        "All that waits comes back at once, the lowest id first: an error of its own keeps the circuit open for ever.",
        HANDLER_CIRCUIT,
        "return circuit.compute_delay(now) * random.uniform(*WAIT_SPREAD)",
        "return circuit.compute_delay(now)",
        (f"{BOTH}::test_events_that_wait_for_a_circuit_do_not_come_back_at_once",),
    ),
    Mutation(
        "the-wait-hides-the-error",
        "What an event waits for takes the place of the error that it had.",
        "sql/functions/save.sql",
        "case when j.w then coalesce(k.last_error, j.e) else coalesce(j.e, k.last_error) end",
        "coalesce(j.e, k.last_error)",
        (f"{BOTH}::test_an_event_that_an_open_circuit_refuses_keeps_the_error_and_the_traceback_that_it_had",),
    ),
    Mutation(
        "overdue-but-spared",
        "A handler that has to be ended with its process is not charged: it ends process after process.",
        ENDPOINT,
        "return self._judge_traced(event, error, started, lambda text: self._judge_by_policy(event, error, text)[0])",
        "return self.judge(event, error, counts_failure=False)",
        (f"{BOTH}::test_a_handler_that_ends_its_process_is_charged_though_the_circuit_is_open",),
    ),
    Mutation(
        "demoted-broker-kept",
        "A relay stays with a server that was demoted, though its address leads to the new primary.",
        "partbox/sinks/sink.py",
        "if any(isinstance(result, UNREACHABLE) for result in results):",
        "if any(isinstance(result, TimeoutError) for result in results):",
        ("tests/sinks/test_redis.py::test_the_sink_disconnects_from_a_demoted_server",),
    ),
)
