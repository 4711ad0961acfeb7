"""Bugs beside outages, in a worker on a real database: bugs kill their events, outages none, and the error is kept."""

import threading
import time

import pytest
from contexts import context, row
from downstream import OPEN, Downstream, registered

from partbox.codecs import Codecs
from partbox.errors import DownstreamUnavailable
from partbox.events import ClaimContext, DeliveredEvent
from partbox.handlers import Handlers
from partbox.protocol import circuit
from partbox.worker.runners.endpoint import Endpoint
from partbox.worker.runners.handler_circuit import WAIT_SPREAD

HOUR = 3_600.0


@pytest.fixture
def soon(monkeypatch):
    """Circuits that probe many times a second."""
    monkeypatch.setattr(circuit, "FIRST_PROBE", 0.02)
    monkeypatch.setattr(circuit, "LONGEST_PAUSE", 0.05)


def last_errors(desk):
    """The stored error and traceback of each parked event, by its number."""
    rows = desk.conn.execute(
        """select (r.payload ->> 'number')::integer, k.last_error, k.traceback
             from partbox.parked k join partbox.record r on r.id = k.record_id"""
    ).fetchall()
    return {number: (error, trace) for number, error, trace in rows}


KINDS = ["sync", "async", "transactional", "list", "async list"]


