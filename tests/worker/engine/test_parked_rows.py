"""Parked rows beside claims, saves and commands: each is run once, in its turn, and never before it is known."""

import threading

import psycopg
from neighbours import BEGUN, NEIGHBOUR, SOON, P, partition, released_at_the_end, terminate
from waiting import eventually

from partbox.db.delivery import cursors, parked
from partbox.worker.engine.parked_scheduler import ParkedScheduler
from partbox.worker.poller import parked_fetch

LATER = 3_600


# A partition that is mine again waits for the handlers of its earlier self: with reading, and with its parked rows.
# Otherwise an event runs twice at a time, or its successor beside it.
def test_parked_rows_wait_for_the_handlers_of_an_earlier_ownership_too(desk_with):
    desk, release, running, most = desk_with(retry="fixed:0"), threading.Event(), [], []

    def handle(event):
        if event.aggregate_id != "k":
            desk.note(event)
        elif event.attempt == 1:
            raise ValueError("once")
        else:
            running.append(event)
            most.append(len(running))
            release.wait(120)
            running.remove(event)

    desk.outbox.register(handle, "Counted")
    desk.publish("k", 1, 2)
    with desk.outbox.worker(concurrency=3) as worker, released_at_the_end(release):
        eventually(lambda: running, SOON)
        before = partition(worker)
        desk.conn.execute("update partbox.partition set owner = null where partition = %s", [P])
        eventually(lambda: partition(worker) is not before and partition(worker).parked.chains, SOON)
        for number in range(3):  # each needs a step of the poller
            desk.publish("other", number)
            eventually(lambda number=number: number in desk.numbers("other"), SOON)
        release.set()
        eventually(desk.all_done, SOON)
    assert max(most) == 1


# A claim commits before the parked rows are loaded. If that statement fails on a live connection (a timeout), it
# must be made up for: until then blocked keys are unknown, and their events would be delivered past what is parked.
def test_a_claim_whose_parked_rows_could_not_be_read_delivers_nothing_past_them(desk_with, monkeypatch):
    desk, blocking, failures = desk_with(retry=f"fixed:{LATER}"), parked.list_blocking, []

    def failing(conn, *rest):
        if not failures:
            failures.append(1)
            raise psycopg.errors.QueryCanceled("canceling statement due to statement timeout")
        return blocking(conn, *rest)

    def handle(event):
        desk.note(event)
        if event.payload["number"] == 1:
            raise ValueError("no")

    desk.outbox.register(handle, "Counted")
    desk.publish("k", 1)
    with desk.outbox.worker():
        eventually(lambda: desk.states() == {1: "retrying"}, SOON)
    desk.publish("k", 2)
    monkeypatch.setattr(parked, "list_blocking", failing)
    with desk.outbox.worker():
        eventually(lambda: 2 in desk.numbers() or desk.states().get(2) == "held", SOON)
    assert failures
    assert desk.numbers() == [1]


# The poller lists what is taken, then asks what is due. A row parked and committed in between is found; if the saver
# then cleared its mark as taken, it would be found again while it runs, and run twice.
def test_a_row_that_is_parked_and_due_while_the_poller_asks_is_delivered_once(desk_with, monkeypatch):
    desk, save, due, find = desk_with(retry="fixed:0"), cursors.save, parked.load_due, ParkedScheduler._queue_due
    asking, inside, saved, found, again = (threading.Event() for _ in range(5))

    def saving(conn, schema, subscription, me, savings, parks=(), *rest, **more):
        answer = save(conn, schema, subscription, me, savings, parks, *rest, **more)
        if asking.is_set() and any(each.is_new for each in parks) and not saved.is_set():
            saved.set()
            found.wait(1)
        return answer

    def asked(*args):
        asking.set()
        saved.wait(120)
        return due(*args)

    def finding(self, partition, stored, *rest):
        find(self, partition, stored, *rest)
        if stored.aggregate_id == NEIGHBOUR:
            (again if found.is_set() else found).set()

    def handle(event):
        if event.aggregate_id == NEIGHBOUR:
            desk.note(event)
            if event.attempt == 1:
                inside.set()
                asking.wait(120)
                raise ValueError("once")
            again.wait(2)

    monkeypatch.setattr(cursors, "save", saving)
    monkeypatch.setattr(parked, "load_due", asked)
    monkeypatch.setattr(ParkedScheduler, "_queue_due", finding)
    desk.outbox.register(handle, "Counted", on_failure="continue")
    desk.publish("k", 1, deliver_after=LATER)
    desk.publish(NEIGHBOUR, 2)
    with desk.outbox.worker(), released_at_the_end(asking, saved, found, again):
        assert inside.wait(BEGUN)
        eventually(lambda: desk.states() == {1: "scheduled"}, SOON)
        desk.make_due()
        eventually(desk.all_done, SOON)
    assert desk.numbers(NEIGHBOUR) == [2, 2]


