"""Interleavings that a review found wrong: each test failed when it was written; the comment above it says why."""

import asyncio
import threading
from contextlib import contextmanager

import psycopg
import pytest
from waiting import eventually

from partbox import Dead
from partbox.db import cursors, parked, records
from partbox.rules.hashing import partition_of
from partbox.rules.progress import Page, Progress
from partbox.worker.due import ROWS
from partbox.worker.intake import Intake
from partbox.worker.loop import Loop
from partbox.worker.partition import Partition

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


# _run_one adds the followers of a failed event to `taken`, and _note demands that the cursor pass all of `taken`. With
# an unfinished event of another lane between the two it does not: RuntimeError, and the worker ends.
def test_a_failed_transactional_event_with_a_follower_beyond_a_running_neighbour_ends_no_worker(desk_with):
    desk, release = desk_with(retry=f"fixed:{LATER}"), threading.Event()

    def fail(event, conn):
        raise ValueError("no")

    desk.outbox.register(fail, "Counted", transactional=True)
    desk.outbox.register(lambda event: release.wait(30), "Other")
    desk.publish("k", 1)
    desk.publish(NEIGHBOUR, 2, event_type="Other")
    desk.publish("k", 3)
    with desk.outbox.worker(concurrency=2) as worker, released_at_the_end(release):
        eventually(lambda: desk.states() == {1: "retrying", 3: "held"}, SOON)
        assert worker._worker.failure is None


# _note also demands that everything which the cursor passes be passed for good. A late record of another handler that
# comes while a transaction runs, and a new one behind it that finishes at once, break that: RuntimeError again.
def test_a_late_record_of_a_neighbour_while_a_transaction_runs_ends_no_worker(desk, dsn, effects):
    inside, go_on, release = threading.Event(), threading.Event(), threading.Event()

    def slowly(event, conn):
        inside.set()
        go_on.wait(30)
        write(event, conn)

    desk.outbox.register(slowly, "Counted", transactional=True)
    desk.outbox.register(lambda event: release.wait(30), "Other")
    with desk.outbox.worker(concurrency=3) as worker, released_at_the_end(go_on, release):
        with psycopg.connect(dsn) as late:
            desk.outbox.publish(late, "Other", {"number": 0}, aggregate_type="Key", aggregate_id=NEIGHBOUR)
            desk.publish("k", 1)
            assert inside.wait(SOON)
        eventually(lambda: partition(worker).progress.late, SOON)
        desk.publish("k", 2, deliver_after=LATER)  # parked at once, so finished
        eventually(lambda: partition(worker).progress.read_new == 2, SOON)
        go_on.set()
        eventually(lambda: effects() == [1], SOON)
        assert worker._worker.failure is None


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
    save, held, go_on = cursors.save, threading.Event(), threading.Event()

    def saving(conn, schema, subscription, me, savings, *rest, durable=False):
        mine = any(each.partition == P and each.last_id for each in savings)
        if durable or not mine or held.is_set():
            return save(conn, schema, subscription, me, savings, *rest, durable=durable)
        held.set()
        go_on.wait(30)
        saved = save(conn, schema, subscription, me, savings, *rest)
        terminate(desk)
        return saved

    monkeypatch.setattr(cursors, "save", saving)
    desk.outbox.register(write, "Counted", transactional=True)
    desk.publish("k", 1)
    with desk.outbox.worker(), released_at_the_end(go_on):
        assert held.wait(SOON)
        desk.publish("k", 2)
        with pytest.raises(AssertionError):  # it waits for the save; or, if it need not, must not suffer from it
            eventually(lambda: effects() == [1, 2], 1)
            raise AssertionError
        go_on.set()
        eventually(lambda: len(effects()) >= 2 and desk.all_done(), SOON)
    assert effects() == [1, 2]


# _failed empties the lanes at once, but the poller goes on with the old cursor until it sees that it is to reconnect:
# a page that is on its way brings the next event of the key, and it overtakes the one that was rolled back.
def test_what_follows_a_transaction_that_was_lost_does_not_overtake_it(desk, monkeypatch):
    poll, fetched, go_on, order = records.poll, threading.Event(), threading.Event(), []

    def polling(*args, **kwargs):
        page = poll(*args, **kwargs)
        if any(row[3] == "Other" for row in page[2]) and not fetched.is_set():
            fetched.set()
            go_on.wait(30)
        return page

    reset = Partition.reset

    def resetting(self):
        reset(self)
        go_on.set()

    monkeypatch.setattr(records, "poll", polling)
    monkeypatch.setattr(Partition, "reset", resetting)

    def handle(event, conn):
        if not fetched.is_set():
            desk.publish("k", 2, event_type="Other")
            assert fetched.wait(30)
            desk.conn.execute("select pg_terminate_backend(%s)", [conn.info.backend_pid])
        conn.execute("select 1")
        order.append(1)

    desk.outbox.register(handle, "Counted", transactional=True)
    desk.outbox.register(lambda event: order.append(2), "Other")
    desk.publish("k", 1)
    with desk.outbox.worker(), released_at_the_end(go_on):
        eventually(desk.all_done, SOON)
    assert order == [1, 2]


