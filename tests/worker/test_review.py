"""Interleavings that a review found wrong: each test failed when it was written; the comment above says why."""

import threading
from contextlib import contextmanager, suppress

import psycopg
import pytest
from waiting import eventually

from partbox import Dead
from partbox.db import cursors, parked
from partbox.rules.hashing import partition_of
from partbox.rules.page import Page
from partbox.rules.progress import Progress
from partbox.worker.reading.intake import Intake
from partbox.worker.reading.parked_reader import ROWS
from partbox.worker.state.parked_rows import ParkedRows

LATER = 3_600
SOON = 6  # seconds within which what is right happens, on a loaded machine
P = partition_of("k")
NEIGHBOUR = next(name for name in map(str, range(10_000)) if partition_of(name) == P)
KEY = ("Key", "k")


def terminate(desk, *roles):
    desk.conn.execute(
        """select pg_terminate_backend(pid) from pg_stat_activity
            where datname = current_database() and application_name = any (%s)""",
        [[f"partbox {role}" for role in roles or ("poller", "saver", "effects")]],
    )


def partition(worker):
    return worker._worker.holdings.partitions[P]


def queued(worker, key=KEY):
    lane = partition(worker).lanes.get(key)
    return len(lane.queue) if lane is not None else 0


@pytest.fixture
def effects(desk):
    desk.conn.execute("create table effect (number int, id bigint generated always as identity)")

    def written():
        return [number for (number,) in desk.conn.execute("select number from effect order by id")]

    return written


def write(event, conn):
    conn.execute("insert into effect (number) values (%s)", [event.payload["number"]])


@contextmanager
def released_at_the_end(*events):
    try:
        yield
    finally:
        for event in events:
            event.set()


# Transactional handlers.


# A late record of a plain handler queues behind a transactional event of its own key, which waits until no late record
# is unfinished: each waits for the other for ever, and with them the transactional events of the partition.
def test_a_late_record_behind_a_waiting_transactional_event_of_its_key_is_no_deadlock(desk, dsn, effects):
    inside, go_on = threading.Event(), threading.Event()

    def handle(event, conn):
        if event.aggregate_id == NEIGHBOUR:
            inside.set()
            go_on.wait(30)
        write(event, conn)

    desk.outbox.register(handle, "Counted", transactional=True)
    desk.outbox.register(desk.note, "Other")
    with desk.outbox.worker(concurrency=3) as worker, released_at_the_end(go_on):
        with psycopg.connect(dsn) as late:
            desk.outbox.publish(late, "Other", {"number": 0}, aggregate_type="Key", aggregate_id="k")
            desk.publish(NEIGHBOUR, 1)
            assert inside.wait(SOON)
            desk.publish("k", 2)
            eventually(lambda: queued(worker) == 1, SOON)
        eventually(lambda: partition(worker).progress.late, SOON)
        go_on.set()
        eventually(desk.all_done, SOON)
    assert effects() == [1, 2]


# The ordinary saver leaves a partition alone while a transaction runs in it, but a save of it that is on its way
# already (or is tried again) commits after the transaction, and sets the cursor back behind its effects.
def test_a_save_that_was_on_its_way_does_not_set_the_cursor_back_behind_an_effect(desk, effects, monkeypatch):
    save = cursors.save
    held, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def saving(conn, schema, subscription, me, savings, *rest, durable=False):
        mine = any(each.partition == P and each.snapshot for each in savings)
        if durable or not mine or held.is_set() or not effects():  # not before it has gone on
            return save(conn, schema, subscription, me, savings, *rest, durable=durable)
        held.set()
        go_on.wait(30)
        saved = save(conn, schema, subscription, me, savings, *rest)
        terminate(desk)
        ended.set()
        return saved

    monkeypatch.setattr(cursors, "save", saving)
    desk.outbox.register(write, "Counted", transactional=True)
    desk.publish("k", 1)
    with desk.outbox.worker(), released_at_the_end(go_on):
        assert held.wait(SOON)
        desk.publish("k", 2)
        with suppress(AssertionError):  # it may wait for the save; if it does not, it must not suffer from it
            eventually(lambda: effects() == [1, 2], 1)
        go_on.set()
        assert ended.wait(SOON)
        eventually(lambda: len(effects()) >= 2 and desk.all_done(), SOON)
    assert effects() == [1, 2]


# The poller, before it reads anew, waits for the transaction in hand: as long as its handler runs nothing of this
# process is read, saved, released or watched for its timeout.
def test_a_long_transactional_handler_does_not_stop_the_others_when_a_connection_is_lost(desk):
    inside, release = threading.Event(), threading.Event()

    def handle(event, conn):
        inside.set()
        release.wait(30)

    desk.outbox.register(handle, "Counted", transactional=True)
    desk.outbox.register(desk.note, "Other")
    desk.publish("k", 1)
    with desk.outbox.worker(concurrency=2), released_at_the_end(release):
        assert inside.wait(SOON)
        terminate(desk, "poller")
        desk.publish("other", 2, event_type="Other")
        eventually(lambda: desk.numbers("other") == [2], SOON)


