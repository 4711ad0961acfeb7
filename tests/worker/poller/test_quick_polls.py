"""Quick polls: what is unread of partitions that are caught up is found by one scan, and nothing else moves."""

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from rig import PARTITION, Rig, counted_polls, saved_cursor, transaction, write

from partbox.db.delivery import records
from partbox.protocol import cursor as cursor_rules
from partbox.protocol.bell import Seen
from partbox.worker.poller import log_poll as log_reader

pytestmark = pytest.mark.every_version("what a snapshot sees, and what a crash takes back")

Conn = psycopg.Connection[Any]
OTHER = PARTITION + 1
BOTH = (PARTITION, OTHER)


def caught_up(rig: Rig) -> Rig:
    """The rig, when all of its partitions are caught up and nothing is unread."""
    rig.read_all(5)
    assert all(partition.cursor.caught_up for partition in rig.engine.partitions.values())
    return rig


def test_new_and_late_records_of_all_partitions_come_with_one_quick_poll(
    dsn: str, conn: Conn, rig_with: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = caught_up(rig_with(partitions=BOTH))
    with transaction(dsn) as late:
        write(late)
        write(conn, 2)
        write(conn, 1, OTHER)
        assert rig.read() == [2, 3, 4]
        late.commit()
    write(conn, 1, OTHER)
    polls = counted_polls(monkeypatch)
    assert rig.read() == [1, 5]
    assert rig.read_all(3) == []
    assert polls == [], "in full"


def test_a_tick_tells_whether_there_is_anything_to_read(
    dsn: str, conn: Conn, rig_with: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = caught_up(rig_with())
    polls: list[object] = []
    quick = records.quick
    monkeypatch.setattr(records, "quick", lambda *arguments: (polls.append(arguments), quick(*arguments))[1])

    def found() -> list[int]:
        rig.tick()
        return rig.read()

    assert found() == []
    assert polls == []
    with transaction(dsn) as late:
        write(late)
        write(conn)
        assert found() == [2]
        assert found() == []
        assert len(polls) == 1, "of those that are open none has ended"
        late.commit()
    assert found() == [1]
    assert found() == []
    assert len(polls) <= 3, "the last step to settled may be one more"
    assert rig.reader.seen == Seen(2, True, 0)


def test_of_other_partitions_nothing_is_read(conn: Conn, rig_with: Callable[..., Rig]) -> None:
    rig = caught_up(rig_with())
    write(conn, 3, OTHER)
    write(conn, 1)
    assert rig.read_all(3) == [4]


def test_what_is_drawn_and_committed_while_the_statement_waits_to_begin_is_read(
    conn: Conn, rig_with: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ceiling is that of the statement. One that was known when it was sent lies below what its snapshot sees."""
    rig = caught_up(rig_with())
    quick = records.quick

    def publish_and_poll(*args: Any) -> Any:
        write(conn)
        return quick(*args)

    write(conn)
    monkeypatch.setattr(records, "quick", publish_and_poll)
    assert rig.read() == [1, 2]
    assert rig.read() == [3]


def test_after_a_page_whose_ceiling_lay_below_the_ids_drawn_a_partition_is_not_caught_up(
    conn: Conn, rig_with: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = rig_with()
    rig.read()  # alone
    poll = records.poll

    def publish_and_poll(*args: Any, **kwargs: Any) -> Any:
        monkeypatch.setattr(records, "poll", poll)
        write(conn)
        return poll(*args, **kwargs)

    write(conn)
    monkeypatch.setattr(records, "poll", publish_and_poll)
    assert rig.read() == [1]
    assert not rig.partition().cursor.caught_up
    assert rig.read_all(5) == [2]
    assert rig.partition().cursor.caught_up


@pytest.mark.parametrize("window", [2, 3])
def test_a_partition_that_has_read_as_much_as_it_had_room_for_is_not_caught_up(
    conn: Conn, rig_with: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch, window: int
) -> None:
    """Also one that had no room at all: it may have more, which its snapshot sees, so no quick poll would find it."""
    rig = caught_up(rig_with(partitions=BOTH, window=window))
    write(conn, 5)
    assert rig.read_all(4) == list(range(1, window + 1))
    write(conn, 1, OTHER)
    assert rig.read() == [6], "the others go on"
    while rig.events:
        rig.done(*rig.events)
        rig.save()
        monkeypatch.setattr(log_reader, "LOOK_AGAIN", -1.0)
        seen = rig.read_all(4)
    assert seen == []
    assert rig.partition().progress.last_id >= 5


def test_a_partition_that_joins_is_read_from_its_own_page_first(conn: Conn, rig_with: Callable[..., Rig]) -> None:
    """The shared page saw what the joining one has never read."""
    before = rig_with(partitions=BOTH)
    assert before.read_all() == []
    before.save()
    rig = caught_up(rig_with())
    write(conn, 2, OTHER)
    write(conn, 1)
    assert rig.read_all(3) == [3]
    rig.conn.execute("update partbox.partition set assignee = %s where partition = %s", [rig.me, OTHER])
    rig.ownership.tick(rig.conn)
    write(conn, 1)
    assert sorted(rig.read_all(6)) == [1, 2, 4]
    assert rig.partition(OTHER).cursor.caught_up


def test_a_quick_poll_of_more_than_its_limit_moves_nothing(
    conn: Conn, rig_with: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cursor_rules, "CAP", 3)
    rig = caught_up(rig_with(partitions=BOTH))
    write(conn, 3)
    write(conn, 3, OTHER)
    polls = counted_polls(monkeypatch)
    assert sorted(rig.read()) == [1, 2, 3, 4, 5, 6]
    assert polls == [1], "in full"


def test_too_long_a_range_of_ids_is_searched_in_full(
    conn: Conn, rig_with: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cursor_rules, "STRETCH", 10)
    rig = caught_up(rig_with())
    conn.execute("select setval('partbox.record_id_seq', 100)")
    write(conn)
    polls = counted_polls(monkeypatch)
    assert rig.read_all(15) == [101]
    assert polls


def test_a_floor_claimed_after_the_shared_page_bounds_no_search_from_it(
    dsn: str, conn: Conn, rig_with: Callable[..., Rig]
) -> None:
    """The floor of another partition holds for what is open after the claim, not for what the page did not see."""
    rig = caught_up(rig_with())
    with transaction(dsn) as late:
        write(late)  # 1, unseen by the shared page
        write(conn, 50, OTHER)
        assert rig.read() == []
        late.commit()
        rig.reader.claimed(40)
    assert rig.read_all(3) == [1]


def test_late_records_of_a_quick_page_are_late_for_what_is_saved(
    dsn: str, conn: Conn, rig_with: Callable[..., Rig]
) -> None:
    """As new ones they would be passed by a cursor whose snapshot does not see them, before their handler is done."""
    rig = caught_up(rig_with())
    with transaction(dsn) as late:
        write(late)
        write(conn, 2)
        assert rig.read() == [2, 3]
        late.commit()
    assert rig.read() == [1]
    rig.done(2, 3)
    rig.save()
    heir = rig_with()
    assert heir.read_all(5) == [1]


def test_a_release_saves_the_page_that_its_partition_took_part_in(
    dsn: str, conn: Conn, rig_with: Callable[..., Rig]
) -> None:
    """While it drains the others move on; what they have seen of it nobody has read."""
    rig = caught_up(rig_with(partitions=BOTH))
    write(conn, 1)
    assert rig.read() == [1]
    before = rig.partition().progress.page
    rig.done(1)
    rig.partition().drain()
    rig.reader.rearrange()
    write(conn, 1)
    write(conn, 1, OTHER)
    log_reader_follows(rig)
    assert rig.read_all(3) == [3]
    log_reader_follows(rig)
    rig.save()
    assert saved_cursor(conn)[0] == before.snapshot
    assert rig_with().read_all(5) == [2]


def test_a_partition_that_is_behind_keeps_its_page_while_the_others_move_on(
    dsn: str, conn: Conn, rig_with: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records of it that their page sees, and its own did not, are late for it."""
    rig = caught_up(rig_with(partitions=BOTH, window=2))
    with transaction(dsn) as late:
        write(late)
        write(conn, 4)
        assert rig.read_all(4) == [2, 3]
        late.commit()
    monkeypatch.setattr(log_reader, "LOOK_AGAIN", 3_600.0)  # it is not time for those that are behind
    polls = counted_polls(monkeypatch)
    write(conn, 1, OTHER)
    assert rig.read() == [6]
    assert polls == [], "the others were read in full"
    monkeypatch.setattr(log_reader, "LOOK_AGAIN", -1.0)
    assert rig.read_all(4) == [1]


def test_a_partition_of_which_nothing_comes_follows_the_others(conn: Conn, rig_with: Callable[..., Rig]) -> None:
    """Its cursor would hold back purge and pruning for ever."""
    rig = caught_up(rig_with(partitions=BOTH))
    write(conn, 20, OTHER)
    rig.read()
    log_reader_follows(rig)
    rig.read()
    rig.save()
    assert saved_cursor(conn)[1] == 20


def test_a_quick_poll_is_one_plain_statement_and_draws_no_transaction_id(
    conn: Conn, rig_with: Callable[..., Rig]
) -> None:
    rig = caught_up(rig_with())
    before = conn.execute("select age('3'::xid)").fetchone()
    assert rig.read_all(5) == []
    assert conn.execute("select age('3'::xid)").fetchone() == before


def test_what_a_draining_partition_has_is_left_alone(conn: Conn, rig_with: Callable[..., Rig]) -> None:
    rig = caught_up(rig_with(partitions=BOTH))
    rig.partition().drain()
    write(conn, 1)
    write(conn, 1, OTHER)
    assert rig.read_all(4) == [2]


def log_reader_follows(rig: Rig) -> None:
    """It is time for those of which nothing comes to move to the page where the others are."""
    rig.reader._followed_at = -log_reader.FOLLOW
