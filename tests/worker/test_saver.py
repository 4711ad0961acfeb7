"""What is saved by one call, and what by the next."""

import psycopg
import pytest
from desk import Desk

from partbox import Dead
from partbox.db import cursors
from partbox.worker.saving import saver

KEYS = [f"k{number}" for number in range(60)]
MOST = 20


class Calls:
    """The calls of `save` from now on, as (partitions, parked rows); those of `failing` fail on a live connection."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *failing: int) -> None:
        self.sizes: list[tuple[int, int]] = []
        self._failing = failing
        self._save = cursors.save
        monkeypatch.setattr(cursors, "save", self._saving)
        monkeypatch.setattr(saver, "MOST_ROWS", MOST)

    def _saving(self, conn, schema, subscription, me, savings, parks=(), done_ids=(), **more):
        self.sizes.append((len(savings), len(parks) + len(done_ids)))
        if len(self.sizes) in self._failing:
            raise psycopg.errors.QueryCanceled("canceling statement due to statement timeout")
        return self._save(conn, schema, subscription, me, savings, parks, done_ids, **more)


def publish(desk: Desk) -> None:
    """Three events of each key, in one transaction."""
    with desk.conn.transaction():
        for key in KEYS:
            desk.publish(key, 1, 2, 3)


@pytest.mark.parametrize("failing", [(), (2,), (3, 4)], ids=["none fails", "one fails", "two fail"])
def test_what_an_outage_parks_at_once_is_written_by_one_call_after_the_other(desk, monkeypatch, failing):
    calls = Calls(monkeypatch, *failing)
    desk.outbox.register(lambda event: desk.note(event) or Dead("the downstream is gone"), "Counted")
    publish(desk)
    with desk.outbox.worker():
        desk.eventually(lambda: len(desk.parked()) == 3 * len(KEYS))
    assert all(rows <= MOST or partitions == 1 for partitions, rows in calls.sizes)
    assert sum(rows for _, rows in calls.sizes) >= 3 * len(KEYS) > 5 * MOST
    assert {state for _, state, _, _ in desk.parked()} == {"dead"}
    assert all(desk.numbers(key) == [1, 2, 3] for key in KEYS)


def test_a_partition_that_is_lost_in_one_call_leaves_its_neighbours_and_the_next_calls_to_be_saved(desk, monkeypatch):
    calls = Calls(monkeypatch)
    desk.outbox.register(lambda event: desk.note(event) or Dead("the downstream is gone"), "Counted")
    publish(desk)
    taken: list[int] = []
    save = calls._save

    def saving(conn, schema, subscription, me, savings, *rest, **more):
        if len(savings) > 1 and rest[0] and not taken:
            taken.append(savings[0].partition)
            desk.conn.execute("update partbox.partition set owner = null where partition = %s", taken)
        return save(conn, schema, subscription, me, savings, *rest, **more)

    calls._save = saving
    with desk.outbox.worker():
        desk.eventually(lambda: len(desk.parked()) == 3 * len(KEYS))
    assert taken
    assert {state for _, state, _, _ in desk.parked()} == {"dead"}
