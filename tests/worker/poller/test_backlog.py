"""A backlog is read by polls that are worth their cost, while new events elsewhere do not wait."""

from collections.abc import Iterator

import psycopg
import pytest
from rig import Rig

from partbox.protocol.cursor import ReadMode

Conn = psycopg.Connection[tuple[object, ...]]
BEHIND, LIVE = 5, 6
PAGE, WINDOW = 100, 400
FOREVER = 1e9


@pytest.fixture
def rig(dsn: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    """One whose last look is never long ago, unless the test says so."""
    monkeypatch.setattr("partbox.worker.poller.log_poll.LOOK_AGAIN", FOREVER)
    rig = Rig(dsn, (BEHIND,), page=PAGE, window=WINDOW)
    yield rig
    rig.close()


def publish(conn: Conn, count: int, partition: int = BEHIND) -> None:
    conn.execute(
        """insert into partbox.record (partition, event_id, event_type, aggregate_type, aggregate_id, payload)
           select %s, gen_random_uuid(), 'Counted', 'Counter', n::text, '{}'
             from generate_series(1, %s::integer) as n""",
        (partition, count),
    )


def filled(rig: Rig) -> list[int]:
    """Read until no more comes."""
    ids: list[int] = []
    while page := rig.read():
        ids += page
    return ids


def finish(rig: Rig, *ids: int) -> None:
    rig.done(*ids)
    rig.save()


def test_what_saves_make_room_for_is_read_when_it_is_half_a_page(conn: Conn, rig: Rig) -> None:
    publish(conn, 1_000)
    first = filled(rig)
    assert (len(first), rig.reader.waits_for_saves) == (WINDOW, True)
    finish(rig, *first[:40])
    assert (rig.read(), rig.reader.waits_for_saves) == ([], True)
    finish(rig, *first[40:50])
    assert (len(rig.read()), rig.reader.waits_for_saves) == (PAGE // 2, False)


def test_after_a_while_it_is_read_however_little_it_is(conn: Conn, rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(conn, 1_000)
    first = filled(rig)
    finish(rig, first[0])
    assert rig.read() == []
    monkeypatch.setattr("partbox.worker.poller.log_poll.LOOK_AGAIN", 0.0)
    assert len(rig.read()) == 1


def test_where_little_is_left_to_run_it_is_read_however_little_it_is(
    dsn: str, conn: Conn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("partbox.worker.poller.log_poll.LOOK_AGAIN", FOREVER)
    rig = Rig(dsn, (BEHIND,), page=PAGE, window=PAGE // 2 - 1)
    publish(conn, 1_000)
    first = filled(rig)
    finish(rig, first[0])
    assert len(rig.read()) == 1
    rig.close()


@pytest.mark.parametrize("caught_up", [True, False])
def test_a_backlog_that_waits_for_saves_does_not_hold_up_what_is_new_in_other_partitions(
    dsn: str, conn: Conn, monkeypatch: pytest.MonkeyPatch, caught_up: bool
) -> None:
    """Nor in one that is not caught up, though it has no backlog: its last page did not reach the ids drawn."""
    monkeypatch.setattr("partbox.worker.poller.log_poll.LOOK_AGAIN", FOREVER)
    rig = Rig(dsn, (BEHIND, LIVE), page=PAGE, window=WINDOW)
    publish(conn, 1_000)
    first = filled(rig)
    finish(rig, first[0])
    rig.partition(LIVE).cursor.to(ReadMode.CAUGHT_UP if caught_up else ReadMode.BEHIND, None)
    rig.reader.rearrange()
    publish(conn, 1, LIVE)
    assert LIVE in {rig.events[id].partition for id in rig.read()}
    rig.close()


def test_nothing_of_a_backlog_is_left_behind(conn: Conn, rig: Rig) -> None:
    publish(conn, 1_000)
    seen: list[int] = []
    for _ in range(100):
        page = rig.read()
        seen += page
        finish(rig, *page)
    assert seen == [id for (id,) in conn.execute("select id from partbox.record order by id")]
