"""What an operator has paused starts nothing, is charged nothing and loses nothing, until it is reset."""

from uuid import UUID

import pytest
from waiting import eventually

from partbox.worker.engine import limited_queue
from partbox.worker.reports import limits

WAYS = ["sync alone", "sync", "async", "lists"]
COUNT = 12


@pytest.fixture
def desk(desk_with, monkeypatch):
    monkeypatch.setattr(limits, "LIMITS_INTERVAL", 0.0)
    monkeypatch.setattr(limited_queue, "INTERVAL_ELSE", 0.05)
    return desk_with(heartbeat="200ms")


def register(desk, way="sync alone", event_type="Counted", **options):
    async def note_async(event):
        desk.note(event)

    def note_all(events):
        for event in events:
            desk.note(event)

    options = {"name": "send"} | options
    match way:
        case "lists":
            desk.outbox.on_batch(event_type, max_size=4, **options)(note_all)
        case "async":
            desk.outbox.on(event_type, **options)(note_async)
        case _:
            desk.outbox.on(event_type, **options)(desk.note)
    return 1 if "alone" in way else 4


def publish(desk, *tenants, keys=True, **fields):
    for tenant in tenants:
        for number in range(COUNT):
            desk.publish(f"{tenant} {number % 3}" if keys else None, number, tenant_id=tenant, **fields)


def seen_of(desk, tenant):
    return [number for key, number, _ in desk.seen if key is not None and key.startswith(f"{tenant} ")]


def waiting(desk):
    return sum(each.waiting for each in desk.outbox.limits.list() if each.is_paused)


def assert_all_in_order(desk, *tenants):
    for key in (f"{tenant} {number}" for tenant in tenants for number in range(3)):
        assert desk.numbers(key) == sorted(desk.numbers(key))
    assert len(desk.seen) == COUNT * len(tenants)
    assert {attempt for _, _, attempt in desk.seen} == {1}


ADDRESSES = [
    ({"handler": "send"}, {}),
    ({"handler": "send", "value": "acme"}, {"limit_by": "tenant_id"}),
    ({"handler": "send", "value": "acme"}, {"circuit_by": "tenant_id"}),
    ({"event_type": "Counted"}, {}),
    ({"tenant": "acme"}, {}),
]


@pytest.mark.parametrize(("address", "options"), ADDRESSES)
@pytest.mark.parametrize("way", WAYS)
def test_what_is_paused_waits_in_rows_across_a_restart_and_goes_on_when_it_is_reset(desk, way, address, options):
    concurrency = register(desk, way, **options)
    others = ["zoo"] if "value" in address or "tenant" in address else []
    assert desk.outbox.limits.set(**address, rate=0)
    publish(desk, "acme", *others)
    for _ in range(2):
        with desk.outbox.worker(concurrency=concurrency):
            desk.eventually(lambda: len(desk.parked()) == COUNT and waiting(desk) == COUNT)
            desk.eventually(lambda: seen_of(desk, "zoo") == [] or len(seen_of(desk, "zoo")) == COUNT)
            assert seen_of(desk, "acme") == []
            assert {attempts for _, _, attempts, _ in desk.parked()} == {0}
    with desk.outbox.worker(concurrency=concurrency):
        eventually(lambda: waiting(desk) == COUNT)
        assert seen_of(desk, "acme") == []
        assert desk.outbox.limits.reset(**address)
        desk.eventually(desk.all_done)
    assert_all_in_order(desk, "acme", *others)


@pytest.mark.parametrize(("address", "options"), ADDRESSES)
def test_a_pause_while_events_wait_for_a_rate_holds_them_and_no_others(desk, address, options):
    """What waited for its turn waits for the reset, wherever it was: in memory, or in rows that were put away."""
    register(desk, rate="200/s", **options)
    others = ["zoo"] if "value" in address or "tenant" in address else []
    publish(desk, "acme", *others, keys=False)
    with desk.outbox.worker():
        assert desk.outbox.limits.set(**address, rate=0)
        held = COUNT - len([each for each in desk.seen if each[0] is None])
        desk.eventually(lambda: all(each.processes for each in desk.outbox.limits.list() if each.is_paused))
        before = len(desk.seen)
        desk.eventually(lambda: waiting(desk) == len(desk.parked()))
        assert held >= waiting(desk) or others
        assert desk.outbox.limits.reset(**address)
        desk.eventually(desk.all_done)
    assert before <= COUNT * (1 + len(others)) == len(desk.seen)
    assert {attempt for _, _, attempt in desk.seen} == {1}


