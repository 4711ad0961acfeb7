"""The one transaction in hand, as the engine knows it: its stages, and who ends what."""

from typing import Any
from uuid import uuid4

import pytest
from contexts import row

from partbox.codecs import Codecs
from partbox.events import ClaimContext, DeliveredEvent
from partbox.protocol.progress import Page
from partbox.protocol.rows import OwnedPartition
from partbox.worker.engine.claims import ParkedIndex
from partbox.worker.engine.engine import Engine
from partbox.worker.engine.transactions import CalledOffError, OpenTransaction, RunOutcome, Stage

EVENTS = 3


class Effects:
    """An engine with some transactional events of one key, and a connection for them."""

    def __init__(self) -> None:
        self.engine = Engine(1)
        self.transactions = self.engine.transactions
        self.transactions.is_transactional = lambda event: True
        self.engine.claims.adopt([OwnedPartition(5, 1, "1:1:", 0, 0, 0, None)], 0.0)
        self.engine.claims.finish_loading(self.engine.claims.begin_loading([5]), ParkedIndex([], {}, []), {5: 0}, 0.0)
        self.partition = self.engine.partitions[5]
        claim = ClaimContext(1, "default", Codecs())
        with self.engine.lock:
            self.partition.progress.take_page(Page("1:1:", 0), [], [*range(1, EVENTS + 1)])
            self.lane = self.partition.ensure_lane(("Key", "k"))
            self.lane.queue.extend(DeliveredEvent(row(id), claim) for id in range(1, EVENTS + 1))
            self.lane.is_active = True
            self.transactions.queue_lane(self.lane)
        self.conn = object()
        self.transactions.set_connection(self.conn, uuid4())

    def run(self, events: int = EVENTS) -> OpenTransaction:
        """A transaction in which so many events have run."""
        opened = self.transactions.begin()
        assert opened is not None
        for _ in range(events):
            picked = self.transactions.start_next(opened, 0.0)
            assert picked is not None
            self.transactions.note_run_outcome(opened, RunOutcome(*picked, None))
        return opened


@pytest.fixture
def effects() -> Effects:
    return Effects()


def test_a_transaction_saves_what_has_run_and_gives_its_partition_back_to_the_saver(effects: Effects) -> None:
    opened = effects.run()
    assert effects.partition.in_transaction
    saves = effects.transactions.record_outcomes(opened, 0.0)
    assert [save.build_cursor_save().last_id for save in saves] == [EVENTS]
    effects.transactions.note_saved(opened)
    effects.transactions.note_committed(opened, saves, 1.0)
    assert effects.transactions.end(opened) is None
    assert (effects.partition.in_transaction, effects.lane.is_running, opened.stage) == (False, False, Stage.OVER)
    assert effects.partition.last_save.last_id == EVENTS


def test_a_transaction_whose_connection_is_lost_while_handlers_run_does_not_commit(effects: Effects) -> None:
    opened = effects.run(1)
    assert not effects.transactions.suspend(), "nobody waits for a handler"
    assert effects.transactions.start_next(opened, 0.0) is None
    with pytest.raises(CalledOffError, match="a connection was lost"):
        effects.transactions.record_outcomes(opened, 0.0)
    assert effects.transactions.note_failed(opened) is Stage.CONDEMNED
    assert effects.lane.is_running, "until all is read anew"
    effects.transactions.set_connection(object(), uuid4())
    assert not effects.lane.is_running


def test_a_transaction_that_fails_after_all_was_read_anew_ends_its_lanes_itself(effects: Effects) -> None:
    opened = effects.run(1)
    effects.transactions.suspend()
    effects.transactions.set_connection(object(), uuid4())
    assert effects.lane.is_running
    assert effects.transactions.note_failed(opened) is Stage.CONDEMNED
    assert not effects.lane.is_running


@pytest.mark.parametrize("stage", [Stage.ENDING, Stage.SAVED])
def test_a_transaction_that_is_about_to_commit_is_awaited_and_has_done_nothing_if_it_fails(
    effects: Effects, stage: Stage
) -> None:
    opened = effects.run()
    effects.transactions.record_outcomes(opened, 0.0)
    if stage is Stage.SAVED:
        effects.transactions.note_saved(opened)
    assert effects.transactions.suspend()
    assert effects.partition.progress.has_finished(1)
    assert effects.transactions.note_failed(opened) is Stage.CONDEMNED, "whoever waits goes on by itself"
    assert not effects.partition.progress.has_finished(1)


