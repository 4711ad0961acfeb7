"""Rows of earlier owners that wait for a turn: a few of each group come first, and show for whom the others wait."""

import pytest

from partbox.protocol.parking import RowStage
from partbox.protocol.rows import LooseRows, OwnedPartition, StoredRow
from partbox.worker.engine.claims import ParkedIndex
from partbox.worker.engine.engine import Engine
from partbox.worker.engine.evicted_rows import FIRST_ROWS, GROUP_SECONDS

MINE, OTHER = "it waits for its turn: its handler a has a limit", "it waits for its turn: its handler b has a limit"


@pytest.fixture
def engine():
    """An engine that has just claimed a partition with 100 waiting rows under one limit and 3 under another."""
    engine = Engine(2)
    engine.claims.adopt([OwnedPartition(5, 1, "1:1:", 200, 200, 0, None)], 0.0)
    rows = [
        StoredRow(5, id, "Key", f"k{id}", "deferred", 0, 0.0, False, MINE if id <= 100 else OTHER, True)
        for id in range(1, 104)
    ]
    loading = engine.claims.begin_loading([5])
    engine.claims.finish_loading(loading, ParkedIndex(rows, {5: LooseRows()}, ()), {5: 1}, 0.0)
    return engine


def take(engine, now):
    return [each.row.id for each in engine.stored_waits.take(now)]


def start(engine, ids):
    """The events of these rows are done, and the rows are gone."""
    for id in ids:
        del engine.partitions[5].parked.chains["Key", f"k{id}"]


def test_after_a_claim_a_few_rows_of_each_group_come_and_no_other_wakes(engine):
    assert engine.find_next_wakeup() is None
    assert take(engine, 0.0) == [*range(1, FIRST_ROWS + 1), 101, 102, 103]
    assert take(engine, 0.5) == []


def test_more_of_a_group_come_when_the_first_have_started(engine):
    first = take(engine, 0.0)
    start(engine, first)
    assert take(engine, 0.1) == [*range(FIRST_ROWS + 1, 3 * FIRST_ROWS + 1)]


def test_more_of_a_group_come_after_a_while_if_it_is_not_known_for_which_limit_they_wait(engine):
    take(engine, 0.0)
    assert take(engine, GROUP_SECONDS + 0.1) == [*range(FIRST_ROWS + 1, 2 * FIRST_ROWS + 1)]


def test_the_others_of_a_group_follow_a_row_whose_limit_is_known(engine):
    take(engine, 0.0)
    rows = engine.partitions[5].parked.chains["Key", "k3"].rows
    followers = [each.row.id for each in engine.stored_waits.take_followers(rows[0])]
    assert followers == [*range(FIRST_ROWS + 1, 101)]
    assert take(engine, 5.0) == []


def test_rows_that_no_longer_wait_are_left_out(engine):
    start(engine, [1])
    engine.partitions[5].parked.chains["Key", "k2"].rows[0].stage = RowStage.LOADED
    assert take(engine, 0.0)[:2] == [3, 4]
    engine.claims.lose([engine.partitions[5].tenure])
    assert take(engine, 5.0) == []
    assert not engine.stored_waits


def test_all_rows_come_when_no_limit_is_in_force(engine):
    engine.limits.give_permits(0.0)
    assert not engine.stored_waits
    assert engine.find_next_wakeup() == 0.0
