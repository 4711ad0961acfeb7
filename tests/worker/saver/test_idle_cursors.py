"""A cursor that only moved with the horizon holds back purge: it is saved by the clock, however busy others are."""

import threading
from itertools import count

from partbox import partition_of
from partbox.worker.saver import saver

BUSY, IDLE = "busy", "idle"


def test_the_cursor_of_an_idle_partition_is_saved_while_another_is_busy(desk, monkeypatch):
    monkeypatch.setattr(saver, "IDLE_ADVANCE", 0.2)
    monkeypatch.setattr(saver, "TICK_INTERVAL", 5.0)  # within it the busy one always has something to save
    desk.outbox.register(desk.note, "Counted")
    numbers = count(1)

    def idle_one_passes() -> bool:
        desk.publish(BUSY, next(numbers))
        where = [partition_of(IDLE)]
        row = desk.conn.execute("select last_id from partbox.partition where partition = %s", where).fetchone()
        return row[0] > 5

    with desk.outbox.worker():
        desk.eventually(idle_one_passes)


def test_an_idle_save_of_a_partition_where_nothing_ends_does_not_count_as_progress(desk, monkeypatch):
    """Doctor takes `saved_at` for the time since which nothing became of the partition's records."""
    monkeypatch.setattr(saver, "IDLE_ADVANCE", 0.05)
    monkeypatch.setattr(saver, "ADVANCE_INTERVAL", 0.02)
    started, gate = threading.Event(), threading.Event()

    def hangs(event) -> None:
        started.set()
        assert gate.wait(120)

    desk.outbox.register(hangs, "Slow")
    desk.outbox.register(desk.note, "Counted")
    desk.publish(IDLE, 1, event_type="Slow")
    numbers = count(1)

    def row() -> tuple[object, ...]:
        where = [partition_of(IDLE)]
        query = "select saved_at, snapshot::text, last_id from partbox.partition where partition = %s"
        return desk.conn.execute(query, where).fetchone()

    def saved_since(before) -> bool:
        desk.publish(BUSY, next(numbers))
        return row()[1] != before[1]

    with desk.outbox.worker(concurrency=2):
        assert started.wait(120)
        stands = row()
        desk.eventually(lambda: saved_since(stands))  # its snapshot moves, with what others publish
        again = row()
        desk.eventually(lambda: saved_since(again))
        assert row()[0] == again[0] == stands[0]
        gate.set()
        desk.eventually(lambda: row()[0] != stands[0] and row()[2] > stands[2])