def test_events_that_failed_before_wait_too_and_keep_their_attempts(desk):
    calls = []

    def fail(event):
        calls.append(event.attempt)
        if event.attempt == 1:
            desk.outbox.limits.set("send", rate=0)
        raise ValueError("no")

    desk.outbox.on("Counted", name="send", retry="fixed:0.5", max_attempts=3)(fail)
    desk.publish("acme 0", 1, tenant_id="acme")
    with desk.outbox.worker():
        desk.eventually(lambda: desk.parked() == [(1, "deferred", 1, True)])
    with desk.outbox.worker():
        eventually(lambda: waiting(desk) == 1)
        assert calls == [1]
        desk.outbox.limits.reset("send")
        desk.eventually(lambda: desk.states() == {1: "dead"})
    assert calls == [1, 2, 3]


def test_a_paused_type_that_no_handler_takes_does_not_die(desk):
    register(desk)
    desk.outbox.limits.set(event_type="New", rate=0)
    publish(desk, "acme", event_type="New")
    with desk.outbox.worker():
        desk.eventually(lambda: waiting(desk) == COUNT)
        assert set(desk.states().values()) <= {"deferred", "held"}
    register(desk, event_type="New", name="new")
    desk.outbox.limits.reset(event_type="New")
    with desk.outbox.worker():
        desk.eventually(desk.all_done)
    assert_all_in_order(desk, "acme")


def test_a_value_is_paused_by_its_text(desk):
    seen = []
    customer = UUID(int=7)
    desk.outbox.on("Counted", name="send", limit_by=lambda event: customer)(lambda event: seen.append(event.id))
    desk.outbox.limits.set("send", value=str(customer), rate=0)
    desk.publish("k", 1, 2)
    with desk.outbox.worker():
        desk.eventually(lambda: waiting(desk) == 2)
        assert seen == []
        desk.outbox.limits.reset("send", value=str(customer))
        desk.eventually(lambda: len(seen) == 2)


def test_a_new_rate_lets_a_paused_handler_go_on(desk):
    register(desk)
    desk.outbox.limits.set("send", rate=0)
    publish(desk, "acme")
    with desk.outbox.worker():
        desk.eventually(lambda: waiting(desk) == COUNT)
        desk.outbox.limits.set("send", rate="1000/s")
        desk.eventually(desk.all_done)
    assert_all_in_order(desk, "acme")


def test_a_transactional_handler_takes_no_pause_and_no_process_reports_one(desk):
    desk.outbox.on("Counted", name="send", transactional=True)(lambda event, conn: desk.note(event))
    desk.outbox.limits.set("send", rate=0)
    desk.outbox.limits.set(event_type="Counted", rate=0)
    publish(desk, "acme")
    with desk.outbox.worker():
        desk.eventually(desk.all_done)
        assert [(each.processes, each.is_paused) for each in desk.outbox.limits.list()] == [(0, True), (0, True)]


def test_waiting_rows_of_a_pause_are_not_loaded_again_and_again(desk, monkeypatch):
    from partbox.db.delivery import records

    loads, load = [], records.load_bodies

    def counted(conn, schema, wanted):
        loads.append(len(wanted))
        return load(conn, schema, wanted)

    monkeypatch.setattr(records, "load_bodies", counted)
    register(desk)
    desk.outbox.limits.set("send", rate=0)
    publish(desk, "acme", "zoo", "bar")
    with desk.outbox.worker():
        desk.eventually(lambda: waiting(desk) == 3 * COUNT == len(desk.parked()))
    loads.clear()
    desk.outbox.on("Other")(desk.note)
    with desk.outbox.worker():
        desk.eventually(lambda: waiting(desk) == 3 * COUNT)
        for number in range(20):  # steps of the poller
            desk.publish("other", number, event_type="Other")
            desk.eventually(lambda number=number: len(desk.seen) == number + 1)
        # Once each: a new owner does not know for what its rows wait.
        assert sum(loads) <= 3 * COUNT
