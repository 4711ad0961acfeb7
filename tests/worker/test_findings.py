"""One test for each way of losing events that was found by experiment (A1 … A13): each fails without its correction.

A8, the order of xid and id in every form of INSERT, is tests/publish/test_insert_forms.py.
"""

import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from rig import DEFAULT, PARTITION, SCHEMA, Rig, counted_polls, write
from stopping import stop_at_rest
from waiting import eventually

from partbox import Outbox
from partbox.db import cursors, instances, parked, records
from partbox.db.connect import connect
from partbox.db.sql import folder, query
from partbox.events import DeliveredEvent
from partbox.rules import cursor as cursor_rules
from partbox.rules.cursor import Ask
from partbox.rules.horizon import Snapshot
from partbox.rules.page import Page
from partbox.worker.reading import log_reader

pytestmark = pytest.mark.every_version("what a snapshot sees, and what a crash takes back")

Conn = psycopg.Connection[Any]
TOP = 2**62
OTHER = PARTITION + 1


@pytest.fixture
def rig_with(dsn: str) -> Iterator[Callable[..., Rig]]:
    made: list[Rig] = []

    def make(**settings: Any) -> Rig:
        made.append(Rig(dsn, **settings))
        return made[-1]

    yield make
    for rig in made:
        rig.close()


@pytest.fixture
def rig(rig_with: Callable[..., Rig]) -> Rig:
    return rig_with()


@contextmanager
def transaction(dsn: str) -> Iterator[Conn]:
    """A transaction with an xid; rolled back at the end of the block unless committed before."""
    with psycopg.connect(dsn) as conn:
        conn.execute("select pg_current_xact_id()")
        yield conn
        conn.rollback()


def save_point(conn: Conn) -> tuple[str, int, int]:
    row = conn.execute(
        "select snapshot::text, last_id, floor_id from partbox.partition where partition = %s", [PARTITION]
    ).fetchone()
    assert row is not None
    return row


# A1: the value in the sequence's row can be ahead of ids that are not drawn yet; reading it is no fence.


def test_nothing_selects_from_the_sequence() -> None:
    for path in folder().rglob("*.sql"):
        text = re.sub(r"--.*", "", path.read_text(encoding="utf-8"))
        assert not re.search(r"\blast_value\s+from\b", text), f"{path.name} reads last_value"
        assert not re.search(r"\bfrom\s+(\{schema\}\.record_id_seq|\{sequence\})", text), f"{path.name} selects from it"


def test_a_fence_takes_the_buffer_lock_of_the_sequence() -> None:
    assert b"pg_sequence_last_value(" in query("fence", SCHEMA)


# A2: a sequence that was never called says 1 before id 1 exists.


@pytest.mark.parametrize("first", [1, 500])
def test_a_fence_before_the_first_event_does_not_hide_it(conn: Conn, rig: Rig, first: int) -> None:
    conn.execute("select setval('partbox.record_id_seq', %s, false)", [first])
    assert records.look(rig.conn, SCHEMA, []).fence.drawn < first
    assert rig.read_all() == []
    write(conn)
    assert rig.read_all() == [first]


# A3: what is below the floor will not become visible any more, which does not mean that it was read.


def test_an_unread_backlog_below_the_floor_is_read(conn: Conn, rig_with: Callable[..., Rig]) -> None:
    write(conn, 100)
    rig = rig_with(window=10)
    page = rig.read()
    assert page == list(range(1, 11))
    rig.done(*page)
    rig.save()
    _, last_id, floor = save_point(conn)
    assert (last_id, floor) == (10, 100)
    pending = conn.execute("select count(*) from partbox.record_status where status = 'pending'").fetchone()
    assert pending == (90,)

    heir, seen = rig_with(window=10), []
    while page := heir.read_all(3):
        heir.done(*page)
        heir.save()
        seen += page
    assert seen == list(range(11, 101))


# A4: the room of a page limits its new records only; a late one left out would count as consumed.


def test_all_late_records_come_however_small_the_room(dsn: str, conn: Conn, rig_with: Callable[..., Rig]) -> None:
    rig = rig_with(window=2)
    with transaction(dsn) as late:
        for id in range(1, 21):
            write(late if id in (5, 8, 12) else conn)
        seen = []
        while page := rig.read_all(3):
            rig.done(*page)
            rig.save()
            seen += page
        assert seen == [id for id in range(1, 21) if id not in (5, 8, 12)]
        late.commit()
    write(conn, 5)
    assert rig.read() == [5, 8, 12, 21, 22]


