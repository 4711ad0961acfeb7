"""Calls of observers by a worker that does its work: through the public API, on a real database."""

import threading
import time
from collections import Counter

import pytest

from partbox import Dead, DownstreamUnavailable, UnrecoverableError
from partbox.observe import Observer
from partbox.protocol import circuit
from partbox.protocol.retry import Fixed

SLOW, HOUR = 0.02, 3600.0


class Witness(Observer):
    """Keeps everything, in order; any thread."""

    def __init__(self):
        self.said = []
        self._lock = threading.Lock()

    def note(self, *what):
        with self._lock:
            self.said.append(what)

    def all(self, kind):
        with self._lock:
            return [what[1:] for what in self.said if what[0] == kind]

    def delivered_by(self):
        counts = Counter()
        for (turn,) in self.all("delivered"):
            counts[turn.handler] += turn.count
        return counts

    def started(self, worker):
        self.note("started", worker)

    def claimed(self, partition, epoch, pause):
        self.note("claimed", partition, epoch, pause)

    def read(self, ids, seconds, late_ids):
        self.note("read", list(ids), seconds, late_ids)

    def delivered(self, turn):
        self.note("delivered", turn)

    def parked(self, event, handler, verdict, error, seconds):
        self.note("parked", event.payload["number"], handler, verdict.state, error, seconds)

    def circuit(self, handler, is_open):
        self.note("circuit", handler, is_open)

    def saved(self, partitions, parked, seconds):
        self.note("saved", partitions, dict(parked), seconds)

    def released(self, partition):
        self.note("released", partition)

    def loaded(self, load):
        self.note("loaded", load)


class Settling(Witness):
    """It also wants to know of each event, which takes the fast way from all of them."""

    def settled(self, event, handler, verdict):
        self.note("settled", event.payload["number"], verdict and verdict.state)


@pytest.fixture(params=[Witness, Settling], ids=["fast", "slow way"])
def witness(request, desk):
    return desk.outbox.observe(request.param())


ONE_WAY = pytest.mark.parametrize(
    "witness",
    [pytest.param(Witness, id="fast"), pytest.param(Settling, id="slow way", marks=pytest.mark.soak)],
    indirect=True,
)
"""For what no plain function is in: it goes the same way with either."""


def sync(desk, event_type="Counted", name="h"):
    @desk.outbox.on(event_type, name=name)
    def handle(event):
        desk.note(event)


def blocking_loop(desk, event_type, name):
    @desk.outbox.on(event_type, name=name)
    async def handle(event):
        time.sleep(0.003)  # others wait longer for the loop than a look at the lease is apart
        desk.note(event)


def asynchronous(desk, event_type, name):
    @desk.outbox.on(event_type, name=name)
    async def handle(event):
        desk.note(event)


def batch(desk, event_type, name):
    @desk.outbox.on_batch(event_type, name=name, max_size=7)
    def handle(events):
        for event in events:
            desk.note(event)


def transactional(desk, event_type, name):
    @desk.outbox.on(event_type, name=name, transactional=True)
    def handle(event, conn):
        desk.note(event)


KINDS = {each.__name__: each for each in (sync, asynchronous, blocking_loop, batch, transactional)}


@pytest.mark.parametrize(
    ("kinds", "concurrency"),
    [
        pytest.param(list(KINDS), 4, id="all together"),
        *(
            pytest.param([kind], runners, id=f"{kind}-{runners}", marks=pytest.mark.soak)
            for kind in KINDS
            for runners in (1, 4)
        ),
    ],
)
def test_every_delivery_is_reported_once_whatever_kind_of_handler_runs_it(desk, witness, kinds, concurrency):
    for kind in kinds:
        KINDS[kind](desk, kind, kind)
    with desk.conn.transaction():
        for kind in kinds:
            for key in range(10):
                desk.publish(f"{kind} {key}", *range(10), event_type=kind)
    before = time.time()
    with desk.outbox.worker(concurrency=concurrency):
        desk.eventually(desk.all_done)

    assert witness.delivered_by() == dict.fromkeys(kinds, 100)
    turns = [turn for (turn,) in witness.all("delivered")]
    assert all(len(turn.slow) <= turn.count for turn in turns)
    assert all(before - 60 < turn.oldest <= turn.ended and turn.newest <= turn.ended <= time.time() for turn in turns)
    assert all(turn.seconds >= sum(turn.slow) * 0.99 for turn in turns)
    assert sum(len(ids) for ids, _, _ in witness.all("read")) == 100 * len(kinds)
    assert len(witness.all("settled")) == (100 * len(kinds) if isinstance(witness, Settling) else 0)
    assert witness.all("parked") == []


