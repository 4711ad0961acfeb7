"""The circuit of a handler: it opens, lets probes through, and closes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from partbox.protocol import circuit as circuit_rules
from partbox.protocol.circuit import FIRST_PROBE, KEYS, LONGEST_PAUSE, PROBE_LOST, SOON, Circuit, ValueCircuits

A_WHILE = 10_000.0  # monotonic seconds; longer than every wait


def opened(at: float = 0.0) -> Circuit:
    circuit = Circuit()
    assert circuit.note_failure("k", at, unavailable=True)
    return circuit


def fail_probe(circuit: Circuit, now: float) -> None:
    assert circuit.try_admit(now)
    assert not circuit.note_failure("k", now, unavailable=False, started=now)


def test_a_new_circuit_is_closed_and_has_no_failures():
    circuit = Circuit()
    assert not circuit.is_open
    assert not circuit.has_failures
    assert circuit.try_admit(0.0)
    assert circuit.try_admit(0.0)


def test_an_unavailable_downstream_opens_at_once():
    circuit = Circuit()
    assert circuit.note_failure("k", 5.0, unavailable=True)
    assert circuit.is_open
    assert circuit.has_failures
    assert not circuit.try_admit(5.0)


def test_the_circuit_opens_at_the_failure_of_the_tenth_key_and_not_before():
    circuit = Circuit()
    results = [circuit.note_failure(number, 0.0, unavailable=False) for number in range(KEYS)]
    assert results == [False] * 9 + [True]
    assert circuit.is_open


@given(st.lists(st.integers(1, KEYS - 1), max_size=300))
def test_failures_of_fewer_than_ten_keys_never_open_the_circuit(keys):
    circuit = Circuit()
    assert not any(circuit.note_failure(key, 0.0, unavailable=False) for key in keys)
    assert circuit.try_admit(0.0)
    assert circuit.has_failures == bool(keys)


@given(st.integers(1, KEYS - 1), st.integers(1, KEYS - 1))
def test_a_success_makes_the_circuit_forget_the_failures_before_it(before, after):
    circuit = Circuit()
    for number in range(before):
        circuit.note_failure(number, 0.0, unavailable=False)
    assert not circuit.note_success()
    assert not circuit.has_failures
    assert not any(circuit.note_failure(-1 - number, 0.0, unavailable=False) for number in range(after))


def test_a_key_may_be_anything_hashable():
    circuit = Circuit()
    keys = [("Order", "1"), ("Order", "2"), "Order", 1, None, 2.5, b"1", frozenset(), ("Order", None), 2]
    assert [circuit.note_failure(key, 0.0, unavailable=False) for key in keys][-1]


def test_probes_are_admitted_after_1_2_4_up_to_30_seconds():
    circuit, now, pauses = opened(), 0.0, []
    for _ in range(8):
        pauses.append(circuit.compute_delay(now))
        assert not circuit.try_admit(now + pauses[-1] - 0.001)
        now += pauses[-1]
        fail_probe(circuit, now)
    assert pauses == [1, 2, 4, 8, 16, 30, 30, 30]


def test_one_probe_at_a_time():
    circuit = opened()
    assert circuit.try_admit(FIRST_PROBE)
    assert not circuit.try_admit(FIRST_PROBE)
    assert not circuit.try_admit(FIRST_PROBE + PROBE_LOST - 0.001)


def test_the_pause_counts_from_the_end_of_the_probe():
    circuit = opened()
    assert circuit.try_admit(1.0)
    circuit.note_failure("k", 11.0, unavailable=True, started=1.0)
    assert not circuit.try_admit(12.9)
    assert circuit.try_admit(13.0)


def test_a_probe_that_never_reports_back_is_given_up():
    circuit = opened()
    assert circuit.try_admit(1.0)
    assert circuit.try_admit(1.0 + PROBE_LOST)
    assert not circuit.try_admit(1.0 + PROBE_LOST)


def test_a_probe_of_a_handler_with_its_own_timeout_is_waited_for_that_long():
    circuit = Circuit(probe_lost=300.0)
    circuit.note_failure("k", 0.0, unavailable=True)
    assert circuit.try_admit(1.0)
    assert not circuit.try_admit(300.9)
    assert circuit.try_admit(301.0)


def test_a_probe_that_was_given_up_and_fails_late_is_not_taken_for_the_next():
    circuit = opened()
    assert circuit.try_admit(1.0)
    assert circuit.try_admit(40.0)
    circuit.note_failure("k", 41.0, unavailable=False, started=1.0)
    assert not circuit.try_admit(50.0)
    circuit.note_failure("k", 51.0, unavailable=False, started=40.0)
    assert circuit.compute_delay(51.0) == 2.0


def test_an_undecided_probe_makes_room_for_the_next_at_once():
    circuit = opened()
    assert circuit.try_admit(5.0)
    circuit.note_undecided(started=1.0)  # another's
    assert not circuit.try_admit(5.0)
    circuit.note_undecided(started=5.0)
    assert circuit.try_admit(5.0)
    circuit.note_failure("k", 6.0, unavailable=False, started=5.0)
    assert circuit.compute_delay(6.0) == 2.0


def test_a_probe_with_another_error_makes_room_for_the_next_at_once_and_leaves_the_pause_as_it_was():
    circuit = opened()
    assert circuit.try_admit(5.0)
    assert not circuit.note_other_error("a", started=1.0)  # another's
    assert not circuit.try_admit(5.0)
    assert not circuit.note_other_error("a", started=5.0)
    assert circuit.is_open
    assert circuit.try_admit(5.0)
    circuit.note_failure("k", 6.0, unavailable=False, started=5.0)
    assert circuit.compute_delay(6.0) == 2 * FIRST_PROBE


def test_the_circuit_closes_when_probes_of_ten_keys_end_with_other_errors():
    circuit = opened()
    ends = []
    for number in range(KEYS):
        assert circuit.try_admit(5.0)
        ends.append(circuit.note_other_error(number, started=5.0))
    assert ends == [False] * 9 + [True]
    assert not circuit.is_open
    assert not circuit.has_failures
    assert circuit.compute_delay(5.0) == SOON


@given(st.integers(1, KEYS - 1), st.integers(1, KEYS - 1))
def test_a_failure_of_the_downstream_makes_the_circuit_forget_the_other_errors_before_it(before, after):
    circuit, now = opened(), A_WHILE
    for number in range(before):
        assert circuit.try_admit(now)
        assert not circuit.note_other_error(number, started=now)
    fail_probe(circuit, now)
    now += A_WHILE
    for number in range(after):
        assert circuit.try_admit(now)
        assert not circuit.note_other_error(-1 - number, started=now)
    assert circuit.is_open


@given(st.lists(st.integers(1, KEYS - 1), max_size=100))
def test_other_errors_of_fewer_than_ten_keys_never_close_the_circuit(keys):
    circuit = opened()
    for key in keys:
        assert circuit.try_admit(A_WHILE)
        assert not circuit.note_other_error(key, started=A_WHILE)
    assert circuit.is_open


def test_a_closed_circuit_ignores_other_errors():
    circuit = Circuit()
    assert not any(circuit.note_other_error(number, started=0.0) for number in range(2 * KEYS))
    assert not circuit.has_failures
    assert not any(circuit.note_failure(number, 0.0, unavailable=False) for number in range(KEYS - 1))


@pytest.mark.parametrize("probing", [False, True], ids=["before the probe", "during the probe"])
@given(late=st.lists(st.tuples(st.integers(), st.booleans()), max_size=30))
def test_failures_of_handlers_that_started_before_the_circuit_opened_change_nothing(probing, late):
    circuit = opened(at=1.0)
    now = 1.0 + FIRST_PROBE
    if probing:
        assert circuit.try_admit(now)
    for key, unavailable in late:
        assert not circuit.note_failure(key, now, unavailable=unavailable, started=0.5)
    assert circuit.try_admit(now) is not probing
    circuit.note_failure("k", now, unavailable=False, started=now)
    assert circuit.compute_delay(now) == 2 * FIRST_PROBE


def test_without_a_start_time_the_first_failure_ends_the_probe_and_later_ones_change_nothing():
    circuit = opened()
    assert not circuit.note_failure("a", 0.5, unavailable=False)
    assert circuit.try_admit(1.0)
    for _ in range(5):
        circuit.note_failure("a", 1.5, unavailable=False)
    assert circuit.compute_delay(1.5) == 2.0


@given(st.integers(0, 8), st.booleans())
def test_the_first_success_closes_and_forgets_everything(failed_probes, probing):
    circuit, now = opened(), 0.0
    for _ in range(failed_probes):
        now += A_WHILE
        fail_probe(circuit, now)
    if probing:
        circuit.try_admit(now + A_WHILE)
    assert circuit.note_success()
    assert not circuit.note_success()
    assert not circuit.is_open
    assert not circuit.has_failures
    assert circuit.try_admit(now)
    assert [circuit.note_failure(key, now, unavailable=False) for key in range(KEYS)] == [False] * 9 + [True]
    assert circuit.compute_delay(now) == FIRST_PROBE
    assert circuit.try_admit(now + FIRST_PROBE)


def test_an_event_that_comes_during_a_probe_waits_for_the_last_pause_but_not_beyond_the_end_of_the_probe():
    circuit, now = opened(), 0.0
    for _ in range(5):
        now += A_WHILE
        fail_probe(circuit, now)
    now += A_WHILE
    assert circuit.try_admit(now)
    assert circuit.compute_delay(now) == LONGEST_PAUSE
    assert circuit.compute_delay(now + PROBE_LOST - 0.5) == 0.5


def test_a_closed_circuit_asks_for_a_short_wait():
    """Between its refusal and this question another event may have succeeded."""
    assert Circuit().compute_delay(0.0) == SOON


def test_an_event_that_comes_when_a_probe_is_due_waits_a_moment():
    assert opened().compute_delay(A_WHILE) == SOON


class Downstream(RuleBasedStateMachine):
    """Handlers start, end and get lost in any order; the circuit is asked as a process would ask it."""

    def __init__(self) -> None:
        super().__init__()
        self.circuit = Circuit()
        self.now = 100.0
        self.running: list[float] = []
        self.admitted: list[float] = []  # since the circuit opened
        self.probe: float | None = None  # when the one that may still report started
        self.since_success: set[int] = set()
        self.others: set[int] = set()  # keys of probes that failed otherwise, since one found the downstream away

    @rule(seconds=st.floats(0.001, 40))
    def time_passes(self, seconds):
        self.now += seconds

    @rule()
    def a_handler_wants_to_start(self):
        was_open = self.circuit.is_open
        if self.circuit.try_admit(self.now):
            self.running.append(self.now)
            if was_open:
                self.admitted.append(self.now)
                self.probe = self.now
        else:
            assert was_open
            assert 0 < self.circuit.compute_delay(self.now) <= LONGEST_PAUSE

    @precondition(lambda self: self.running)
    @rule(data=st.data(), key=st.integers(0, 99), unavailable=st.sampled_from([False] * 9 + [True]))
    def one_fails(self, data, key, unavailable):
        was_open, before = self.circuit.is_open, self.circuit.compute_delay(self.now)
        started, is_probe = self.one_ends(data)
        opens = self.circuit.note_failure(key, self.now, unavailable=unavailable, started=started)
        self.since_success.add(key)
        assert opens == (not was_open and (unavailable or len(self.since_success) >= KEYS))
        if opens:
            self.admitted = []
        elif is_probe:
            self.others.clear()
        elif was_open:
            assert self.circuit.compute_delay(self.now) == before

    @precondition(lambda self: self.running)
    @rule(data=st.data(), key=st.integers(0, 99))
    def one_fails_otherwise(self, data, key):
        was_open, before = self.circuit.is_open, self.circuit.compute_delay(self.now)
        started, is_probe = self.one_ends(data)
        self.others |= {key} if is_probe else set()
        closes = self.circuit.note_other_error(key, started)
        assert closes == (is_probe and len(self.others) >= KEYS)
        assert self.circuit.is_open == (was_open and not closes)
        if closes:
            self.forget()
        elif is_probe:
            self.a_handler_wants_to_start()
            assert self.probe == self.now
        else:
            assert self.circuit.compute_delay(self.now) == before

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def one_succeeds(self, data):
        self.one_ends(data)
        was_open = self.circuit.is_open
        assert self.circuit.note_success() == was_open
        self.forget()

    def one_ends(self, data):
        """The start of a handler that ends now, and if it was the probe."""
        started = self.running.pop(data.draw(st.integers(0, len(self.running) - 1)))
        is_probe = started == self.probe
        if is_probe:
            self.probe = None
            self.admitted.pop()
        return started, is_probe

    def forget(self):
        self.admitted = []
        self.since_success.clear()
        self.others.clear()
        self.probe = None

    @precondition(lambda self: self.running)
    @rule()
    def all_are_lost(self):
        self.running.clear()

    @invariant()
    def it_is_troubled_from_the_first_failure_to_the_next_success(self):
        assert self.circuit.has_failures == bool(self.since_success)
        assert self.circuit.has_failures or not self.circuit.is_open

    @invariant()
    def probes_that_may_still_report_are_never_two(self):
        last_two = self.admitted[-2:]
        assert sum(start in self.running and self.now - start < PROBE_LOST for start in last_two) < 2

    @invariant()
    def it_never_blocks_for_ever(self):
        assert self.circuit.compute_delay(self.now) > 0
        at = self.now + PROBE_LOST + LONGEST_PAUSE
        if self.circuit.is_open:
            assert self.circuit.next_probe_at() <= at

    @invariant()
    def its_memory_is_bounded(self):
        assert len(self.circuit._failing_keys) <= KEYS
        assert len(self.circuit._other_error_keys) <= KEYS


TestDownstream = Downstream.TestCase


@given(st.lists(st.tuples(st.integers(0, 9), st.sampled_from(["fail", "away", "succeed"])), max_size=60))
def test_circuits_of_values_open_by_their_own_failures_and_the_oldest_are_forgotten(steps):
    circuits, most = ValueCircuits(30.0), 4
    failures, opened = {}, set()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(circuit_rules, "MAX_VALUES", most)
        for now, (value, what) in enumerate(steps):
            if what == "succeed":
                if (found := circuits.find(value)) is not None:
                    found.note_success()
                    circuits.drop_healthy(value)
                failures.pop(value, None)
                opened.discard(value)
            else:
                found, forgotten = circuits.ensure(value)
                if forgotten != value:
                    assert forgotten in opened
                found.note_failure(("event", now), float(now), unavailable=what == "away")
                known = {each for each in range(10) if circuits.find(each) is not None}
                failures = {each: many for each, many in failures.items() if each in known}
                opened &= known
                failures[value] = failures.get(value, 0) + 1
                if what == "away" or failures[value] >= 3:
                    opened.add(value)
            assert len(circuits) <= most
            assert {each.value for each in circuits.list_open()} == opened