# Lost connections.


# settle() takes the lane over to its new life with the first event of a list, and judges the others as if they had been
# read in that life: they are not remembered, and are delivered again.
@pytest.mark.parametrize("fails", [False, True], ids=["done", "failed"])
def test_a_list_that_runs_while_the_connection_is_lost_is_not_delivered_again(desk_with, fails):
    desk, lists = desk_with(retry="fixed:0"), []
    inside, release = threading.Event(), threading.Event()

    def take(events):
        lists.append([event.payload["number"] for event in events])
        if len(lists) == 1:
            inside.set()
            release.wait(30)
            if fails:
                raise ValueError("no")

    desk.outbox.on_batch("Counted", max_size=10)(take)
    desk.publish("k", 1, 2, 3)
    with desk.outbox.worker() as worker, released_at_the_end(release):
        assert inside.wait(SOON)
        terminate(desk)
        eventually(lambda: partition(worker).life > 1 and queued(worker) == 3, SOON)
        release.set()
        eventually(desk.all_done, SOON)
    assert lists[0] == [1, 2, 3]
    assert [number for each in lists[1:] for number in each] == ([1, 2, 3] if fails else [])


# A partition that is being released when the connection is lost is read anew, still draining; nobody ever touches it
# again, so it is never saved, never released, and never read: it stands still until the process ends.
def test_a_release_that_failed_with_its_connection_is_made_again(desk, monkeypatch):
    save, failed = cursors.save, threading.Event()

    def saving(conn, schema, subscription, me, savings, *rest, **more):
        if any(each.release for each in savings) and not failed.is_set():
            failed.set()
            terminate(desk)
        return save(conn, schema, subscription, me, savings, *rest, **more)

    monkeypatch.setattr(cursors, "save", saving)
    desk.outbox.register(desk.note, "Counted")
    with desk.outbox.worker() as worker:
        desk.publish("k", 1)
        eventually(desk.all_done, SOON)
        desk.conn.execute("select partbox.subscription_pause('default')")
        assert failed.wait(SOON)
        owned = "select count(*) from partbox.partition where owner is not null"
        try:
            eventually(lambda: desk.conn.execute(owned).fetchone() == (0,), SOON)
        finally:
            worker._settings.__dict__["drain_timeout"] = 0.1


# Under a new identity everything is taken up anew, on connections that live: the saver's is taken away, the version is
# noted, and then a statement fails. The step is tried again, but the identity is not outdated any more: the saver never
# gets its connection back, and nothing is saved until the process ends, which looks alive all the time.
def test_a_new_identity_is_taken_up_again_when_a_statement_failed(desk, monkeypatch):
    blocking, failures = parked.blocking, []

    def failing(conn, *rest):
        if not failures:
            failures.append(1)
            raise psycopg.errors.QueryCanceled("canceling statement due to statement timeout")
        return blocking(conn, *rest)

    desk.outbox.register(desk.note, "Counted")
    desk.publish("k", 1)
    with desk.outbox.worker() as worker:
        eventually(desk.all_done, SOON)
        monkeypatch.setattr(parked, "blocking", failing)
        worker._slot.instance = worker._slot.instance  # as if it were another
        eventually(lambda: failures, SOON)
        desk.publish("k", 2)
        try:
            eventually(desk.all_done, SOON)
        finally:
            worker._settings.__dict__["drain_timeout"] = 0.1


# What is done, was read again after a lost connection and still waits for its lane's turn when the partition is to be
# released: nobody looks at `remembered` any more, and the next owner delivers it again.
def test_a_handler_that_outlives_its_connection_and_its_partition_is_not_delivered_again(desk):
    inside, release = threading.Event(), threading.Event()

    def handle(event):
        desk.note(event)
        inside.set()
        release.wait(30)

    desk.outbox.register(handle, "Counted")
    desk.publish("k", 1)
    with desk.outbox.worker() as worker, released_at_the_end(release):
        assert inside.wait(SOON)
        terminate(desk)
        eventually(lambda: partition(worker).life > 1 and queued(worker) == 1, SOON)
        stopping = threading.Thread(target=worker.stop)
        stopping.start()
        eventually(lambda: partition(worker).draining, SOON)
        release.set()
        stopping.join()
    with desk.outbox.worker():
        eventually(desk.all_done, SOON)
    assert desk.numbers() == [1]


# A partition that is mine again after it was lost waits with *reading* for the handlers of its earlier self, but not
# with its parked rows: an event runs twice at a time, or its successor beside it.
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
            release.wait(30)
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


# Parked rows.