# After a failed commit the module promises to run the events one by one until one fails again; but the first that
# succeeds ends that, so an event far behind makes every event before it fail, and reconnect, once more.
def test_one_bad_commit_is_found_without_failing_for_each_event_before_it(desk, effects, caplog):
    desk.conn.execute("create table parent (id int primary key)")
    desk.conn.execute("create table child (id int references parent deferrable initially deferred)")

    def handle(event, conn):
        write(event, conn)
        if event.payload["number"] == 9:
            conn.execute("insert into child values (9)")

    desk.outbox.register(handle, "Counted", transactional=True, retry=f"fixed:{LATER}")
    desk.publish("k", *range(10))
    with desk.outbox.worker():
        eventually(lambda: desk.states() == {9: "retrying"})
    assert effects() == list(range(9))
    assert caplog.text.count("failed, they run again") <= 2


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
        eventually(lambda: partition(worker) is not before and partition(worker).chains, SOON)
        for number in range(3):  # each needs a step of the poller
            desk.publish("other", number)
            eventually(lambda number=number: number in desk.numbers("other"), SOON)
        release.set()
        eventually(desk.all_done, SOON)
    assert max(most) == 1


# Parked rows.


# A claim commits before the parked rows are loaded. If that statement fails on a live connection (a timeout) the step is
# simply tried again, without it: blocked keys are unknown, and their events are delivered past what is parked.
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


# A reload notes the new parked_version before it reads: if that statement fails, the command is never seen.
def test_a_command_whose_reload_failed_is_seen_all_the_same(desk, monkeypatch):
    blocking, failures, ill = parked.blocking, [], [True]

    def failing(conn, *rest):
        if not ill and not failures:
            failures.append(1)
            raise psycopg.errors.QueryCanceled("canceling statement due to statement timeout")
        return blocking(conn, *rest)

    monkeypatch.setattr(parked, "blocking", failing)
    desk.outbox.register(lambda event: desk.note(event) or (Dead("no") if ill else None), "Counted")
    desk.publish("k", 1)
    with desk.outbox.worker():
        eventually(lambda: desk.states() == {1: "dead"}, SOON)
        ill.clear()
        desk.outbox.dead.replay_all()
        eventually(lambda: failures, SOON)
        eventually(lambda: desk.numbers() == [1, 1], SOON)


# load() takes the number of open rows from the database, where rows are that this process has finished and is about to
# delete: they are never taken off again. Enough of them, and the brake leaves the partition no room for ever.
def test_rows_that_are_finished_while_their_owner_reads_anew_do_not_brake_it_for_ever(desk_with, monkeypatch):
    desk, save, go_on, ill = desk_with(max_parked=3, retry=f"fixed:{LATER}"), cursors.save, threading.Event(), [True]
    go_on.set()

    def saving(*args, **more):
        go_on.wait(30)
        return save(*args, **more)

    def handle(event):
        desk.note(event)
        if ill:
            raise ValueError("no")

    monkeypatch.setattr(cursors, "save", saving)
    desk.outbox.register(handle, "Counted")
    desk.publish("k", 1, 2, 3)
    with desk.outbox.worker() as worker, released_at_the_end(go_on):
        eventually(lambda: desk.states() == {1: "retrying", 2: "held", 3: "held"}, SOON)
        eventually(lambda: all(row.committed for chain in partition(worker).chains.values() for row in chain), SOON)
        ill.clear()
        go_on.clear()
        desk.make_due()
        eventually(lambda: len(partition(worker).deleting) == 3, SOON)
        version = partition(worker).parked_version
        desk.make_due()
        with pytest.raises(AssertionError):  # it reads them now; or, if it rather waits for the save, later
            eventually(lambda: partition(worker).parked_version > version, 1)
            raise AssertionError
        go_on.set()
        desk.publish("k", 4)
        eventually(lambda: desk.numbers() == [1, 1, 2, 3, 4], SOON)


# A row that blocks nothing may be found due between the commit of its park and the saver's note of it, which then takes
# away `taken` of the row that was found: it is found again while it runs, and delivered twice.
def test_a_row_that_is_due_at_once_is_delivered_once(desk_with, monkeypatch):
    desk, save, due = desk_with(retry="fixed:0"), cursors.save, Intake.due
    found, again, noted = threading.Event(), threading.Event(), threading.Event()

    def saving(conn, schema, subscription, me, savings, parks=(), *rest, **more):
        saved = save(conn, schema, subscription, me, savings, parks, *rest, **more)
        if parks:
            assert found.wait(30)
        return saved

    def finding(*args):
        due(*args)
        (again if found.is_set() else found).set()

    def handle(event):
        desk.note(event)
        if event.attempt == 1:
            raise ValueError("once")
        again.wait(2)

    monkeypatch.setattr(cursors, "save", saving)
    monkeypatch.setattr(Intake, "due", finding)
    desk.outbox.register(handle, "Counted")
    desk.publish(None, 1)
    with desk.outbox.worker(), released_at_the_end(found, noted):
        eventually(desk.all_done, SOON)
    assert desk.numbers(None) == [1, 1]


