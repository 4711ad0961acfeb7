"""Late records, and what lies below the floor: all of it is read, by this owner or by the next."""

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from rig import PARTITION, Rig, saved_cursor, transaction, write

from partbox.db.delivery import records
from partbox.protocol import cursor as cursor_rules
from partbox.protocol.cursor import STRETCH
from partbox.worker.poller import log_poll as log_reader

pytestmark = pytest.mark.every_version("what a snapshot sees, and what a crash takes back")

Conn = psycopg.Connection[Any]
OTHER = PARTITION + 1


# What is below the floor will not become visible any more, which does not mean that it was read. Polls are planned for
# whole stretches of ids, so the backlog begins in another one than the floor lies in.
def test_an_unread_backlog_below_the_floor_is_read(conn: Conn, rig_with: Callable[..., Rig]) -> None:
    write(conn, 20)
    conn.execute("select setval('partbox.record_id_seq', %s)", [end := 2 * STRETCH])
    write(conn, 80)
    rig = rig_with(window=10)
    page = rig.read()
    assert page == list(range(1, 11))
    rig.done(*page)
    rig.save()
    _, last_id, floor = saved_cursor(conn)
    assert (last_id, floor) == (10, end + 80)
    pending = conn.execute("select count(*) from partbox.record_status where status = 'pending'").fetchone()
    assert pending == (90,)

    heir, seen = rig_with(window=10), []
    while page := heir.read_all(3):
        heir.done(*page)
        heir.save()
        seen += page
    assert seen == [*range(11, 21), *range(end + 1, end + 81)]


# The room of a page limits its new records only; a late one left out would count as consumed.
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


# A partition without room moves to the new snapshot with the others: it must have read what came late.
def test_a_full_window_does_not_lose_late_records(
    dsn: str, conn: Conn, rig_with: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_reader, "LOOK_AGAIN", -1.0)
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


# Snapshot and floor that are saved belong to the saved page, not to the newest poll.
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
    snapshot, last_id, floor = saved_cursor(conn)
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
        assert saved_cursor(conn)[1:] == (3, 0)
        late.commit()
    assert rig_with().read_all() == [1]