def test_handlers_that_take_turns_in_one_lane_are_counted_apart(desk, witness):
    for name in ("Odd", "Even"):
        desk.outbox.on(name, name=name)(lambda event: None)
    with desk.conn.transaction():
        for number in range(30):
            desk.publish("k", number, event_type="Even" if number % 3 else "Odd")
    with desk.outbox.worker(concurrency=1):
        desk.eventually(desk.all_done)
    assert witness.delivered_by() == {"Odd": 10, "Even": 20}


def test_the_time_of_a_slow_handler_is_reported_and_of_no_other(desk, witness):
    @desk.outbox.on("Counted", name="h")
    def handle(event):
        if event.payload["number"] % 5 == 4:
            time.sleep(SLOW)  # what is measured

    desk.publish("a", *range(10))
    desk.publish("b", *range(10))
    with desk.outbox.worker(concurrency=1):
        desk.eventually(desk.all_done)
    slow = [seconds for (turn,) in witness.all("delivered") for seconds in turn.slow if seconds >= SLOW]
    assert len(slow) == 4


def test_a_runner_reports_slow_handlers_before_it_has_finished_all_its_lanes(desk, witness):
    permits = threading.Semaphore(0)

    @desk.outbox.on("Counted", name="h")
    def handle(event):
        permits.acquire(timeout=120)
        time.sleep(0.03)  # longer than a turn

    for key in range(10):
        desk.publish(f"key {key}", 0)
    with desk.outbox.worker(concurrency=1):
        desk.eventually(lambda: any(load.running for (load,) in witness.all("loaded")))
        permits.release(3)
        desk.eventually(lambda: witness.delivered_by()["h"] >= 2)
        permits.release(7)
        desk.eventually(desk.all_done)
    assert witness.delivered_by() == {"h": 10}


def test_the_first_and_the_last_event_of_a_long_turn_are_reported(desk, witness):
    sync(desk)
    desk.publish("k", *range(40))
    desk.conn.execute("update partbox.record set created_at = created_at - (100 - id) * interval '1 minute'")
    (oldest,) = desk.conn.execute("select min(extract(epoch from created_at))::float8 from partbox.record").fetchone()
    with desk.outbox.worker(concurrency=1):
        desk.eventually(desk.all_done)
    assert min(turn.oldest for (turn,) in witness.all("delivered")) == pytest.approx(oldest, abs=0.001)


@ONE_WAY
def test_a_list_counts_as_one_handler_however_many_keys_it_has(desk, witness):
    gate = threading.Event()

    @desk.outbox.on_batch("Counted", name="h", max_size=50)
    def handle(events):
        gate.wait(120)

    for key in range(20):
        desk.publish(f"key {key}", 0)
    with desk.outbox.worker(concurrency=1):
        desk.eventually(lambda: any(load.running for (load,) in witness.all("loaded")))
        gate.set()
        desk.eventually(desk.all_done)
    assert {load.running for (load,) in witness.all("loaded")} <= {0, 1}


def test_a_full_window_shows_in_the_reported_load(desk_with):
    desk, gate = desk_with(window=10), threading.Event()
    witness = desk.outbox.observe(Witness())

    @desk.outbox.on("Counted", name="h")
    def handle(event):
        gate.wait(120)

    with desk.conn.transaction():
        for key in range(200):
            desk.publish(f"key {key}", *range(10))
    try:
        with desk.outbox.worker(concurrency=1):
            desk.eventually(lambda: any(load.records >= 0.3 * load.window > 0 for (load,) in witness.all("loaded")))
            gate.set()
    finally:
        gate.set()


@ONE_WAY
def test_calls_of_the_dead_letter_hook_are_not_reported_as_new_parks(desk, witness):
    failures = [RuntimeError("not yet")]

    @desk.outbox.on_dead_letter
    def hook(event):
        if failures:
            raise failures.pop()

    @desk.outbox.on("Counted", name="h")
    def handle(event):
        return Dead("no")

    desk.publish("k", 1)
    with desk.outbox.worker():
        desk.eventually(lambda: not failures)
        desk.make_due()
        desk.eventually(lambda: desk.conn.execute("select count(due_at) from partbox.parked").fetchone() == (0,))
        desk.eventually(lambda: witness.all("saved"))
    assert sum(parked.get("dead", 0) for _, parked, _ in witness.all("saved")) == 1


