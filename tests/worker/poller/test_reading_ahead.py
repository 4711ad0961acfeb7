"""The page of a backlog is handed over while the server makes the next one."""

import math
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import Any

import psycopg
import pytest
from psycopg import OperationalError
from rig import Rig, counted_polls, write

from partbox import Outbox
from partbox.db.delivery import records
from partbox.protocol import sweep
from partbox.protocol.cursor import CutPage, ReadMode
from partbox.protocol.horizon import Page
from partbox.worker.poller import full_poll as full_reader
from partbox.worker.poller.full_poll import prefetch

Conn = psycopg.Connection[Any]
NUMBERS = (5, 6, 7, 8)
SHARE = 40


@pytest.fixture
def rig(conn: Conn, rig_with: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch) -> Rig:
    """Its four partitions have more than a window each, and each is read by one page of its own."""
    monkeypatch.setattr(sweep, "LEAST", 2)
    for _ in range(8):  # in turn, so every page brings some of each
        for number in NUMBERS:
            write(conn, SHARE, number)
    rig = rig_with(partitions=NUMBERS, page=4 * SHARE)
    assert len(rig.read()) == 4 * SHARE
    assert len(rig.read()) == 4 * SHARE  # by the first that they share; the next can be a sweep
    return rig


def test_one_step_reads_page_after_page_until_windows_are_full(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    polls = counted_polls(monkeypatch)
    rig.reader.read(rig.conn, lambda: True)
    ids = [event.id for event in rig.waiting.take()]
    assert len(polls) > 1
    assert len(ids) == len(set(ids)) >= 4 * SHARE
    read = sorted(id for number in NUMBERS for id in rig.partition(number).progress.unfinished())
    assert len(read) == 8 * SHARE + len(ids)
    assert set(ids) < set(read)


def test_it_reads_one_page_while_something_else_is_to_be_done(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    polls = counted_polls(monkeypatch)
    rig.reader.read(rig.conn, lambda: False)
    assert len(polls) == 1


def test_a_save_that_makes_room_does_not_end_reading_on_and_a_call_does(dsn: str) -> None:
    outbox = Outbox(dsn)
    outbox.register(print, "*")
    poller = outbox.worker()._worker.poller
    poller._tick_at = math.inf
    poller._wakeup.set()
    assert poller._goes_on()
    poller.wake()
    assert not poller._goes_on()


def test_a_page_is_handed_over_though_the_next_one_fails(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    polls, poll = [], records.poll

    def failing(*args: Any, **kwargs: Any) -> Any:
        polls.append(1)
        if len(polls) == 2:
            raise OperationalError("the server is gone")
        return poll(*args, **kwargs)

    monkeypatch.setattr(records, "poll", failing)
    with pytest.raises(OperationalError, match="the server is gone"):
        rig.reader.read(rig.conn, lambda: True)
    read = sum(rig.partition(number).progress.read_new for number in NUMBERS)
    assert read > 8 * SHARE
    assert len(rig.waiting.take()) == read - 8 * SHARE


def test_what_is_lost_while_the_next_page_is_made_is_neither_handed_over_nor_moved(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = rig.partition(NUMBERS[0])

    def losing(call: Callable[[], Any]) -> AbstractContextManager[Future[Any]]:
        if not lost.lost:  # once: to lose it again would clear its lanes again
            rig.ownership.lose([lost.tenure])
        return prefetch(call)

    monkeypatch.setattr(full_reader, "prefetch", losing)
    rig.reader.read(rig.conn, lambda: True)
    events = rig.waiting.take()
    assert events
    assert lost.number not in {event.partition for event in events}


def test_what_is_read_of_a_partition_that_is_to_be_released_is_in_hand_when_it_may_be(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = rig.partition(NUMBERS[0])
    kept: list[Any] = []
    monkeypatch.setattr(rig.reader._intake, "hand_over", lambda arrived, _: kept.extend(arrived))
    with rig.engine.lock:
        partition.drain()
        page = Page("1:1:", 0)
        partition.cursor.to(ReadMode.CUT, page, CutPage(page, 0))  # its last piece comes
    rig.reader.rearrange()
    rig.reader.read(rig.conn)
    assert partition.cursor.cut is None
    assert partition not in [each.partition for each in kept]


def test_a_call_meanwhile_gives_its_result_or_its_error_after_the_block() -> None:
    with prefetch(lambda: 7) as call:
        pass
    assert call.result() == 7
    with prefetch(lambda: 1 // 0) as call:
        pass
    with pytest.raises(ZeroDivisionError):
        call.result()


def test_the_call_has_ended_when_the_block_has_whatever_becomes_of_it() -> None:
    ended: list[int] = []
    with pytest.raises(KeyError), prefetch(lambda: ended.append(1)):
        raise KeyError
    assert ended == [1]