def test_no_transaction_begins_after_a_failure_until_all_is_read_anew(effects: Effects) -> None:
    opened = effects.run(1)
    effects.transactions.record_outcomes(opened, 0.0)
    assert effects.transactions.note_failed(opened) is Stage.ENDING
    effects.transactions.end(opened)
    assert effects.transactions.begin() is None
    assert not effects.transactions.has_waiting
    effects.transactions.set_connection(effects.conn, uuid4())
    assert effects.transactions.begin() is not None


@pytest.mark.parametrize("how", ["lost", "read anew"])
def test_nothing_is_noted_for_a_partition_that_was_lost_or_read_anew(effects: Effects, how: str) -> None:
    opened = effects.run()
    if how == "lost":
        effects.engine.claims.lose([effects.partition.tenure])
    else:
        effects.engine.claims.replace_owned([OwnedPartition(5, 2, "1:1:", 0, 0, 0, None)], 1.0)
    with pytest.raises(CalledOffError, match="partition 5 was lost"):
        effects.transactions.record_outcomes(opened, 0.0)
    assert opened.stage is Stage.RUNNING


def test_a_connection_that_is_in_use_is_closed_when_the_transaction_ends(effects: Effects) -> None:
    opened = effects.run(1)
    other: Any = object()
    assert not effects.transactions.defer_close(other)
    assert effects.transactions.defer_close(effects.conn)
    assert effects.transactions.end(opened) is effects.conn
    assert not effects.transactions.defer_close(effects.conn)


def test_no_stage_is_left_out_or_taken_back(effects: Effects) -> None:
    opened = effects.run(1)
    with pytest.raises(AssertionError, match="SAVED"):
        effects.transactions.note_saved(opened)
    effects.transactions.end(opened)
    with pytest.raises(AssertionError, match="OVER"):
        effects.transactions.record_outcomes(opened, 0.0)


def test_a_transaction_has_events_of_one_kind_and_the_next_one_those_of_the_other(effects: Effects) -> None:
    """Events 1 and 3 are of one kind, 2 of another: they run in their order, in three transactions."""
    effects.transactions.kind_of = lambda event: event.id % 2
    ran = []
    for number in range(EVENTS):
        transaction = effects.transactions.begin()
        assert transaction is not None
        picked = effects.transactions.start_next(transaction, 1.0)
        assert picked is not None
        lane, event = picked
        ran.append(event.id)
        effects.transactions.note_run_outcome(transaction, RunOutcome(lane, event, None))
        assert effects.transactions.start_next(transaction, 1.0) is None
        assert transaction.kind == (number + 1) % 2
        saves = effects.transactions.record_outcomes(transaction, 0.0)
        effects.transactions.note_saved(transaction)
        effects.transactions.note_committed(transaction, saves, 2.0)
        effects.transactions.end(transaction)
    assert ran == [1, 2, 3]


def test_an_event_that_was_undone_is_the_first_of_the_next_transaction(effects: Effects) -> None:
    """What has run before it is saved without it, and what follows it in its partition is not picked."""
    opened = effects.run(1)
    picked = effects.transactions.start_next(opened, 0.0)
    assert picked is not None
    lane, event = picked
    assert effects.transactions.note_undone(opened, lane, event)
    effects.engine.outcomes.put_back(lane, event)
    assert effects.transactions.start_next(opened, 0.0) is None
    saves = effects.transactions.record_outcomes(opened, 0.0)
    assert [save.build_cursor_save().last_id for save in saves] == [1]
    effects.transactions.note_saved(opened)
    effects.transactions.note_committed(opened, saves, 1.0)
    effects.transactions.end(opened)
    assert not effects.partition.in_transaction
    following = effects.run(EVENTS - 1)
    assert [judged.event.id for judged in following.run_outcomes] == [2, 3]


def test_an_event_that_was_parked_while_it_ran_is_not_put_back(effects: Effects) -> None:
    opened = effects.run(0)
    picked = effects.transactions.start_next(opened, 0.0)
    assert picked is not None
    lane, event = picked
    with effects.engine.lock:
        effects.engine.scheduler.evict_slow([effects.partition], 10.0)
    assert lane.parked_running is event
    assert not effects.transactions.note_undone(opened, lane, event)
