"""Polls of the log: what one reads is what its snapshot sees, and it draws no transaction id."""

import re
import threading
from typing import Any

import psycopg
from owner import PARTITION, SCHEMA, Owner, write
from server_database import SHIPPED

from partbox.db.sql import load_query
from partbox.protocol.cursor import ReadRequest
from partbox.protocol.horizon import Page, Snapshot

Conn = psycopg.Connection[Any]
TOP = 2**62


# The snapshot of a page is taken by the statement that reads its rows.
def test_the_poll_is_one_plain_statement() -> None:
    text = re.sub(r"--.*", "", load_query("poll", SCHEMA).decode())
    assert ";" not in text
    called = set(re.findall(r'"partbox"\.(\w+)\s*\(', text))
    # The one is called while planning, the other is stable: it has the snapshot of the statement.
    assert called == {"log_planned", "cancelling"}, "a function of ours may stand before the snapshot"
    assert text.count("pg_current_snapshot()::text") == 1


def test_a_page_holds_exactly_what_its_snapshot_sees(dsn: str, conn: Conn, owner: Owner) -> None:
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
            asked = [ReadRequest(PARTITION, start, TOP, Page("1:1:", start), None, None)]
            text, _, rows, *_ = SHIPPED["poll_page"](owner.conn, SCHEMA, asked, None, lo=start, hi=TOP)
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
def test_reading_draws_no_transaction_id(conn: Conn, owner: Owner) -> None:
    write(conn, 5)
    owner.tick()  # it has claimed before
    before = next_xid(conn)
    assert owner.read_all(10) == [1, 2, 3, 4, 5]
    assert owner.partition().cursor.is_caught_up, "by a quick poll too"
    assert next_xid(conn) == before


def next_xid(conn: Conn) -> int:
    row = conn.execute("select age('3'::xid)").fetchone()
    assert row is not None
    return row[0]