@pytest.mark.thorough
@pytest.mark.parametrize("max_attempts", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_a_bug_kills_its_events_by_their_policy_and_never_opens_the_circuit(desk_with, caplog, kind, max_attempts):
    """Forty keys fail with an ordinary error at each attempt, and nothing succeeds before all of them have."""
    desk, letters = desk_with(retry="fixed:0.01", max_attempts=max_attempts), []
    downstream = Downstream(KeyError("card"))
    registered(desk, kind, downstream, "Counted")
    desk.outbox.register(desk.note, "Other")
    desk.outbox.on_dead_letter(lambda event: letters.append(event.payload["number"]))
    for number in range(40):
        desk.publish(f"k{number}", number)
    with desk.outbox.worker():
        desk.eventually(lambda: list(desk.states().values()) == ["dead"] * 40)
        desk.eventually(lambda: sorted(letters) == list(range(40)))
        downstream.down = False
        desk.publish("k0", 100)
        desk.eventually(lambda: downstream.through == [("k0", 100)])
    assert {attempts for _, _, attempts, _ in desk.parked()} == {max_attempts}
    assert {error for error, _ in last_errors(desk).values()} == {"KeyError: 'card'"}
    assert OPEN not in caplog.text


@pytest.mark.thorough
@pytest.mark.parametrize("kind", KINDS)
def test_only_events_with_a_bug_are_charged_and_die_while_the_circuit_is_open(desk_with, caplog, soon, kind):
    desk = desk_with(retry="fixed:0.01", max_attempts=2)
    downstream = Downstream(DownstreamUnavailable("down"))

    def call(event):
        if event.aggregate_id.startswith("bug"):
            raise KeyError("card")
        downstream(event)

    registered(desk, kind, call, "Counted", max_size=1)
    desk.publish("k0", 0)
    with desk.outbox.worker():
        desk.eventually(lambda: OPEN in caplog.text)
        for number in range(1, 6):
            desk.publish(f"k{number}", number)
            desk.publish(f"bug{number}", 100 + number)
        desk.eventually(lambda: {n for n, state in desk.states().items() if state == "dead"} == {*range(101, 106)})
        rows = desk.parked()
        assert {attempts for number, _, attempts, _ in rows if number > 100} == {2}
        assert {(state, attempts) for number, state, attempts, _ in rows if number < 100} == {("deferred", 0)}
        downstream.down = False
        desk.eventually(lambda: sorted(number for _, number in downstream.through) == list(range(6)))


def test_an_event_with_a_connection_error_of_its_own_does_not_keep_the_circuit_open(desk_with, caplog, soon):
    """It is the first by its id, and always due when the others are: who probes is left to chance."""
    caplog.set_level("INFO", "partbox.worker")
    desk = desk_with(retry="fixed:0.01", max_attempts=2)
    downstream = Downstream(DownstreamUnavailable("down"))

    def call(event):
        if event.payload["number"] < 3:
            raise ConnectionError("its own webhook is away")
        downstream(event)

    desk.outbox.register(call, "Counted")
    for number in range(20):
        desk.publish(f"k{number}", number)
    with desk.outbox.worker():
        desk.eventually(lambda: len(desk.parked()) == 20)
        downstream.down = False
        desk.eventually(lambda: len(downstream.through) == 17)
        desk.eventually(lambda: desk.states() == dict.fromkeys(range(3), "dead"))


def test_the_circuit_closes_when_all_probed_events_have_a_bug_and_all_die_in_time(desk_with, caplog, soon):
    caplog.set_level("INFO", "partbox.worker")
    desk = desk_with(retry="fixed:0.01", max_attempts=2)
    downstream = Downstream(DownstreamUnavailable("down"))
    desk.outbox.register(downstream, "Counted")
    for number in range(40):
        desk.publish(f"k{number}", number)
    with desk.outbox.worker():
        desk.eventually(lambda: len(desk.parked()) == 40)
        downstream.error = KeyError("card")
        desk.eventually(lambda: list(desk.states().values()) == ["dead"] * 40)
    assert {attempts for _, _, attempts, _ in desk.parked()} == {2}
    assert "is closed again: events fail, but not because its downstream is unavailable" in caplog.text


def test_an_outage_kills_nothing_not_even_at_the_last_attempt(desk_with, soon):
    """The second attempt is the last, and finds the circuit open: the event is put off until the downstream is back.

    One handler of each kind, all in the same worker, each with two aggregates: one that opens its circuit, and one that
    has failed once before.
    """
    desk = desk_with(retry="fixed:0.01", max_attempts=2)
    downstreams, broken = {kind: Downstream(TimeoutError("no answer")) for kind in KINDS}, set()

    def call(event):
        kind, downstream = event.event_type, downstreams[event.event_type]
        if event.aggregate_id == f"{kind} fails" and kind not in broken:
            broken.add(kind)
            raise KeyError("once")
        if event.aggregate_id == f"{kind} opens" and downstream.down:
            raise DownstreamUnavailable("down")
        downstream(event)

    def tried(kind):
        return [attempt for key, _, attempt in downstreams[kind].calls if key == f"{kind} fails"]

    for kind in KINDS:
        registered(desk, kind, call, kind, max_size=1)
    with desk.outbox.worker():
        for number, kind in enumerate(KINDS, 10):
            desk.publish(f"{kind} opens", number, event_type=kind)
        desk.eventually(lambda: [*desk.states().values()] == ["deferred"] * len(KINDS))
        for number, kind in enumerate(KINDS):
            desk.publish(f"{kind} fails", number, event_type=kind)
        desk.eventually(lambda: all(len(tried(kind)) > 2 for kind in KINDS))
        desk.eventually(lambda: {(number, "deferred", 1, True) for number in range(len(KINDS))} <= {*desk.parked()})
        for downstream in downstreams.values():
            downstream.down = False
        desk.eventually(lambda: not desk.parked())
    assert {kind: {*tried(kind)} for kind in KINDS} == {kind: {2} for kind in KINDS}


def test_the_last_real_error_stays_whatever_an_event_waits_for(desk_with, caplog, soon):
    caplog.set_level("INFO", "partbox.worker")
    desk = desk_with(retry="fixed:0.02", max_attempts=None, max_parked=1_000)
    downstream = Downstream(DownstreamUnavailable("no route"))

    def call(event):
        if event.aggregate_id == "bug" and event.attempt == 1:
            raise KeyError("card")
        if event.aggregate_id != "bug" or not downstream.down:
            downstream(event)
        else:
            raise ConnectionError("refused")

    desk.outbox.register(call, "Counted", name="mail")
    desk.publish("bug", 0)
    with desk.outbox.worker():
        desk.eventually(lambda: 0 in last_errors(desk))
        for number in range(1, 40):
            desk.publish(f"k{number % 20}", number)
        desk.eventually(lambda: len(desk.parked()) == 40 and OPEN in caplog.text)
        heads = [f"k{number}" for number in range(1, 20)]
        desk.eventually(lambda: len([each for each in desk.outbox.blocked.list() if each.error]) == 21)
        errors = {each.aggregate_id: each.error for each in desk.outbox.blocked.list()}
        assert all(errors[key].endswith(("no route", "refused")) for key in heads)
        error, trace = last_errors(desk)[0]
        assert error in ("KeyError: 'card'", "ConnectionError: refused")
        assert trace.count("raise") == 1
        downstream.down = False
        desk.eventually(lambda: not desk.parked())
    waits = [record.getMessage() for record in caplog.records if "waits for its downstream" in record.getMessage()]
    assert waits
    assert all("Error: " in text or "no route" in text for text in waits)


def test_an_event_that_an_open_circuit_refuses_keeps_the_error_and_the_traceback_that_it_had(desk_with, monkeypatch):
    monkeypatch.setattr(circuit, "FIRST_PROBE", HOUR)
    desk, gate = desk_with(retry=f"fixed:{HOUR:g}"), threading.Event()

    def call(event):
        gate.set()
        raise KeyError("card") if event.payload["number"] == 0 else DownstreamUnavailable("no route")

    desk.outbox.register(call, "Counted", name="mail")
    desk.publish("k0", 0)
    with desk.outbox.worker():
        desk.eventually(lambda: desk.states() == {0: "retrying"})
        before = last_errors(desk)[0]
        desk.publish("k1", 1)
        desk.eventually(lambda: desk.states().get(1) == "deferred")
        desk.publish("k2", 2, 3)
        desk.eventually(lambda: len(desk.parked()) == 4)
        desk.outbox.blocked.retry_now(aggregate_type="Key", aggregate_id="k0")
        desk.eventually(lambda: (0, "deferred", 1, True) in desk.parked())
        errors = last_errors(desk)
    assert errors[0] == before == ("KeyError: 'card'", before[1])
    assert 'raise KeyError("card")' in before[1]
    assert errors[1][0].endswith("DownstreamUnavailable: no route")
    assert errors[2] == (f"mail waits for its downstream: {errors[1][0]}", None)


def test_a_handler_that_ends_its_process_is_charged_though_the_circuit_is_open(desk_with, monkeypatch):
    """What runs over its time in a thread can only be ended with its process, at each of its attempts."""
    monkeypatch.setattr(circuit, "FIRST_PROBE", HOUR)
    desk, endpoints = desk_with(max_attempts=1), []
    desk.outbox.register(Downstream(DownstreamUnavailable("down")), "Counted")
    desk.publish("k", 1)
    judge = Endpoint.judge
    monkeypatch.setattr(
        Endpoint,
        "judge",
        lambda self, event, *given, **more: endpoints.append((self, event)) or judge(self, event, *given, **more),
    )
    with desk.outbox.worker():
        desk.eventually(lambda: desk.states() == {1: "deferred"})
    endpoint, event = endpoints[0]
    late = TimeoutError("the handler ran longer than its timeout of 1 s")
    assert judge(endpoint, event, late).state == "deferred"
    verdict = endpoint.judge_timeout(event, late, 0.0)
    assert (verdict.state, verdict.attempts) == ("dead", 1)


def test_events_that_wait_for_a_circuit_do_not_come_back_at_once():
    """The one of the lowest id would be the probe each time, and an error of its own would keep the circuit open."""
    handlers = Handlers()
    handlers.register(lambda event: None, "Counted")
    endpoint = context(handlers=handlers).routes["Counted", "Key"]
    event = DeliveredEvent(row(1), ClaimContext(1, "default", Codecs()))
    endpoint.judge(event, DownstreamUnavailable("down"), 0.0)
    now = time.monotonic()
    waits = [refusal.delay for _ in range(20) if (refusal := endpoint.find_refusal(event, now)) is not None]
    assert len(set(waits)) == 20
    assert max(waits) <= WAIT_SPREAD[1] / WAIT_SPREAD[0] * min(waits)
