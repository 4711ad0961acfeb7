"""The segments and indexes that a poll touches."""

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
from ownership import SCHEMA, Conn, worker
from polling import MILLION, ask, poll, write, write_at
from psycopg import sql

from partbox.db.delivery import records
from partbox.db.sql import load_query
from partbox.protocol.cursor import STRETCH, ReadRequest
from partbox.protocol.horizon import Page
from partbox.protocol.quick_poll import to_bits
from partbox.protocol.sweep import plan_sweep


@pytest.fixture
def segments(conn) -> None:
    """Segments of ten million ids: record_1 up to 10 M, record_2 up to 20 M … record_4 up to 40 M, and the default."""
    for number in (2, 3, 4):
        conn.execute(
            sql.SQL("create table {} partition of partbox.record for values from ({}) to ({})").format(
                sql.Identifier("partbox", f"record_{number}"),
                (number - 1) * 10 * MILLION,
                number * 10 * MILLION,
            )
        )


def scanned(conn: Conn, monkeypatch: pytest.MonkeyPatch, asks: Sequence[ReadRequest], lo: int, hi: int) -> set[str]:
    """The segments that the plan of this very poll touches."""
    seen: dict[str, Any] = {}
    fetch = records.fetch
    with monkeypatch.context() as patch:
        patch.setattr(records, "fetch", lambda *args, **planned: seen.update(args[3]) or fetch(*args, **planned))
        poll(conn, *asks, lo=lo, hi=hi)
    plan = conn.execute(b"explain (costs off) " + load_query("poll", SCHEMA), seen).fetchall()
    return set(re.findall(r"\bon (record_\w+)", "\n".join(line for (line,) in plan)))


RANGES = [
    (0, 5 * MILLION, {"record_1"}),
    (11 * MILLION, 15 * MILLION, {"record_2"}),
    (9 * MILLION, 15 * MILLION, {"record_1", "record_2"}),
    (10 * MILLION, 20 * MILLION - 1, {"record_2"}),
    (10 * MILLION - 2, 20 * MILLION, {"record_1", "record_2", "record_3"}),
    (35 * MILLION, 45 * MILLION, {"record_4", "record_default"}),
]


@pytest.mark.usefixtures("segments")
def test_segments_outside_of_the_range_of_a_poll_are_not_even_planned(conn, monkeypatch):
    for lo, hi, touched in RANGES:
        asks = [ask(lo, partition=number) for number in range(256)]
        assert scanned(conn, monkeypatch, asks, lo, hi) == touched, (lo, hi)


@pytest.mark.usefixtures("segments")
def test_a_poll_reads_to_the_upper_end_of_its_range(conn):
    for id in (10 * MILLION - 1, 10 * MILLION, 20 * MILLION, 20 * MILLION + 1):
        write_at(conn, id)
    found = poll(conn, ask(last_id=10 * MILLION - 1), lo=10 * MILLION - 1, hi=20 * MILLION)[1]
    assert found == [10 * MILLION, 20 * MILLION]


@pytest.mark.usefixtures("segments")
@pytest.mark.every_version("plans")
def test_the_plan_of_a_full_poll_has_no_segment_in_it_below_the_ids_that_it_reads(conn, dsn):
    with worker(dsn) as prepared:
        for lo, planned in (
            (5 * MILLION, {"record_1", "record_2", "record_3", "record_4", "record_default"}),
            (10 * MILLION, {"record_2", "record_3", "record_4", "record_default"}),
            (39 * MILLION, {"record_4", "record_default"}),
        ):
            asks = [ask(lo, floor=lo, partition=number) for number in range(256)]
            send = partial(poll, prepared, *asks, lo=lo, hi=lo + 5, swept=plan_sweep(asks, lo + 5))
            assert locked(prepared, send) == planned, lo


@pytest.mark.usefixtures("segments")
def test_a_poll_reads_across_segments_in_id_order(conn):
    ids = [7, 10 * MILLION, 25 * MILLION, 39 * MILLION, 45 * MILLION]
    for id in ids:
        write_at(conn, id)
    assert poll(conn, ask(room=3))[1] == ids[:3]
    assert poll(conn, ask(last_id=ids[2], floor=ids[2], room=3))[1] == ids[3:]


@pytest.mark.usefixtures("segments")
def test_a_poll_scans_the_primary_key_and_a_sweep_the_id_index_without_a_sort(conn, monkeypatch):
    write(conn, 2000)
    conn.execute("set enable_seqscan = off")  # as workers have it
    conn.execute("set enable_bitmapscan = off")
    seen: dict[str, Any] = {}
    fetch = records.fetch
    monkeypatch.setattr(records, "fetch", lambda *args, **planned: seen.update(args[3]) or fetch(*args, **planned))
    asks = [ask(partition=number) for number in range(256)]
    swept = plan_sweep(asks[:128], 5 * MILLION)
    assert swept is not None
    poll(conn, *asks, lo=0, hi=5 * MILLION, swept=swept)
    for analysed in (False, True):
        if analysed:
            conn.execute("analyze partbox.record")
        plan = "\n".join(line for (line,) in conn.execute(b"explain " + load_query("poll", SCHEMA), seen))
        assert plan.count("Index Scan using record_1_pkey") == 2
        assert plan.count("Index Scan using record_1_id_idx") == 1
        assert "Seq Scan" not in plan
        assert "Sort" not in plan


@pytest.mark.usefixtures("segments")
@pytest.mark.every_version("plans")
def test_the_plan_of_a_quick_poll_has_no_segment_in_it_that_the_poll_cannot_need(conn, dsn):
    with worker(dsn) as prepared:
        for settled, open_since, planned in (
            (5 * MILLION, None, {"record_1"}),
            (9 * MILLION - 1, None, {"record_1"}),
            (9 * MILLION, None, {"record_1", "record_2"}),
            (10 * MILLION, None, {"record_2"}),
            (35 * MILLION, 15 * MILLION, {"record_2", "record_3", "record_4"}),
            (39 * MILLION, None, {"record_4", "record_default"}),
        ):
            listed = () if open_since is None else ((1, open_since),)
            page = Page(unseeing(conn), settled, listed)
            send = partial(records.read_new_records, prepared, SCHEMA, page, to_bits(range(256)))
            assert locked(prepared, send) == planned, settled


@pytest.mark.usefixtures("segments")
def test_a_quick_poll_reads_to_the_end_of_the_ids_that_it_may_search(conn):
    page = Page(unseeing(conn), 9 * MILLION + 5)
    ids = [9 * MILLION + 6, 10 * MILLION, page.settled_id + STRETCH]
    for id in ids:
        write_at(conn, id)
    polled = records.read_new_records(conn, SCHEMA, page, to_bits(range(256)))
    assert [row[1] for row in polled.rows] == ids


def locked(conn: Conn, send: Callable[[], Any]) -> set[str]:
    """The segments that are locked when it is sent once more: those in its plan, whatever is ruled out as it begins."""
    send()
    with conn.transaction():
        send()
        held = conn.execute("select relname from pg_locks join pg_class on oid = relation where pid = pg_backend_pid()")
        return {name for (name,) in held if re.fullmatch("record_[0-9]+|record_default", name)}


def unseeing(conn: Conn) -> str:
    """A snapshot that sees nothing that is written from now on."""
    ((snapshot,),) = conn.execute("select pg_current_snapshot()::text").fetchall()
    return snapshot
