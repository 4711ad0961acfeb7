"""Handlers with limits, on a real database, in every way in which handlers run."""

import asyncio
import threading
import time
from itertools import count, islice

import pytest

from partbox import partition_of
from partbox.protocol.limits import rate_of

RATE = 50


class Calls:
    """Starts by key (monotonic seconds), and how many calls ran at once at most, in all and by key."""

    def __init__(self, seconds=0.0):
        self.seconds = seconds
        self.starts = []
        self.running = 0
        self.most = 0
        self._lock = threading.Lock()

    def begin(self, events):
        with self._lock:
            self.starts.append((time.monotonic(), [(each.aggregate_id, each.payload["number"]) for each in events]))
            self.running += 1
            self.most = max(self.most, self.running)

    def end(self):
        with self._lock:
            self.running -= 1

    def numbers(self):
        return [number for _, events in self.starts for _, number in events]

    def one(self, event):
        self.many([event])

    def many(self, events):
        self.begin(events)
        time.sleep(self.seconds)  # calls that take no time never run beside each other, whatever the limit
        self.end()

    async def one_async(self, event):
        await self.many_async([event])

    async def many_async(self, events):
        self.begin(events)
        await asyncio.sleep(self.seconds)
        self.end()


WAYS = ["sync alone", "sync", "async", "async beside sync", "lists", "async lists"]


def register(outbox, calls, way, **options):
    if "lists" in way:
        call = calls.many_async if "async" in way else calls.many
        outbox.on_batch("Counted", max_size=3, name="limited", **options)(call)
    else:
        outbox.on("Counted", name="limited", **options)(calls.one_async if "async" in way else calls.one)
    if "beside" in way:
        outbox.on("Other", name="other")(lambda event: None)
    return 1 if "alone" in way else 4


def assert_rate(calls, rate):
    """In no window did more start than the rate allows, and once what one second brings."""
    starts = [at for at, _ in calls.starts]
    for first, at in enumerate(starts):
        for last in range(first, len(starts)):
            assert last - first + 1 <= rate * (starts[last] - at) + rate + 1e-3


@pytest.mark.parametrize("way", WAYS)
def test_no_more_calls_start_than_the_rate_allows_and_every_event_has_its_turn_in_order(desk, way):
    calls = Calls()
    concurrency = register(desk.outbox, calls, way, rate=f"{RATE}/s")
    for number in range(40):
        desk.publish(f"k{number % 5}" if number % 8 else None, number)
    began = time.monotonic()
    with desk.outbox.worker(concurrency=concurrency):
        desk.eventually(desk.all_done)
    assert sorted(calls.numbers()) == list(range(40))
    for key in range(5):
        mine = [number for _, events in calls.starts for name, number in events if name == f"k{key}"]
        assert mine == sorted(mine)
    assert_rate(calls, RATE)
    assert len(calls.starts) <= RATE * (time.monotonic() - began)  # a process begins with nothing saved up
    assert desk.parked() == []


@pytest.mark.parametrize("way", WAYS)
def test_no_more_calls_run_at_once_than_the_limit(desk, way):
    calls = Calls(0.01)
    concurrency = register(desk.outbox, calls, way, at_once=2)
    for number in range(24):
        desk.publish(f"k{number}", number)
    with desk.outbox.worker(concurrency=concurrency):
        desk.eventually(desk.all_done)
    assert sorted(calls.numbers()) == list(range(24))
    assert calls.most <= 2


def limits_of(embedded):
    """The limits of the worker that runs in this process."""
    return embedded._worker._context.limits


def change(desk, embedded, rate):
    """Have an operator change the limit; wait until it is in force."""
    desk.outbox.limits.set("limited", rate=rate)
    meant = None if rate == "none" else rate_of(rate)
    desk.eventually(lambda: getattr(limits_of(embedded).effective_limits.get("limited"), "rate", None) == meant)


def waits_of(embedded):
    """The number of events that wait for their turn, by value."""
    return {wait.limit_key[1]: wait.events for wait in limits_of(embedded).list_waits()}


