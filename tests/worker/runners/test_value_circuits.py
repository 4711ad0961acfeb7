"""A circuit for each value: one customer whose endpoint is away waits, and nobody else does."""

import threading
from collections import Counter, defaultdict

import pytest
from waiting import eventually

from partbox import Event
from partbox.errors import DownstreamUnavailable
from partbox.protocol import circuit
from partbox.worker.engine import limited_queue
from partbox.worker.reports import limits

DEAD = "4711"
WAYS = ["sync alone", "sync", "async", "lists", "async lists"]


class Endpoints:
    """The endpoints of customers, of which some are away; calls and deliveries by customer."""

    def __init__(self, *away, error=ConnectionError):
        self.away, self.error = {*away}, error
        self.calls, self.through = Counter(), defaultdict(list)
        self._lock = threading.Lock()

    def __call__(self, events):
        with self._lock:
            (customer,) = {each.tenant_id for each in events}  # no list has two
            self.calls[customer] += 1
            if customer in self.away:
                raise self.error("away")
            self.through[customer] += [(each.aggregate_id, each.payload["number"], each.attempt) for each in events]


def register(outbox, endpoints, way, **options):
    async def one_async(event):
        endpoints([event])

    async def many_async(events):
        endpoints(events)

    options = {"name": "send", "circuit_by": "tenant_id", "max_attempts": 3, "retry": "fixed:0.01"} | options
    match way:
        case "lists":
            outbox.on_batch("Counted", max_size=4, **options)(lambda events: endpoints(events))
        case "async lists":
            outbox.on_batch("Counted", max_size=4, **options)(many_async)
        case "async":
            outbox.on("Counted", **options)(one_async)
        case _:
            outbox.on("Counted", **options)(lambda event: endpoints([event]))
    return 1 if "alone" in way else 4


def publish(desk, customer, numbers, keys=3):
    for number in numbers:
        key = None if keys is None else f"{customer} {number % keys}"
        desk.publish(key, number, tenant_id=customer)


def in_order(deliveries):
    by_key = defaultdict(list)
    for key, number, _ in deliveries:
        if key is not None:
            by_key[key].append(number)
    return all(numbers == sorted(numbers) for numbers in by_key.values())


@pytest.fixture
def soon(monkeypatch):
    """Probes that come at most ten times a second."""
    monkeypatch.setattr(circuit, "VALUE_PAUSE", 0.1)
    monkeypatch.setattr(limited_queue, "INTERVAL_ELSE", 0.05)


@pytest.mark.parametrize("keys", [3, None])
@pytest.mark.parametrize("way", WAYS)
def test_a_customer_whose_endpoint_is_away_is_probed_and_all_others_go_on(desk, soon, way, keys):
    endpoints = Endpoints(DEAD)
    concurrency = register(desk.outbox, endpoints, way)
    publish(desk, DEAD, range(3), keys)
    with desk.outbox.worker(concurrency=concurrency):
        desk.eventually(lambda: endpoints.calls[DEAD] >= 3)
        publish(desk, DEAD, range(3, 60), keys)
        for customer in "abc":
            publish(desk, customer, range(20), keys)
        desk.eventually(lambda: all(len(endpoints.through[each]) == 20 for each in "abc"))
        # Every waiting event of the customer has a row, and none was charged after the circuit had opened.
        desk.eventually(lambda: len(desk.parked()) == 60 and "retrying" not in desk.states().values())
        calls, attempts = endpoints.calls[DEAD], sum(each for _, _, each, _ in desk.parked())
        desk.eventually(lambda: endpoints.calls[DEAD] >= calls + 3)
        assert sum(each for _, _, each, _ in desk.parked()) == attempts
        assert attempts <= 3
        endpoints.away.clear()
        desk.eventually(desk.all_done)
    assert {number for _, number, _ in endpoints.through[DEAD]} == {*range(60)}
    assert len(endpoints.through[DEAD]) == 60
    assert all(map(in_order, endpoints.through.values()))


def test_one_unavailable_answer_opens_the_circuit_of_its_value_only(desk, soon, caplog):
    endpoints = Endpoints(DEAD, error=DownstreamUnavailable)
    register(desk.outbox, endpoints, "sync alone", max_attempts=1)
    publish(desk, DEAD, range(10))
    publish(desk, "a", range(10))
    with desk.outbox.worker():
        desk.eventually(lambda: len(endpoints.through["a"]) == 10)
        desk.eventually(lambda: {(state, attempts) for _, state, attempts, _ in desk.parked()} >= {("deferred", 0)})
        assert "the circuit of send for the value '4711' is open" in caplog.text
        endpoints.away.clear()
        desk.eventually(desk.all_done)
    assert in_order(endpoints.through[DEAD])


