"""A cursor that only moved with the horizon holds back purge: it is saved by the clock, however busy others are."""

from itertools import count

from partbox import partition_of
from partbox.worker import saver

BUSY, IDLE = "busy", "idle"


def test_the_cursor_of_an_idle_partition_is_saved_while_another_is_busy(desk, monkeypatch):
    monkeypatch.setattr(saver, "IDLE_ADVANCE", 0.2)
    monkeypatch.setattr(saver, "TICK", 5.0)  # within it the busy one always has something to save
    desk.outbox.register(desk.note, "Counted")
    numbers = count(1)

    def idle_one_passes() -> bool:
        desk.publish(BUSY, next(numbers))
        where = [partition_of(IDLE)]
        row = desk.conn.execute("select last_id from partbox.partition where partition = %s", where).fetchone()
        return row[0] > 5

    with desk.outbox.worker():
        desk.eventually(idle_one_passes)