def keys_of_one_partition(many):
    keys = (f"k{number}" for number in count())
    return list(islice((key for key in keys if partition_of(key) == 7), many))


def owners(desk):
    return desk.conn.execute("select count(owner) from partbox.partition").fetchone()[0]


def test_events_that_wait_for_a_permit_hold_up_no_other_handler_cost_no_row_and_delay_no_stop(desk):
    calls = Calls()
    desk.outbox.on("Counted", rate="1/h")(calls.one)
    desk.outbox.on("Other")(desk.note)
    desk.publish("k1", 1, 2, 3)
    desk.publish(None, 4)
    for number in range(20):
        desk.publish(f"k{number}" if number % 2 else None, number, event_type="Other")
    with desk.outbox.worker(concurrency=1) as worker:
        desk.eventually(lambda: len(desk.seen) == 19)
        assert 1 not in {number for _, number, _ in desk.seen}  # it waits behind the others of its key
        # The partition of an event that waits may hold none of the others, and be read after theirs.
        desk.eventually(lambda: waits_of(worker) == {None: 5})
        assert desk.parked() == []
    assert owners(desk) == 0
    assert calls.starts == []
    desk.outbox.handlers._registered.clear()
    desk.outbox.on("*")(desk.note)
    with desk.outbox.worker():
        desk.eventually(desk.all_done)
    assert desk.numbers("k1") == [1, 2, 3, 1]


def test_events_that_wait_for_a_permit_in_a_full_window_are_parked_uncharged_and_reading_goes_on(desk_with):
    desk = desk_with(window=20)
    calls = Calls()
    desk.outbox.on("Counted", rate="1/h", name="limited")(calls.one)
    desk.outbox.on("Other")(desk.note)
    *limited, last = keys_of_one_partition(31)
    for number, key in enumerate(limited):
        desk.publish(key, number, number + 100)
    desk.publish(last, 99, event_type="Other")
    with desk.outbox.worker(concurrency=1) as worker:
        desk.eventually(lambda: desk.seen)
        assert {(state, attempts) for _, state, attempts, _ in desk.parked()} == {("deferred", 0), ("held", 0)}
        assert calls.starts == []
        change(desk, worker, rate="1000/s")  # those due in hours come back by that
        desk.eventually(desk.all_done)
    assert sorted(calls.numbers()) == [*range(30), *range(100, 130)]
    for number in range(30):
        assert [each for each in calls.numbers() if each % 100 == number] == [number, number + 100]
    assert desk.parked() == []


FLOODS = {"one key": "'big'", "many keys": "'big' || g", "no key": "null"}


def flood(desk, many, key):
    """Publish numbered events of one tenant, all in partition 7."""
    desk.conn.execute(
        "insert into partbox.record (partition, event_id, event_type, aggregate_type, aggregate_id, tenant_id, payload)"
        f" select 7, gen_random_uuid(), 'Counted', 'Key', {key}, 'big',"
        " json_build_object('number', g) from generate_series(1, %s) g",
        [many],
    )


@pytest.mark.parametrize("kind", FLOODS)
def test_a_flood_of_one_tenant_over_its_rate_holds_neither_other_tenants_nor_other_handlers_of_its_partition(
    desk_with, kind
):
    """Fault: a backlog of limited events, many times the window and the brake."""
    desk, calls = desk_with(window=20, max_parked=20), Calls()
    desk.outbox.on("Counted", rate="1/h", limit_by="tenant_id", name="limited")(calls.one)
    desk.outbox.on("Other")(desk.note)
    (key,) = keys_of_one_partition(1)
    with desk.outbox.worker(concurrency=1) as worker:
        flood(desk, 200, FLOODS[kind])
        desk.publish(key, 300, event_type="Other")
        desk.eventually(lambda: desk.seen)
        desk.outbox.limits.set("limited", rate="100000/s")  # so that the other tenant gets its turn
        desk.publish(key, 301, tenant_id="small")
        desk.eventually(desk.all_done)
        held = worker._worker.engine.partitions[7].parked
        assert (held.open_count, held.waiting_count) == (0, 0)
    assert sorted(calls.numbers()) == [*range(1, 201), 301]
    if kind == "one key":
        assert [number for number in calls.numbers() if number < 300] == [*range(1, 201)]