# A claim commits before the parked rows are loaded. If that statement fails on a live connection (a timeout) the step
# is simply tried again, without it: blocked keys are unknown, and their events are delivered past what is parked.
def test_a_claim_whose_parked_rows_could_not_be_read_delivers_nothing_past_them(desk_with, monkeypatch):
    desk, blocking, failures = desk_with(retry=f"fixed:{LATER}"), parked.blocking, []

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
    monkeypatch.setattr(parked, "blocking", failing)
    with desk.outbox.worker():
        eventually(lambda: 2 in desk.numbers() or desk.states().get(2) == "held", SOON)
    assert failures
    assert desk.numbers() == [1]


# run_due lists what is `taken` and asks then. A row that is parked and committed in between is found, and when the
# saver notes its commit only now it takes away `taken` of the row that was found: that is found again while it runs,
# and runs twice.
def test_a_row_that_is_parked_and_due_while_the_poller_asks_is_delivered_once(desk_with, monkeypatch):
    desk, save, due, find = desk_with(retry="fixed:0"), cursors.save, parked.due, Intake.due
    asking, inside, saved, found, again = (threading.Event() for _ in range(5))

    def saving(conn, schema, subscription, me, savings, parks=(), *rest, **more):
        answer = save(conn, schema, subscription, me, savings, parks, *rest, **more)
        if asking.is_set() and any(each.new for each in parks) and not saved.is_set():
            saved.set()
            found.wait(1)
        return answer

    def asked(*args):
        asking.set()
        saved.wait(30)
        return due(*args)

    def finding(self, partition, stored, row, bodies):
        find(self, partition, stored, row, bodies)
        if stored.aggregate_id == NEIGHBOUR:
            (again if found.is_set() else found).set()

    def handle(event):
        if event.aggregate_id == NEIGHBOUR:
            desk.note(event)
            if event.attempt == 1:
                inside.set()
                asking.wait(30)
                raise ValueError("once")
            again.wait(2)

    monkeypatch.setattr(cursors, "save", saving)
    monkeypatch.setattr(parked, "due", asked)
    monkeypatch.setattr(Intake, "due", finding)
    desk.outbox.register(handle, "Counted", on_failure="continue")
    desk.publish("k", 1, deliver_after=LATER)
    desk.publish(NEIGHBOUR, 2)
    with desk.outbox.worker(), released_at_the_end(asking, saved, found, again):
        assert inside.wait(SOON)
        eventually(lambda: desk.states() == {1: "scheduled"}, SOON)
        desk.make_due()
        eventually(desk.all_done, SOON)
    assert desk.numbers(NEIGHBOUR) == [2, 2]


# What is pending is kept by record id: the end of a dead-letter hook takes the place of the park of its event, which
# was replayed meanwhile and has failed again. That row stays uncommitted for ever, and its key waits for it.
def test_a_hook_that_ends_after_its_event_was_replayed_does_not_stop_its_key(desk_with, monkeypatch):
    desk, save, letter = desk_with(retry="fixed:0"), cursors.save, ParkedRows.letter
    inside, go_on, noted, answers = threading.Event(), threading.Event(), threading.Event(), [Dead("no")]

    def saving(conn, schema, subscription, me, savings, parks=(), *rest, **more):
        if any(each.state == "retrying" for each in parks) and not noted.is_set():
            go_on.set()
            assert noted.wait(30)
        return save(conn, schema, subscription, me, savings, parks, *rest, **more)

    def noting(self, event, delay):
        letter(self, event, delay)
        noted.set()

    @desk.outbox.on_dead_letter
    def hook(event):
        inside.set()
        go_on.wait(30)

    def handle(event):
        desk.note(event)
        if event.payload["number"] == 1 and len(desk.seen) == 1:
            return answers[0]
        if event.payload["number"] == 1 and len(desk.seen) == 2:
            raise ValueError("again")
        return None

    monkeypatch.setattr(cursors, "save", saving)
    monkeypatch.setattr(ParkedRows, "letter", noting)
    desk.outbox.register(handle, "Counted")
    desk.publish("k", 1)
    with desk.outbox.worker(concurrency=2), released_at_the_end(go_on, noted):
        assert inside.wait(SOON)
        desk.outbox.dead.replay_all()
        eventually(lambda: len(desk.seen) == 3, SOON)
        desk.publish("k", 2)
        eventually(desk.all_done, SOON)