def test_a_closed_circuit_costs_no_rows_and_a_failing_value_is_charged_until_it_opens(desk):
    endpoints = Endpoints(DEAD)
    register(desk.outbox, endpoints, "sync alone", max_attempts=2, retry="fixed:0.01")
    publish(desk, DEAD, [0], keys=1)
    publish(desk, "a", range(10))
    with desk.outbox.worker():
        desk.eventually(lambda: len(endpoints.through["a"]) == 10)
        desk.eventually(lambda: desk.states() == {0: "dead"})
    assert endpoints.calls[DEAD] == 2


def test_waiting_events_of_an_open_circuit_are_not_loaded_again_at_each_probe(desk, soon, monkeypatch):
    """One head of the value is in memory, however many keys wait."""
    endpoints, loaded = Endpoints(DEAD), Counter()
    register(desk.outbox, endpoints, "sync alone")
    publish(desk, DEAD, range(200), keys=200)
    from partbox.db.delivery import records

    load = records.load_bodies

    def counted(conn, schema, wanted):
        loaded["rows"] += len(wanted)
        return load(conn, schema, wanted)

    monkeypatch.setattr(records, "load_bodies", counted)
    with desk.outbox.worker():
        desk.eventually(lambda: len(desk.parked()) == 200)
        calls, before = endpoints.calls[DEAD], loaded["rows"]
        desk.eventually(lambda: endpoints.calls[DEAD] >= calls + 10)
        assert loaded["rows"] - before <= 3 * (endpoints.calls[DEAD] - calls) + 6
        endpoints.away.clear()
        desk.eventually(desk.all_done)


def test_an_open_circuit_of_a_value_is_listed_with_its_waiting_events(desk_with, soon, monkeypatch):
    monkeypatch.setattr(limits, "LIMITS_INTERVAL", 0.0)
    monkeypatch.setattr(circuit, "VALUE_PAUSE", 100.0)
    desk = desk_with(heartbeat="200ms")
    endpoints = Endpoints(DEAD, error=DownstreamUnavailable)
    register(desk.outbox, endpoints, "sync alone")
    publish(desk, DEAD, range(30))

    def listed():
        return [each for each in desk.outbox.limits.list() if each.kind == "circuit"]

    with desk.outbox.worker():
        eventually(lambda: [each.waiting for each in listed()] == [30])
        (found,) = listed()
        assert (found.handler, found.value, found.processes, found.change) == ("send", DEAD, 1, None)
        assert (found.waited is None, found.open_for is None, found.probe_in is None) == (False, False, False)
        assert found.rate_text.startswith("open, probe in ")
        error = "select min(last_error) from partbox.parked where state = 'deferred' and last_error like 'it waits%'"
        (text,) = desk.conn.execute(error).fetchone()
        assert text.startswith(
            "it waits for its turn: the circuit of its handler send for the value '4711' is open since "
        )
        endpoints.away.clear()
        monkeypatch.setattr(circuit, "VALUE_PAUSE", 0.1)


def test_a_waiting_event_goes_on_in_another_process_that_knows_nothing_of_the_circuit(desk, soon):
    endpoints = Endpoints(DEAD)
    register(desk.outbox, endpoints, "sync alone")
    publish(desk, DEAD, range(20))
    with desk.outbox.worker():
        desk.eventually(lambda: len(desk.parked()) == 20)
    endpoints.away.clear()
    with desk.outbox.worker():
        desk.eventually(desk.all_done)
    assert in_order(endpoints.through[DEAD])
    assert len(endpoints.through[DEAD]) == 20


def test_a_circuit_for_each_aggregate_and_limits_by_tenant_hold_together(desk, soon):
    endpoints = Endpoints()
    broken = {"a 1"}

    def send(event):
        endpoints.calls[event.aggregate_id] += 1
        if event.aggregate_id in broken:
            raise TimeoutError("no answer")
        endpoints.through[event.tenant_id].append((event.aggregate_id, event.payload["number"], event.attempt))

    options = {"rate": "500/s", "limit_by": "tenant_id", "circuit_by": "aggregate_id"}
    desk.outbox.on("Counted", name="send", retry="fixed:0.01", **options)(send)
    publish(desk, "a", range(30))
    publish(desk, "b", range(30))
    with desk.outbox.worker():
        desk.eventually(lambda: (len(endpoints.through["a"]), len(endpoints.through["b"])) == (20, 30))
        desk.eventually(lambda: len(desk.parked()) == 10)
        broken.clear()
        desk.eventually(desk.all_done)
    assert all(map(in_order, endpoints.through.values()))


def test_a_circuit_by_that_fails_counts_as_none(desk, soon, caplog):
    def customer(event):
        raise SystemExit("no")

    seen = []
    desk.outbox.on("Counted", name="send", circuit_by=customer)(lambda event: seen.append(event.id))
    with desk.conn.transaction():
        desk.outbox.publish(desk.conn, Event("Counted", {"number": 1}))
    with desk.outbox.worker():
        desk.eventually(lambda: len(seen) == 1)
    assert "circuit_by of send failed" in caplog.text