# `parks` is kept by record id: the end of a dead-letter hook takes the place of the park of its event, which was replayed
# meanwhile and has failed again. That row stays uncommitted for ever, and its key waits for it.
def test_a_hook_that_ends_after_its_event_was_replayed_does_not_stop_its_key(desk_with, monkeypatch):
    desk, save, letter = desk_with(retry="fixed:0"), cursors.save, Partition.letter
    inside, go_on, noted, answers = threading.Event(), threading.Event(), threading.Event(), [Dead("no")]

    def saving(conn, schema, subscription, me, savings, parks=(), *rest, **more):
        if any(each["s"] == "retrying" for each in parks) and not noted.is_set():
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
    monkeypatch.setattr(Partition, "letter", noting)
    desk.outbox.register(handle, "Counted")
    desk.publish("k", 1)
    with desk.outbox.worker(concurrency=2), released_at_the_end(go_on, noted):
        assert inside.wait(SOON)
        desk.outbox.dead.replay_all()
        eventually(lambda: len(desk.seen) == 3, SOON)
        desk.publish("k", 2)
        eventually(desk.all_done, SOON)


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
            taken = sum(len(each.taken) for each in worker._worker.holdings.partitions.values())
        release.set()
        assert taken <= 2 * ROWS


# Handlers.


# Loop.call catches Exception only. A CancelledError that is the handler's own (it awaited a task that was cancelled)
# ends the walk of the lane without its end: the key, a slot of the concurrency and the partition's release hang for
# ever. A SystemExit even ends the event loop, and all async handlers with it.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("error", [asyncio.CancelledError, SystemExit])
def test_whatever_an_async_handler_raises_it_has_failed(desk_with, error):
    desk = desk_with(retry="fixed:0", drain_timeout=0.5)

    async def handle(event):
        desk.note(event)
        if event.attempt == 1:
            raise error

    desk.outbox.register(handle, "Counted")
    desk.publish("k", 1, 2)
    with desk.outbox.worker():
        eventually(desk.all_done, SOON)
    assert desk.numbers() == [1, 1, 2]


# An event that a list looked at and put back stays the `current` one of its lane as long as the list runs: it looks as
# if it ran, and when the list is over its timeout it is charged with an attempt that it never had.
def test_an_event_that_a_list_puts_back_does_not_count_as_running(desk_with):
    desk, lists = desk_with(retry="fixed:0"), []
    blocked, unblock, inside, release = (threading.Event() for _ in range(4))

    def block(event):
        blocked.set()
        unblock.wait(30)

    def take(events):
        lists.append([event.payload["number"] for event in events])
        if lists[-1] == [1]:
            raise ValueError("once")
        if 2 in lists[-1]:
            inside.set()
            release.wait(30)

    desk.outbox.register(block, "Block")
    desk.outbox.on_batch("Counted", max_size=10)(take)
    desk.publish("retried", 1)
    with desk.outbox.worker(concurrency=1) as worker, released_at_the_end(unblock, release):
        dispatcher = worker._worker.dispatcher
        with desk.conn.transaction():  # so that it is not due before the only runner is blocked
            desk.conn.execute("select from partbox.partition order by subscription, partition for no key update")
            eventually(lambda: lists == [[1]], SOON)
            desk.publish("block", 0, event_type="Block")
            assert blocked.wait(SOON)
        eventually(lambda: dispatcher._due, SOON)
        desk.publish("fresh", 2)
        eventually(lambda: dispatcher._fresh, SOON)
        dispatcher._turn = 0  # a fresh one is next
        unblock.set()
        assert inside.wait(SOON)
        assert [lane.key[1] for lane in dispatcher.running()] == ["fresh"]
        release.set()
        eventually(desk.all_done, SOON)


# An async handler that blocks its event loop makes Loop.stop raise TimeoutError out of Worker.stop, before the poller
# and the saver are ended: embedded, their threads and connections stay.
def test_a_blocked_event_loop_does_not_keep_a_worker_from_ending(monkeypatch):
    loop, inside, release = Loop(), threading.Event(), threading.Event()

    async def block():
        inside.set()
        release.wait(30)

    with released_at_the_end(release):
        loop.start(block())
        assert inside.wait(SOON)
        assert loop.stop()


# Memory.


# Every poll that moves the horizon puts one more raise behind an unfinished record (and, of an idle partition, behind
# nothing): one per poll, not per event, until the next save of that partition; `unfinished` is quadratic in them.
def test_the_horizon_that_moves_on_costs_no_memory():
    progress = Progress(Page("1:1:", 0), 0)
    progress.read(Page("2:2:", 1), [], [1])
    for floor in range(2, 1_000):
        progress.read(Page(f"{floor}:{floor}:", floor), [], [], raised=floor)
    assert len(progress._unread) < 10
    progress.finish([(1, b"1")], 1)
    assert progress.target().last_id == 999