@ONE_WAY
def test_an_event_that_an_open_circuit_refuses_in_a_transaction_is_reported_without_a_duration(desk, witness):
    @desk.outbox.on("Counted", name="h", transactional=True)
    def handle(event, conn):
        raise DownstreamUnavailable("down")

    desk.publish("a", 1)
    with desk.outbox.worker():
        desk.eventually(lambda: witness.all("circuit") == [("h", True)])
        desk.publish("b", 2)
        desk.eventually(lambda: desk.states().get(2) == "deferred")
        desk.eventually(lambda: any(number == 2 for number, *_ in witness.all("parked")))
    refused = [seconds for number, _, _, error, seconds in witness.all("parked") if error is None]
    assert refused
    assert set(refused) == {None}


class Locksmith(Observer):
    """Every hook of a worker is called while its lock is free."""

    def __init__(self):
        self.worker, self.held = None, []

    def try_lock(self, hook):
        if self.worker is not None:
            if self.worker.engine.lock.acquire(timeout=5):
                self.worker.engine.lock.release()
            else:
                self.held.append(hook)

    def forgotten(self, partition):
        self.try_lock("forgotten")

    def claimed(self, partition, epoch, pause):
        self.try_lock("claimed")

    def released(self, partition):
        self.try_lock("released")

    def delivered(self, turn):
        self.try_lock("delivered")


def test_no_hook_is_called_with_the_lock_of_the_worker_held(desk):
    locksmith = desk.outbox.observe(Locksmith())
    sync(desk)
    worker = desk.outbox.worker()
    locksmith.worker = worker._worker
    with worker:
        desk.publish("k", 1)
        desk.eventually(desk.all_done)
        worker._worker.poller.restart_session()
        desk.publish("k", 2)
        desk.eventually(desk.all_done)
    assert locksmith.held == []


UNSUCCESSFUL = {
    "Dead": (lambda: Dead("no"), "dead", type(None)),
    "UnrecoverableError": (lambda: (_ for _ in ()).throw(UnrecoverableError("no")), "dead", UnrecoverableError),
    "raised": (lambda: (_ for _ in ()).throw(ValueError("broken")), "retrying", ValueError),
    "DownstreamUnavailable": (
        lambda: (_ for _ in ()).throw(DownstreamUnavailable("down")),
        "deferred",
        DownstreamUnavailable,
    ),
}


def test_an_unsuccessful_event_is_reported_with_its_reason_and_not_as_a_delivery(desk, witness, monkeypatch):
    """Each of them has a handler of its own, whose second event meets it; nothing is tried again meanwhile."""
    monkeypatch.setattr(circuit, "FIRST_PROBE", HOUR)

    def handles(name):
        @desk.outbox.on(name, name=name, retry=Fixed(HOUR))
        def handle(event):
            return UNSUCCESSFUL[name][0]() if event.payload["number"] >= 10 else None

    expected = {}
    for number, (name, (_, state, _)) in enumerate(UNSUCCESSFUL.items()):
        handles(name)
        desk.publish(name, number, 10 + number, event_type=name)
        expected[10 + number] = state

    def saved():
        return sum((Counter(parked) for _, parked, _ in witness.all("saved")), Counter())

    with desk.outbox.worker():
        desk.eventually(lambda: desk.states() == expected)
        desk.eventually(lambda: saved() == Counter(expected.values()))
    told = {handler: (number, state, type(error)) for number, handler, state, error, _ in witness.all("parked")}
    assert told == {
        name: (10 + number, state, error) for number, (name, (_, state, error)) in enumerate(UNSUCCESSFUL.items())
    }
    assert len(witness.all("parked")) == len(UNSUCCESSFUL)
    assert all(seconds >= 0 for *_, seconds in witness.all("parked"))
    assert witness.delivered_by() == dict.fromkeys(UNSUCCESSFUL, 1)
    assert witness.all("circuit") == [("DownstreamUnavailable", True)]


@ONE_WAY
def test_a_worker_is_reported_from_its_start_to_its_end(desk, witness):
    sync(desk)
    with desk.outbox.worker():
        desk.eventually(lambda: any(load.partitions == 256 for (load,) in witness.all("loaded")))
    assert witness.said[0][0] == "started"
    assert witness.said[0][1].handlers[0] == "h"
    assert sorted(partition for partition, _, _ in witness.all("claimed")) == list(range(256))
    assert sorted(partition for (partition,) in witness.all("released")) == list(range(256))
    assert {pause for _, _, pause in witness.all("claimed")} == {None}

    with desk.outbox.worker():
        desk.eventually(lambda: len(witness.all("claimed")) == 512)
    pauses = [pause for _, _, pause in witness.all("claimed")[256:]]
    assert all(0 <= pause < 60 for pause in pauses), "they were released, and some time later claimed"
