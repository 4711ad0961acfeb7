"""Polls of the log: what one reads is what its snapshot sees, and there is one whenever something is unread."""

import re
import threading
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from rig import PARTITION, SCHEMA, Rig, counted_polls, transaction, write

from partbox.db.delivery import records
from partbox.db.sql import query
from partbox.protocol.cursor import Ask
from partbox.protocol.horizon import Page, Snapshot
from partbox.worker.poller import log_poll as log_reader

pytestmark = pytest.mark.every_version("what a snapshot sees, and what a crash takes back")

Conn = psycopg.Connection[Any]
TOP = 2**62


# Nothing that there is to read may wait for the next publish; and one open transaction must not keep polls going.
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


# The snapshot of a page is taken by the statement that reads its rows.
def test_the_poll_is_one_plain_statement() -> None:
    text = re.sub(r"--.*", "", query("poll", SCHEMA).decode())
    assert ";" not in text
    called = set(re.findall(r'"partbox"\.(\w+)\s*\(', text))
    assert called == {"log_planned"}, "a function of ours that is not called while planning stands before the snapshot"
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
            text, _, rows, *_ = records.poll(rig.conn, SCHEMA, asked, None, lo=start, hi=TOP)
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


# A transaction's own xid counts as visible in its own snapshot, so a poll must have none.
def test_reading_draws_no_transaction_id(conn: Conn, rig: Rig) -> None:
    write(conn, 5)
    before = next_xid(conn)
    assert rig.read_all() == [1, 2, 3, 4, 5]
    assert next_xid(conn) == before


def next_xid(conn: Conn) -> int:
    row = conn.execute("select age('3'::xid)").fetchone()
    assert row is not None
    return row[0]