@pytest.mark.parametrize("kind", FLOODS)
def test_a_parked_backlog_comes_back_at_once_under_the_wider_limit_of_a_worker_that_starts_later(desk_with, kind):
    """Fault: a limit that was too tight, mended by a deployment. No row says so: each is due in days."""
    desk, calls = desk_with(window=20, max_parked=20), Calls()
    desk.outbox.on("Counted", rate="1/h", limit_by="tenant_id", name="limited")(calls.one)
    flood(desk, 100, FLOODS[kind])
    with desk.outbox.worker(concurrency=1):
        desk.eventually(lambda: len(desk.parked()) >= 60)
    assert calls.numbers() == []
    desk.outbox.handlers._registered.clear()
    desk.outbox.on("Counted", rate="100000/s", limit_by="tenant_id", name="limited")(calls.one)
    with desk.outbox.worker(concurrency=1):
        desk.eventually(desk.all_done)
    assert sorted(calls.numbers()) == [*range(1, 101)]
    if kind == "one key":
        assert calls.numbers() == [*range(1, 101)]


@pytest.mark.parametrize("kind", ["many keys", "no key"])
def test_a_backlog_that_waits_for_permits_is_not_written_again_by_its_next_owner(desk_with, kind):
    """Fault: a long backlog, whose rows are all updated again and again while they wait."""
    desk, calls = desk_with(window=20, max_parked=20), Calls()
    desk.outbox.on("Counted", rate="1/h", limit_by="tenant_id", name="limited")(calls.one)
    flood(desk, 100, FLOODS[kind])

    def written():
        """The rows that wait, with the transactions that wrote them; not those that a release has handed over."""
        found = desk.conn.execute("select record_id, xmin::text from partbox.parked where state = 'deferred'")
        return set(found.fetchall())

    with desk.outbox.worker(concurrency=1):
        desk.eventually(lambda: len(written()) >= 60)
    before = written()
    with desk.outbox.worker(concurrency=1) as worker:
        # Each is fetched once, to see for whom it waits. Then no more are in memory than may start soon, but for those
        # that have no row yet, of which a window that is not full keeps all.
        desk.eventually(lambda: waits_of(worker).get("big", 0) == 100)
        turns = worker._worker.engine.scheduler.limited_queue.permit_queues
        desk.eventually(lambda: turns.count_waiting(("limited", "big"))[0] <= 16 + 100 - len(written()))
        assert before <= written()
    assert calls.numbers() == []


def test_reading_stops_at_as_many_waiting_rows_as_the_disk_may_hold_and_goes_on_when_some_are_done(desk_with):
    desk, calls = desk_with(window=20, max_parked=20, max_waiting=256), Calls()
    desk.outbox.on("Counted", rate="1/h", name="limited")(calls.one)
    flood(desk, 600, FLOODS["many keys"])
    with desk.outbox.worker(concurrency=1) as worker:
        desk.eventually(lambda: len(desk.parked()) >= 200)
        parked = worker._worker.engine.partitions[7].parked
        desk.eventually(lambda: parked.waiting_count + 20 > 256)
        assert len(desk.parked()) <= 256
        desk.outbox.limits.set("limited", rate="100000/s")
        desk.eventually(desk.all_done)
    assert sorted(calls.numbers()) == [*range(1, 601)]


