"""Partitions that a dead process left behind, as their next owner finds them."""

import logging
import threading

import pytest
from planted_records import Planter

from partbox import Dead, Event
from partbox.protocol.hashing import partition_of

ALL = "update partbox.partition set suspect_until_id = (select max(id) from partbox.record)"
CHARGED = "select count(*) from partbox.parked where started_at is not null"


class Beside:
    """A handler that keeps which events ran beside which, by their payloads."""

    def __init__(self):
        self.running, self.beside, self.attempts = set(), {}, {}
        self.lock = threading.Lock()

    def handle(self, event):
        name = event.payload
        with self.lock:
            self.attempts.setdefault(name, []).append(event.attempt)
            self.beside[name] = set(self.running)
            for other in self.running:
                self.beside[other].add(name)
            self.running.add(name)
        threading.Event().wait(0.01)
        with self.lock:
            self.running.discard(name)


@pytest.fixture
def planter(conn):
    return Planter(conn)


def names_in(*, of, count, but=frozenset()):
    """Aggregate ids in the partition of another, or with `of` None anywhere outside of those in `but`."""
    found = (name for name in map(str, range(1_000_000)) if name not in but)
    wanted = partition_of(of) if of is not None else None
    fits = (name for name in found if (partition_of(name) == wanted) == (wanted is not None) and name != of)
    return [next(fits) for _ in range(count)]


def plant(planter, key, **fields):
    """A row that is ready: at once if it blocks, or due."""
    planter.park(key, "ready", blocks=key is not None, due=0 if key is None else None, **fields)


def sessions(desk):
    """The server's processes that read and save for a worker."""
    rows = desk.conn.execute(
        "select pid from pg_stat_activity where datname = current_database()"
        " and application_name in ('partbox poller', 'partbox saver')"
    )
    return {pid for (pid,) in rows}


def count(desk, query=CHARGED):
    return desk.conn.execute(query).fetchone()[0]


def test_an_accused_record_runs_with_no_other_charged_record_beside_it(desk, planter):
    accused = ["accused-1", "accused-2", "accused-3", "accused-4"]
    for name in accused:
        key = None if name == "accused-4" else name
        planter.park(
            key, "ready", blocks=key is not None, attempts=1, due=None if key else 0, started=True, payload=name
        )
    for number in range(40):
        planter.publish(None if number % 4 == 0 else f"k{number}", payload=f"suspect-{number}")
    desk.conn.execute(ALL)
    handler = Beside()
    desk.outbox.register(handler, "Placed")
    with desk.outbox.worker(concurrency=4):
        desk.eventually(desk.all_done)
    assert {name: handler.beside[name] for name in accused} == {name: set() for name in accused}
    assert {name: handler.attempts[name] for name in accused} == {name: [2] for name in accused}
    assert {tuple(attempts) for name, attempts in handler.attempts.items() if name not in accused} == {(1,)}
    assert len(handler.attempts) == 44
    assert any(handler.beside.values())


@pytest.mark.parametrize("key", ["k", None])
def test_a_record_that_died_with_its_process_too_often_is_dead_unrun_and_its_followers_go_on(desk_with, planter, key):
    desk = desk_with(max_attempts=2)
    planter.park(
        key, "ready", blocks=key is not None, attempts=2, due=None if key else 0, started=True, payload="poison"
    )
    planter.park(key, "held" if key else "ready", blocks=key is not None, due=None if key else 0, payload="follower")
    handler = Beside()
    desk.outbox.register(handler, "Placed")
    with desk.outbox.worker():
        desk.eventually(lambda: count(desk, "select count(*) from partbox.parked where state <> 'dead'") == 0)
    assert list(handler.attempts) == ["follower"]
    ((attempts, error),) = desk.conn.execute("select attempts, last_error from partbox.parked").fetchall()
    assert (attempts, error) == (2, "the process died 2 times handling the event")


def test_the_charge_of_a_failing_suspect_counts_as_its_attempt(desk_with):
    desk = desk_with(retry="fixed:3600", max_attempts=2)
    seen = []

    def handler(event):
        seen.append(event.attempt)
        raise ValueError("no")

    desk.outbox.register(handler, "Counted")
    desk.publish("k", 1)
    desk.publish(None, 2)
    desk.conn.execute(ALL)
    with desk.outbox.worker():
        desk.eventually(lambda: desk.parked() == [(1, "retrying", 1, True), (2, "retrying", 1, False)])
        desk.make_due()
        desk.eventually(lambda: desk.states() == {1: "dead", 2: "dead"})
    assert sorted(seen) == [1, 1, 2, 2]
    assert count(desk) == 0


