"""Transactional handlers beside plain ones, saves on their way and lost connections: no effect twice, nobody stuck."""

import threading
from contextlib import suppress

import psycopg
import pytest
from neighbours import BEGUN, NEIGHBOUR, SOON, P, partition, queued, released_at_the_end, terminate
from waiting import eventually

from partbox.db.delivery import cursors


@pytest.fixture
def effects(desk):
    desk.conn.execute("create table effect (number int, id bigint generated always as identity)")

    def written():
        return [number for (number,) in desk.conn.execute("select number from effect order by id")]

    return written


def write(event, conn):
    conn.execute("insert into effect (number) values (%s)", [event.payload["number"]])


# A late record of a plain handler that queues behind a transactional event of its own key, which itself waits until no
# late record is unfinished: neither may wait for the other, nor the transactional events of the partition for both.
def test_a_late_record_behind_a_waiting_transactional_event_of_its_key_is_no_deadlock(desk, dsn, effects):
    inside, go_on = threading.Event(), threading.Event()

    def handle(event, conn):
        if event.aggregate_id == NEIGHBOUR:
            inside.set()
            go_on.wait(120)
        write(event, conn)

    desk.outbox.register(handle, "Counted", transactional=True)
    desk.outbox.register(desk.note, "Other")
    with desk.outbox.worker(concurrency=3) as worker, released_at_the_end(go_on):
        with psycopg.connect(dsn) as late:
            desk.outbox.publish(late, "Other", {"number": 0}, aggregate_type="Key", aggregate_id="k")
            desk.publish(NEIGHBOUR, 1)
            assert inside.wait(BEGUN)
            desk.publish("k", 2)
            eventually(lambda: queued(worker) == 1, SOON)
        eventually(lambda: partition(worker).progress.late_pages, SOON)
        go_on.set()
        eventually(desk.all_done, SOON)
    assert effects() == [1, 2]


# The ordinary saver leaves a partition alone while a transaction runs in it; but a save of it that is on its way
# already (or is tried again) would commit after the transaction, and set the cursor back behind its effects.
def test_a_save_that_was_on_its_way_does_not_set_the_cursor_back_behind_an_effect(desk, effects, monkeypatch):
    save = cursors.save
    held, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def saving(conn, schema, subscription, me, savings, *rest, durable=False, session=None):
        mine = any(each.partition == P and each.snapshot for each in savings)
        if durable or not mine or held.is_set() or not effects():  # not before it has gone on
            return save(conn, schema, subscription, me, savings, *rest, durable=durable)
        held.set()
        go_on.wait(120)
        saved = save(conn, schema, subscription, me, savings, *rest)
        terminate(desk)
        ended.set()
        return saved

    monkeypatch.setattr(cursors, "save", saving)
    desk.outbox.register(write, "Counted", transactional=True)
    desk.publish("k", 1)
    with desk.outbox.worker(), released_at_the_end(go_on):
        assert held.wait(BEGUN)
        desk.publish("k", 2)
        with suppress(AssertionError):  # it may wait for the save; if it does not, it must not suffer from it
            eventually(lambda: effects() == [1, 2], 1)
        go_on.set()
        assert ended.wait(SOON)
        eventually(lambda: len(effects()) >= 2 and desk.all_done(), SOON)
    assert effects() == [1, 2]


# If the poller waited for the transaction in hand before it reads anew, nothing of this process would be read, saved,
# released or watched for its timeout while that handler runs.
def test_a_long_transactional_handler_does_not_stop_the_others_when_a_connection_is_lost(desk):
    inside, release = threading.Event(), threading.Event()

    def handle(event, conn):
        inside.set()
        release.wait(120)

    desk.outbox.register(handle, "Counted", transactional=True)
    desk.outbox.register(desk.note, "Other")
    desk.publish("k", 1)
    with desk.outbox.worker(concurrency=2), released_at_the_end(release):
        assert inside.wait(BEGUN)
        terminate(desk, "poller")
        desk.publish("other", 2, event_type="Other")
        eventually(lambda: desk.numbers("other") == [2], SOON)
