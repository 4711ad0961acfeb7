"""Few events are saved together; whatever somebody waits for is saved at once, and wakes the poller."""

from typing import Any
from uuid import uuid4

import pytest
from contexts import context, row

from partbox.codecs import Codecs
from partbox.db.delivery import cursors
from partbox.events import ClaimContext, DeliveredEvent
from partbox.protocol.parking import RowState
from partbox.protocol.rows import OwnedPartition
from partbox.protocol.verdict import Verdict
from partbox.worker.saver import saver
from partbox.worker.saver.saver import FEW_FINISHED, MAX_DELAY, Saver


class Clock:
    now = 1000.0

    def monotonic(self) -> float:
        return self.now


class Saving:
    """A saver without its thread, and the clock that it sees."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        worker = context()
        self.engine, self.wakeup, self.saver = worker.engine, worker.wakeup, Saver(worker)
        self.engine.claims.adopt([OwnedPartition(5, 1, "1:1:", 0, 0, 0, None)], 0.0)
        self.partition = self.engine.partitions[5]
        self.clock = Clock()
        self.sent: list[int] = []
        monkeypatch.setattr(saver, "time", self.clock)
        monkeypatch.setattr(cursors, "save", self._save)
        self.saver._conn, self.saver._me = object(), uuid4()  # type: ignore[assignment]
        self.saver._saved_at = self.clock.now

    def _save(self, conn: Any, schema: str, subscription: str, me: Any, savings: Any, *_: Any) -> Any:
        self.sent.append(len(savings))
        return {each.partition for each in savings}, 0.001

    def done(self, count: int) -> None:
        """So many new events have come and are done."""
        with self.engine.lock:
            progress = self.partition.progress
            ids = [progress.read_count + n + 1 for n in range(count)]
            progress.take_page(progress.page, [], ids)
            self.partition.finish_rows([(0, id, b"e" * 16) for id in ids])
            self.engine.mark_dirty(self.partition)

    def saves(self) -> bool:
        """True if one step saves."""
        before = len(self.sent)
        self.saver._save_once()
        return len(self.sent) > before


@pytest.fixture
def saving(monkeypatch: pytest.MonkeyPatch) -> Saving:
    return Saving(monkeypatch)


def test_few_finished_events_wait_briefly_for_more_before_they_are_saved(saving: Saving) -> None:
    saving.done(3)
    assert not saving.saves()
    saving.clock.now += MAX_DELAY + 0.001
    assert saving.saves()


def test_the_first_finished_events_after_a_while_are_saved_at_once(saving: Saving) -> None:
    saving.clock.now += 10
    saving.done(1)
    assert saving.saves()


def test_many_finished_events_are_saved_at_once(saving: Saving) -> None:
    saving.done(FEW_FINISHED)
    assert saving.saves()


def test_no_save_waits_while_there_is_a_backlog(saving: Saving) -> None:
    """It is a save that makes room for more."""
    saving.done(1)
    assert not saving.saves()
    saving.engine.has_backlog = True
    assert saving.saves()
    assert (saving.wakeup.is_set(), saving.wakeup.was_interrupted) == (True, False), "it reads on as it was"


def test_a_parked_event_is_saved_at_once_and_wakes_the_poller(saving: Saving) -> None:
    event = DeliveredEvent(row(7), ClaimContext(1, "default", Codecs()))
    with saving.engine.lock:
        saving.partition.progress.take_page(saving.partition.progress.page, [], [7])
        saving.partition.parked.park(event, Verdict(RowState.RETRYING, 1, 5.0, True, "no"))
        saving.engine.mark_dirty(saving.partition)
    assert not saving.wakeup.is_set()
    assert saving.saves()
    assert (saving.wakeup.is_set(), saving.wakeup.was_interrupted) == (True, True)


def test_a_release_is_saved_at_once_and_wakes_the_poller(saving: Saving) -> None:
    saving.done(1)
    with saving.engine.lock:
        saving.partition.drain()
    assert saving.saves()
    assert (saving.wakeup.is_set(), saving.wakeup.was_interrupted) == (True, True)


def test_a_save_that_nobody_waits_for_wakes_nobody(saving: Saving) -> None:
    saving.done(FEW_FINISHED)
    assert saving.saves()
    assert not saving.wakeup.is_set()