@pytest.fixture
def charged_behind(desk_with):
    """Two runners held by fresh events while two suspects are charged, and wait for a runner: (desk, gate, worker)."""
    desk, gate = desk_with(max_attempts=1), threading.Event()

    def handler(event):
        desk.note(event)
        if event.payload["number"] < 10:
            gate.wait(120)

    desk.outbox.register(handler, "Counted")
    holding = names_in(of=None, count=2, but={"k"})
    suspects = names_in(of="k", count=5)
    worker = desk.outbox.worker(concurrency=2)
    with worker:
        desk.publish(holding[0], 1)
        desk.publish(holding[1], 2)
        desk.eventually(lambda: len(desk.seen) == 2)
        with desk.conn.transaction():
            for number, name in enumerate(suspects, start=10):
                desk.outbox.publish(
                    desk.conn, Event("Counted", {"number": number}, aggregate_type="Key", aggregate_id=name)
                )
            # As if the owner had taken it over just now: only a claim tells it.
            desk.conn.execute(
                "update partbox.partition set epoch = epoch + 1, owner = null,"
                " suspect_until_id = (select max(id) from partbox.record) where partition = %s",
                [partition_of("k")],
            )
        desk.eventually(lambda: count(desk) == 2)
        yield desk, gate, worker
        gate.set()


def test_charged_records_that_did_not_start_are_handed_back_uncharged(charged_behind):
    desk, gate, worker = charged_behind
    stopping = threading.Thread(target=worker.stop)
    stopping.start()
    desk.eventually(lambda: count(desk) == 0)
    assert desk.parked() == [(number, "ready", 0, True) for number in range(10, 15)]
    gate.set()
    stopping.join()
    with desk.outbox.worker():
        desk.eventually(desk.all_done)
    assert sorted(number for _, number, _ in desk.seen) == [1, 2, *range(10, 15)]
    assert {attempt for _, _, attempt in desk.seen} == {1}


def test_a_lost_connection_costs_charged_records_no_attempt(charged_behind):
    desk, gate, _ = charged_behind
    for _ in range(2):
        before = sessions(desk)
        desk.conn.execute("select pg_terminate_backend(pid) from unnest(%s::int[]) as pid", [list(before)])
        desk.eventually(lambda before=before: len(sessions(desk) - before) == 2 and count(desk) == 2)
        desk.eventually(lambda: count(desk, "select max(attempts) from partbox.parked") == 1)
    gate.set()
    desk.eventually(desk.all_done)
    assert sorted(number for _, number, _ in desk.seen) == [1, 2, *range(10, 15)]
    assert {attempt for _, _, attempt in desk.seen} == {1}
    assert desk.parked() == []


@pytest.mark.parametrize("key", ["k", None])
def test_an_event_that_ran_when_its_partition_was_lost_runs_again_and_its_attempt_counts(desk, key):
    """A handler hangs for so long that its process is buried meanwhile; it is still the only process there is."""
    gate = threading.Event()

    def handler(event):
        desk.note(event)
        if len(desk.seen) == 1:
            gate.wait(120)

    desk.outbox.register(handler, "Counted")
    desk.publish(key, 1)
    desk.conn.execute(ALL)
    with desk.outbox.worker():
        desk.eventually(lambda: count(desk) == 1 and desk.seen)
        desk.conn.execute("update partbox.partition set epoch = epoch + 1, owner = null where owner is not null")
        desk.conn.execute(ALL)
        gate.set()
        desk.eventually(lambda: len(desk.seen) == 2)
        desk.eventually(desk.all_done)
    assert [attempt for _, _, attempt in desk.seen] == [1, 2]


def test_a_charged_event_runs_in_a_list_of_its_own(desk):
    lists = []

    @desk.outbox.on_batch("Counted", max_size=10)
    def handler(events):
        lists.append([event.payload["number"] for event in events])

    for number in range(20):
        desk.publish(f"k{number % 7}" if number % 2 else None, number)
    desk.conn.execute(ALL)
    with desk.outbox.worker(concurrency=2):
        desk.eventually(desk.all_done)
    assert sorted(lists) == [[number] for number in range(20)]


def test_charges_end_whatever_becomes_of_the_events(desk_with):
    """One handler at a time: were one turn forgotten nothing would run any more."""
    desk = desk_with(retry="fixed:3600")
    outcomes = {0: Dead("bad"), 1: ValueError("no"), 2: None, 3: SystemExit(1)}

    def handler(event):
        outcome = outcomes[event.payload["number"] % 4]
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    desk.outbox.register(handler, "Counted")
    desk.outbox.register(handler, "Continued", on_failure="continue")
    for number in range(16):
        desk.publish(f"k{number}", number)
        desk.publish(None, 100 + number)
        desk.publish(f"c{number % 2}", 200 + number, event_type="Continued")
    desk.conn.execute(ALL)
    with desk.outbox.worker(concurrency=1):
        desk.eventually(lambda: set(desk.states().values()) == {"dead", "retrying"} and len(desk.states()) == 36)
    assert count(desk) == 0


def test_an_embedded_worker_only_says_that_a_handler_is_over_its_time(desk_with, caplog):
    desk, gate = desk_with(handler_timeout=0.1), threading.Event()

    def handler(event):
        desk.note(event)
        gate.wait(120)

    desk.outbox.register(handler, "Counted")
    desk.publish("k", 1, 2)
    with caplog.at_level(logging.ERROR), desk.outbox.worker():
        desk.eventually(lambda: "over its timeout of 0.1 s; nothing can end it here" in caplog.text)
        assert desk.parked() == []
        gate.set()
        desk.eventually(desk.all_done)
    assert desk.seen == [("k", 1, 1), ("k", 2, 1)]