def test_a_cut_page_brings_every_late_record_before_any_new_one(
    dsn: str, conn: Conn, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (records, cursor_rules):
        monkeypatch.setattr(module, "CAP", 3)
    with transaction(dsn) as late:
        write(late, 8)
        write(conn, 2)
        assert rig.read_all() == [9, 10]
        late.commit()
    write(conn, 2)
    pages = [page for _ in range(8) if (page := rig.read())]
    assert pages[:3] == [[1, 2, 3], [4, 5, 6], [7, 8]]
    assert pages[3:] == [[11, 12]]


def test_a_cut_page_that_is_half_read_is_not_saved_as_read(
    dsn: str, conn: Conn, rig_with: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (records, cursor_rules):
        monkeypatch.setattr(module, "CAP", 3)
    rig = rig_with()
    with transaction(dsn) as late:
        write(late, 8)
        write(conn, 2)
        rig.done(*rig.read_all())
        late.commit()
    page = rig.read()
    assert page == [1, 2, 3]
    rig.done(*page)
    rig.save()
    assert set(rig_with().read_all()) >= {4, 5, 6, 7, 8}


# A5: a partition without room moves to the new snapshot with the others: it must have read what came late.


def test_a_full_window_does_not_lose_late_records(dsn: str, conn: Conn, rig_with: Callable[..., Rig]) -> None:
    rig = rig_with(partitions=(PARTITION, OTHER), window=2)
    with transaction(dsn) as late:
        write(late)
        write(conn, 4)
        assert rig.read_all() == [2, 3]
        late.commit()
    write(conn, 1, OTHER)
    assert rig.read_all() == [1, 6], "the other partition goes on, and the full one reads what came late"
    rig.done(1, 2, 3)
    rig.save()
    assert rig.read_all() == [4, 5]


# A6: snapshot and floor that are saved belong to the saved page, not to the newest poll.


def test_a_late_record_that_still_runs_is_read_by_the_heir(dsn: str, conn: Conn, rig_with: Callable[..., Rig]) -> None:
    rig = rig_with()
    with transaction(dsn) as late:
        write(late)
        write(conn, 2)
        assert rig.read_all() == [2, 3]
        first, *_ = rig.partition().progress.page.snapshot.split(":")
        rig.done(2, 3)
        late.commit()
    assert rig.read_all() == [1]
    rig.save()
    snapshot, last_id, floor = save_point(conn)
    assert (snapshot.split(":")[0], last_id, floor) == (first, 3, 0)
    assert rig_with().read_all() == [1]


def test_the_floor_of_a_page_is_saved_with_it(dsn: str, conn: Conn, rig_with: Callable[..., Rig]) -> None:
    rig = rig_with()
    with transaction(dsn) as late:
        write(late)
        write(conn, 2)
        assert rig.read_all() == [2, 3]
        rig.done(2, 3)
        rig.save()
        assert save_point(conn)[1:] == (3, 0)
        late.commit()
    assert rig_with().read_all() == [1]


# A7: nothing that there is to read may wait for the next publish; and one open transaction must not keep polls going.


def test_a_full_page_is_not_taken_for_the_end(
    conn: Conn, rig_with: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_reader, "LOOK_AGAIN", 0.0)  # look before each page
    write(conn, 100)
    rig = rig_with(page=1, window=40)
    seen = []
    for _ in range(30):
        page = rig.read()
        rig.done(*page)
        rig.save()
        seen += page
    assert seen == list(range(1, 101))


def test_polls_cease_beside_an_open_transaction_and_go_on_when_it_ends(
    dsn: str, conn: Conn, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    with transaction(dsn) as late:
        write(late)
        write(conn)
        assert rig.read_all() == [2]
        conn.execute("select pg_current_xact_id()")  # somebody else goes on working
        rig.read_all(5)
        polls = counted_polls(monkeypatch)
        assert rig.read_all(20) == []
        assert polls == []
        late.commit()
    assert rig.read_all(3) == [1]


def test_an_event_committed_between_look_and_poll_is_read_though_nothing_else_happens(
    conn: Conn, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(conn)
    poll = records.poll

    def publish_and_poll(*args: Any, **kwargs: Any) -> Any:
        monkeypatch.setattr(records, "poll", poll)
        write(conn)
        return poll(*args, **kwargs)

    assert rig.read() == [1]
    write(conn)
    monkeypatch.setattr(records, "poll", publish_and_poll)
    assert rig.read_all() == [2, 3]


# A9: a server that crashed gives ids and xids out again that a worker has seen; what it remembers of them is wrong.


def test_events_that_reuse_the_ids_of_a_lost_tail_are_delivered(own_server: Any) -> None:
    with psycopg.connect(own_server.dsn, autocommit=True) as conn:
        # Nothing flushes the tail: neither a heartbeat's commit, nor the WAL writer, which stands still.
        conn.execute("alter system set synchronous_commit = off")
        conn.execute("select pg_reload_conf()")
        (wal_writer,) = conn.execute("select pid from pg_stat_activity where backend_type = 'walwriter'").fetchone()
    outbox = Outbox(own_server.dsn)
    delivered: list[str] = []
    outbox.register(lambda event: delivered.append(str(event.event_id)), "Counted")
    with outbox.worker():
        publish(outbox, own_server.dsn, 20, durable=True)
        eventually(lambda: len(delivered) == 20)
        stop_at_rest(wal_writer)
        publish(outbox, own_server.dsn, 300, durable=False)
        eventually(lambda: len(delivered) == 320)
        os.kill(wal_writer, signal.SIGKILL)
        own_server.server.kill()
        own_server.server.start()
        assert len(existing(own_server.dsn)) < 320, "the crash lost nothing, so this test shows nothing"
        publish(outbox, own_server.dsn, 400, durable=True)
        there = existing(own_server.dsn)
        eventually(lambda: there <= set(delivered))


def test_an_event_under_the_id_of_one_that_was_done_is_another_event(dsn: str, conn: Conn) -> None:
    """The first event holds the cursor, so the second is done and not saved when the connections are lost."""
    outbox = Outbox(dsn)
    release, started = threading.Event(), []

    def handle(event: DeliveredEvent) -> None:
        started.append(event.event_id)
        if event.id == 1:
            assert release.wait(60)

    outbox.register(handle, "Written")
    write(conn, 2)
    with outbox.worker(concurrency=2):
        eventually(lambda: len(started) == 2)
        with conn.transaction():
            conn.execute("delete from partbox.record where id = 2")
            conn.execute("select setval('partbox.record_id_seq', 1)")
            write(conn)
        conn.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where datname = current_database() and application_name like 'partbox %%'"
        )
        release.set()
        there = {id for (id,) in conn.execute("select event_id from partbox.record")}
        eventually(lambda: there <= set(started))
    assert len(started) == len(set(started)) == 3


def test_a_fence_of_a_lost_tail_bounds_nothing_after_it(dsn: str, conn: Conn) -> None:
    """It says that whoever draws an xid later draws an id above 50; after the crash that is wrong."""
    outbox = Outbox(dsn)
    delivered: list[int] = []
    outbox.register(lambda event: delivered.append(event.id), "Written")
    with outbox.worker():
        write(conn, 50)
        eventually(lambda: len(delivered) == 50)
        eventually(
            lambda: conn.execute("select min(last_id) = 50 from partbox.partition where partition = 5").fetchone()[0]
        )
        with conn.transaction():  # what a server has that has lost the last 40
            conn.execute("update partbox.partition set last_id = least(last_id, 10), floor_id = least(floor_id, 10)")
            conn.execute("delete from partbox.record where id > 10")
            conn.execute("select setval('partbox.record_id_seq', 10)")
        conn.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where datname = current_database() and application_name like 'partbox %%'"
        )
        delivered.clear()
        with transaction(dsn) as late:
            write(late)
            write(conn)
            eventually(lambda: delivered == [12])
            late.execute("commit")
        eventually(lambda: delivered == [12, 11])


def publish(outbox: Outbox, dsn: str, count: int, *, durable: bool) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(f"set synchronous_commit = {'on' if durable else 'off'}")
        for number in range(count):
            with conn.transaction():
                outbox.publish(conn, "Counted", {"n": number}, aggregate_type="Key", aggregate_id=str(number % 50))


def existing(dsn: str) -> set[str]:
    with psycopg.connect(dsn, autocommit=True) as conn:
        return {str(id) for (id,) in conn.execute("select event_id from partbox.record")}


def test_after_a_reconnect_nothing_is_remembered_but_what_is_done(dsn: str, conn: Conn, rig: Rig) -> None:
    with transaction(dsn) as late:
        write(conn)
        write(late)
        write(conn, 2)
        assert rig.read_all() == [1, 3, 4]
        rig.done(4)
        late.commit()
    assert rig.read_all() == [2]
    rig.done(2)
    rig.save()  # (this snapshot, 0): 2 was late, and is new for who goes on from here
    rig.reconnect()
    two_and_four = conn.execute("select id, event_id from partbox.record where id in (2, 4)").fetchall()
    pairs = {(id, event_id.bytes) for id, event_id in two_and_four}
    assert rig.partition().resumption.remembered == pairs
    assert rig.read_all() == [1, 3]
    assert set(rig.partition().progress.done()) == pairs  # read again, and known to be done
    assert rig.partition().resumption.remembered == set()


# A11: the snapshot of a page is taken by the statement that reads its rows.


def test_the_poll_is_one_plain_statement() -> None:
    text = re.sub(r"--.*", "", query("poll", SCHEMA).decode())
    assert ";" not in text
    assert not re.search(r'"partbox"\.\w+\s*\(', text), "a function of ours stands between the rows and the snapshot"
    assert text.count("pg_current_snapshot()::text") == 1


def test_a_page_holds_exactly_what_its_snapshot_sees(dsn: str, conn: Conn, rig: Rig) -> None:
    enough = threading.Event()

    def publisher() -> None:
        with psycopg.connect(dsn, autocommit=True) as mine:
            while not enough.is_set():
                with mine.transaction():
                    write(mine)
                    with mine.transaction():
                        write(mine)

    threads = [threading.Thread(target=publisher) for _ in range(4)]
    for thread in threads:
        thread.start()
    pages = []
    try:
        start = 0
        for _ in range(150):
            asked = [Ask(PARTITION, start, TOP, Page("1:1:", start), None, None)]
            text, _, rows, _ = records.poll(rig.conn, SCHEMA, asked, None, lo=start, hi=TOP)
            pages.append((start, Snapshot.parse(text), {row[1] for row in rows}))
            start = max([start, *(row[1] - 20 for row in rows)])
    finally:
        enough.set()
        for thread in threads:
            thread.join()
    log = conn.execute("select id, xid::text::bigint from partbox.record").fetchall()
    for start, snapshot, ids in pages:
        seen = {id for id, xid in log if id > start and xid < snapshot.xmax and xid not in snapshot.xip}
        assert ids == seen


# A12: a transaction's own xid counts as visible in its own snapshot, so a poll must have none.


def test_reading_draws_no_transaction_id(conn: Conn, rig: Rig) -> None:
    write(conn, 5)
    before = next_xid(conn)
    assert rig.read_all() == [1, 2, 3, 4, 5]
    assert next_xid(conn) == before


def next_xid(conn: Conn) -> int:
    row = conn.execute("select age('3'::xid)").fetchone()
    assert row is not None
    return row[0]


# A13: a park is fenced by locking the partition row; looking at it is no fence.


def test_a_park_that_meets_a_takeover_waits_for_it_and_is_not_written(dsn: str, conn: Conn, rig: Rig) -> None:
    epoch = rig.partition().epoch
    saving = cursors.Saving(PARTITION, epoch, None, None, None, False)
    park = parked.Park(PARTITION, 1, "A", "a", "E", "held", blocks=True, attempts=0)
    answers: list[set[int]] = []

    def save() -> None:
        with connect(dsn, lease=60) as mine:
            answers.append(cursors.save(mine, SCHEMA, DEFAULT, rig.me, [saving], [park])[0])

    thread = threading.Thread(target=save)
    with psycopg.connect(dsn) as heir:
        instances.bury(heir, SCHEMA, [rig.me], known_dead=True)
        thread.start()
        eventually(
            lambda: conn.execute(
                "select true from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
            ).fetchone()
        )
        assert not answers
        heir.commit()
    thread.join()
    assert answers == [set()]
    assert conn.execute("select count(*) from partbox.parked").fetchone() == (0,)