# A parked row whose record lies ahead of the saved cursor waits until that record is met. When the last one is met, its
# key must be woken, or it sleeps for ever.
def test_a_parked_row_that_waits_for_its_record_runs_when_the_record_is_read(desk_with):
    desk, inside, release = desk_with(retry=f"fixed:{LATER}"), threading.Event(), threading.Event()

    def handle(event):
        desk.note(event)
        if event.aggregate_id == NEIGHBOUR:  # holds the saved cursor back
            inside.set()
            release.wait(120)
        elif event.attempt == 1:
            raise ValueError("once")

    desk.outbox.register(handle, "Counted")
    desk.publish(NEIGHBOUR, 1)
    desk.publish("k", 2)
    with desk.outbox.worker(concurrency=2) as worker, released_at_the_end(release):
        assert inside.wait(BEGUN)
        eventually(lambda: desk.states() == {2: "retrying"}, SOON)
        desk.conn.execute("update partbox.parked set due_at = clock_timestamp()")
        terminate(desk)
        eventually(lambda: partition(worker).incarnation > 1, SOON)
        eventually(lambda: desk.numbers() == [2, 2], SOON)


# Rows are fetched page by page, bodies and all. Those that become due together must not all be fetched before handlers
# get to them: that would go past window and window_bytes, and each tick would ask past them all.
def test_rows_that_are_due_together_do_not_all_come_into_memory(desk, monkeypatch):
    tick, ticks, inside, release = cursors.run_tick, [], threading.Event(), threading.Event()

    def ticking(*args):
        ticks.append(1)
        return tick(*args)

    def handle(event):
        inside.set()
        release.wait(120)

    for name, most in (("MAX_ROWS", 200), ("MAX_IN_MEMORY", 400)):
        monkeypatch.setattr(parked_fetch, name, most)
    desk.outbox.register(handle, "Counted")
    desk.publish(None, *range(1_000), deliver_after=LATER)
    with desk.outbox.worker(concurrency=1) as worker, released_at_the_end(release):
        eventually(lambda: len(desk.parked()) == 1_000)
        monkeypatch.setattr(cursors, "run_tick", ticking)
        desk.make_due()
        assert inside.wait(SOON)
        eventually(lambda: len(ticks) >= 8)
        with worker._worker.engine.lock:
            taken = sum(len(each.parked.loose_rows) for each in worker._worker.engine.partitions.values())
        release.set()
        assert taken <= 400


def test_due_events_are_fetched_in_pages_of_thousands(desk, monkeypatch):
    load, pages = parked.load_due, []

    def load_page(*args):
        pages.append(len(found := load(*args)))
        return found

    monkeypatch.setattr(parked, "load_due", load_page)
    desk.outbox.register(desk.note, "Counted")
    desk.publish(None, *range(3_000), deliver_after=LATER)
    with desk.outbox.worker():
        eventually(lambda: len(desk.parked()) == 3_000)
        desk.make_due()
        eventually(desk.all_done, SOON)
    assert sum(pages) == 3_000
    assert max(pages) > 1_000


def test_a_delayed_event_that_succeeds_leaves_no_attempt_and_was_delivered_after_its_time(desk):
    desk.outbox.register(desk.note, "Counted")
    desk.publish(None, 1, deliver_after=LATER)
    with desk.outbox.worker():
        eventually(lambda: len(desk.parked()) == 1)
        desk.make_due()
        eventually(desk.all_done, SOON)
        found = desk.conn.execute(
            "select d.outcome, d.delivered_after between d.published_at and d.delivered_before, d.process is not null"
            " from partbox.delivery d"
        ).fetchall()
    assert found == [("delivered", True, True)]
    assert desk.conn.execute("select count(*) from partbox.attempt").fetchone() == (0,)