def test_limits_change_while_a_worker_runs(desk):
    calls = Calls()
    desk.outbox.on("Counted", name="limited")(calls.one)
    with desk.outbox.worker(concurrency=1) as worker:
        desk.publish("k", *range(10))
        desk.eventually(desk.all_done)
        change(desk, worker, rate="1/h")
        assert not worker._worker.engine.scheduler.may_share_lanes
        desk.publish("k", *range(10, 20))
        desk.publish(None, *range(20, 30))
        desk.eventually(lambda: waits_of(worker) == {None: 20})
        change(desk, worker, rate="500/s")
        desk.eventually(desk.all_done)
        change(desk, worker, rate="1/h")
        desk.publish("k", *range(30, 40))
        desk.eventually(lambda: waits_of(worker).get(None, 0) >= 9)  # one may have been saved up
        desk.outbox.limits.reset("limited")
        desk.eventually(desk.all_done)
        assert limits_of(worker).effective_limits == {}
        assert worker._worker.engine.scheduler.limited_queue is None
    assert [number for number in calls.numbers() if not 20 <= number < 30] == [*range(20), *range(30, 40)]
    assert sorted(calls.numbers()) == [*range(40)]


@pytest.mark.parametrize("by", ["tenant_id", "tenant", lambda event: event.headers["tenant"]])
@pytest.mark.parametrize("way", ["sync", "lists"])
def test_values_of_limit_by_take_turns_so_that_none_starves_another_and_no_list_has_two(desk, way, by):
    calls = Calls()
    concurrency = register(desk.outbox, calls, way, rate="20/s", limit_by=by)
    desk.publish("great", *range(60), tenant_id="great", headers={"tenant": "great"})
    for number in range(100, 160):
        desk.publish(None, number, tenant_id="great", headers={"tenant": "great"})
    desk.publish("small", 200, tenant_id="small", headers={"tenant": "small"})
    with desk.outbox.worker(concurrency=concurrency) as worker:
        desk.eventually(lambda: 200 in calls.numbers())
        assert calls.numbers().index(200) < 30
        change(desk, worker, rate="none")
        desk.eventually(desk.all_done)
    for _, events in calls.starts:
        assert len({number == 200 for _, number in events}) == 1


def test_events_wait_for_a_permit_behind_an_event_of_their_lane_that_had_one(desk):
    calls = Calls()
    desk.outbox.on("Counted", name="limited", rate="3600/h")(calls.one)
    desk.publish("k", *range(5))
    with desk.outbox.worker(concurrency=1) as worker:
        desk.eventually(lambda: calls.starts)
        desk.eventually(lambda: waits_of(worker) == {None: 4})
        assert calls.numbers() == [0]


def test_a_list_ends_where_its_lane_has_another_value(desk):
    calls = Calls()
    desk.outbox.on_batch("Counted", max_size=10, at_once=1, limit_by="tenant_id")(calls.many)
    for number in range(6):
        desk.publish("k", number, tenant_id=f"t{number // 2}")
    with desk.outbox.worker(concurrency=1):
        desk.eventually(desk.all_done)
    assert [[number for _, number in events] for _, events in calls.starts] == [[0, 1], [2, 3], [4, 5]]


def test_an_event_whose_limit_by_fails_is_limited_as_one_without_a_value(desk, caplog):
    calls = Calls()
    desk.outbox.on("Counted", at_once=1, limit_by=lambda event: [event.headers["tenant"]])(calls.one)
    desk.publish(None, 1, headers={"tenant": "a"})
    desk.publish(None, 2)
    desk.publish(None, 3, headers={"tenant": "b"})
    with desk.outbox.worker(concurrency=4):
        desk.eventually(desk.all_done)
    assert sorted(calls.numbers()) == [1, 2, 3]
    assert calls.most == 1
    said = [record.getMessage() for record in caplog.records if record.event == "partbox.limit_by_failed"]
    assert sum("must return str, int" in each for each in said) == sum("'tenant'" in each for each in said) == 1


def test_the_next_attempt_after_a_failure_needs_a_permit_too_and_asks_the_circuit(desk):
    failing = iter([ValueError("no"), OSError("away"), None, None])

    def handler(event):
        desk.note(event)
        if (error := next(failing)) is not None:
            raise error

    desk.outbox.on("Counted", rate="100/s", at_once=1, retry="fixed:0")(handler)
    desk.publish("k", 1, 2)
    with desk.outbox.worker(concurrency=2):
        desk.eventually(desk.all_done)
    assert desk.seen == [("k", 1, 1), ("k", 1, 2), ("k", 1, 3), ("k", 2, 1)]
