"""Saves: their division into calls, and their fence."""

import threading
from typing import Any

import psycopg
import pytest
from desk import Desk
from waiting import eventually

from partbox import Dead
from partbox.db.connect import connect
from partbox.db.delivery import cursors, instances
from partbox.protocol.rows import CursorSave, ParkedSave
from partbox.worker.saver import saver

Conn = psycopg.Connection[Any]

SCHEMA, DEFAULT, PARTITION = "partbox", "default", 5
KEYS = [f"k{number}" for number in range(60)]
MOST = 20


class Calls:
    """The calls of `save` from now on, as (partitions, parked rows); those of `failing` fail on a live connection."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *failing: int) -> None:
        self.sizes: list[tuple[int, int]] = []
        self._failing = failing
        self._save = cursors.save
        monkeypatch.setattr(cursors, "save", self._saving)
        monkeypatch.setattr(saver, "MAX_ROWS", MOST)

    def _saving(self, conn, schema, subscription, me, savings, parks=(), done_ids=(), **more):
        rows = [each for each in parks if isinstance(each, ParkedSave)]
        self.sizes.append((len(savings), len(rows) + len(done_ids)))
        if len(self.sizes) in self._failing:
            raise psycopg.errors.QueryCanceled("canceling statement due to statement timeout")
        return self._save(conn, schema, subscription, me, savings, parks, done_ids, **more)


def publish(desk: Desk) -> None:
    """Three events of each key, in one transaction."""
    with desk.conn.transaction():
        for key in KEYS:
            desk.publish(key, 1, 2, 3)


@pytest.mark.parametrize("failing", [(), (2,), (3, 4)], ids=["none fails", "one fails", "two fail"])
def test_events_that_an_outage_parks_at_once_are_written_by_several_calls(desk, monkeypatch, failing):
    calls = Calls(monkeypatch, *failing)
    desk.outbox.register(lambda event: desk.note(event) or Dead("the downstream is gone"), "Counted")
    publish(desk)
    with desk.outbox.worker():
        desk.eventually(lambda: len(desk.parked()) == 3 * len(KEYS))
    assert all(rows <= MOST or partitions == 1 for partitions, rows in calls.sizes)
    assert sum(rows for _, rows in calls.sizes) >= 3 * len(KEYS) > 5 * MOST
    assert {state for _, state, _, _ in desk.parked()} == {"dead"}
    assert all(desk.numbers(key) == [1, 2, 3] for key in KEYS)


def test_a_partition_lost_in_one_call_does_not_keep_its_neighbours_and_later_calls_from_saving(desk, monkeypatch):
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


# A park is fenced by locking the partition row; looking at it is no fence.
@pytest.mark.every_version("what a lock waits for, and what it sees then")
def test_a_park_that_meets_a_takeover_waits_for_it_and_is_not_written(dsn: str, conn: Conn) -> None:
    about = {"subscription": DEFAULT, "node": "n", "hostname": "h", "version": "0", "lease": 60.0}
    me = instances.register_instances(conn, SCHEMA, pids=[1], **about)[1]  # type: ignore[arg-type]
    conn.execute("update partbox.partition set owner = %s, epoch = 7 where partition = %s", [me, PARTITION])
    saving = CursorSave(PARTITION, 7, None, None, None, False)
    park = ParkedSave(PARTITION, 1, "A", "a", "E", "held", blocks=True, attempts=0)
    answers: list[set[int]] = []

    def save() -> None:
        with connect(dsn, lease=60) as mine:
            answers.append(cursors.save(mine, SCHEMA, DEFAULT, me, [saving], [park])[0])

    thread = threading.Thread(target=save)
    with psycopg.connect(dsn) as heir:
        instances.bury_instances(heir, SCHEMA, [me], known_dead=True)
        thread.start()
        eventually(
            lambda: conn.execute(
                "select true from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
            ).fetchone()
        )
        assert not answers
        heir.commit()
    thread.join()
    assert answers == [set()]
    assert conn.execute("select count(*) from partbox.parked").fetchone() == (0,)