# A parked row whose record lies ahead of the saved cursor waits until that record is met. When the last one is, `ahead`
# is empty and _forget_ahead, which wakes the keys, is not called: the key sleeps for ever.
def test_a_parked_row_that_waited_for_its_record_runs_when_it_is_met(desk_with):
    desk, inside, release = desk_with(retry=f"fixed:{LATER}"), threading.Event(), threading.Event()

    def handle(event):
        desk.note(event)
        if event.aggregate_id == NEIGHBOUR:  # holds the saved cursor back
            inside.set()
            release.wait(30)
        elif event.attempt == 1:
            raise ValueError("once")

    desk.outbox.register(handle, "Counted")
    desk.publish(NEIGHBOUR, 1)
    desk.publish("k", 2)
    with desk.outbox.worker(concurrency=2) as worker, released_at_the_end(release):
        assert inside.wait(SOON)
        eventually(lambda: desk.states() == {2: "retrying"}, SOON)
        desk.conn.execute("update partbox.parked set due_at = clock_timestamp()")
        terminate(desk)
        eventually(lambda: partition(worker).life > 1, SOON)
        eventually(lambda: desk.numbers() == [2, 2], SOON)


# What is due is fetched 200 rows a tick, bodies and all, however many wait for a handler already: delayed events that
# become due together are all in memory before long, past window and window_bytes, and each tick asks past them all.
def test_rows_that_are_due_together_do_not_all_come_into_memory(desk, monkeypatch):
    tick, ticks, inside, release = cursors.tick, [], threading.Event(), threading.Event()

    def ticking(*args):
        ticks.append(1)
        return tick(*args)

    def handle(event):
        inside.set()
        release.wait(30)

    desk.outbox.register(handle, "Counted")
    desk.publish(None, *range(1_000), deliver_after=LATER)
    with desk.outbox.worker(concurrency=1) as worker, released_at_the_end(release):
        eventually(lambda: len(desk.parked()) == 1_000)
        monkeypatch.setattr(cursors, "tick", ticking)
        desk.make_due()
        assert inside.wait(SOON)
        eventually(lambda: len(ticks) >= 8)
        with worker._worker.holdings.lock:
            taken = sum(len(each.parked.taken) for each in worker._worker.holdings.partitions.values())
        release.set()
        assert taken <= 2 * ROWS


# Handlers.


# An event that a list looked at and put back stays the `current` one of its lane as long as the list runs: it looks as
# if it ran, and when the list is over its timeout it is charged with an attempt that it never had.
def test_an_event_that_a_list_puts_back_does_not_count_as_running(desk_with):
    desk, lists = desk_with(retry=f"fixed:{LATER}"), []
    blocked, unblock, inside, release = (threading.Event() for _ in range(4))

    def block(event):
        blocked.set()
        unblock.wait(30)

    def take(events):
        lists.append([event.payload["number"] for event in events])
        if lists[-1] == [1] and len(lists) == 1:
            raise ValueError("once")
        if 2 in lists[-1]:
            inside.set()
            release.wait(30)

    desk.outbox.register(block, "Block")
    desk.outbox.on_batch("Counted", max_size=10)(take)
    desk.publish("retried", 1)
    with desk.outbox.worker(concurrency=1) as worker, released_at_the_end(unblock, release):
        dispatcher = worker._worker.dispatcher
        eventually(lambda: desk.states() == {1: "retrying"}, SOON)
        desk.publish("block", 0, event_type="Block")
        assert blocked.wait(SOON)
        desk.make_due()
        eventually(lambda: dispatcher._ready.due, SOON)
        desk.publish("fresh", 2)
        eventually(lambda: dispatcher._ready.fresh, SOON)
        dispatcher._ready._turn = 0  # a fresh one is next
        unblock.set()
        assert inside.wait(SOON)
        assert [lane.key[1] for lane in dispatcher.running()] == ["fresh"]
        release.set()
        eventually(desk.all_done, SOON)


# DeadLetters.walk catches Exception only: a hook that raises SystemExit ends the worker, over and over.
def test_a_dead_letter_hook_that_raises_a_system_exit_ends_no_worker(desk):
    called = threading.Event()

    @desk.outbox.on_dead_letter
    def hook(event):
        called.set()
        raise SystemExit(1)

    desk.outbox.register(
        lambda event: desk.note(event) or (Dead("no") if event.aggregate_id == "k" else None), "Counted"
    )
    desk.publish("k", 1)
    with desk.outbox.worker(concurrency=1) as worker:
        assert called.wait(SOON)
        desk.publish("other", 2)
        eventually(lambda: desk.numbers("other") == [2], SOON)
        assert worker._worker.failure is None


# Memory.


# Every poll that moves the horizon puts one more raise behind an unfinished record (and, of an idle partition, behind
# nothing): one per poll, not per event, until the next save of that partition; `unfinished` is quadratic in them.
def test_the_horizon_that_moves_on_costs_no_memory():
    progress = Progress(Page("1:1:", 0), 0)
    progress.read(Page("2:2:", 1), [], [1])
    for floor in range(2, 1_000):
        progress.read(Page(f"{floor}:{floor}:", floor), [], [], raised=floor)
    assert len(progress._unread) < 10
    progress.finish([(1, b"1")])
    assert progress.target().last_id == 999
