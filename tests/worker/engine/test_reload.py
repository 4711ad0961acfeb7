"""A command raises parked_version, and the owner reads its parked rows again while its own saves go on committing."""

import threading

import pytest

from partbox import Dead
from partbox.protocol.hashing import partition_of
from partbox.worker.engine.parked_rows import ParkedRows
from partbox.worker.ownership import ownership

OTHER = next(name for name in map(str, range(10_000)) if partition_of(name) == partition_of("k"))


class Between:
    """Does something once, between a reload's look at the blocking rows and what the owner makes of it."""

    def __init__(self, monkeypatch):
        self.act = None
        self.note_committed = threading.Event()
        look, note_committed = ownership.parked.list_blocking, ParkedRows.note_committed

        def looked(*where):
            rows = look(*where)
            act, self.act = self.act, None
            if act is not None:
                self.note_committed.clear()
                act()
                assert self.note_committed.wait(10)
            return rows

        def noted(partition, *args):
            keys = note_committed(partition, *args)
            self.note_committed.set()
            return keys

        monkeypatch.setattr(ownership.parked, "list_blocking", looked)
        monkeypatch.setattr(ParkedRows, "note_committed", noted)


@pytest.fixture
def between(monkeypatch):
    return Between(monkeypatch)


def test_an_event_that_finishes_while_its_owner_reads_anew_is_not_run_again(desk, between):
    ill, go = {"k", OTHER}, threading.Event()

    def handler(event):
        desk.note(event)
        if event.aggregate_id in ill:
            return Dead("not yet")
        assert event.aggregate_id != "k" or go.wait(10)
        return None

    desk.outbox.register(handler, "Counted")
    desk.publish("k", 1)
    desk.publish(OTHER, 2)
    with desk.outbox.worker():
        desk.eventually(lambda: desk.outbox.dead.count() == 2)
        ill.clear()
        desk.outbox.dead.replay_all(aggregate_id="k")
        desk.eventually(lambda: desk.numbers() == [1, 1])  # it runs, and waits
        between.act = go.set
        desk.outbox.dead.replay_all(aggregate_id=OTHER)
        desk.eventually(lambda: desk.numbers(OTHER) == [2, 2])
        desk.eventually(desk.all_done)
        desk.publish(OTHER, 3)
        desk.eventually(lambda: desk.numbers(OTHER) == [2, 2, 3])
    assert desk.numbers() == [1, 1]


def test_an_event_that_is_parked_while_its_owner_reads_anew_is_not_forgotten(desk, between):
    ill, go = {OTHER}, threading.Event()

    def handler(event):
        desk.note(event)
        if event.aggregate_id in ill:
            return Dead("not yet")
        if event.aggregate_id == "k" and event.attempt == 1 and event.payload["number"] == 1:
            assert go.wait(10)
            raise ValueError("once")
        return None

    desk.outbox.register(handler, "Counted", retry="fixed:1")
    desk.publish(OTHER, 9)
    with desk.outbox.worker():
        desk.eventually(lambda: desk.outbox.dead.count() == 1)
        ill.clear()
        desk.publish("k", 1, 2)
        desk.eventually(lambda: desk.numbers() == [1])  # it runs, and is about to fail
        between.act = go.set
        desk.outbox.dead.replay_all()
        desk.eventually(lambda: desk.numbers(OTHER) == [9, 9])
        desk.publish("k", 3)
        desk.eventually(desk.all_done)
    assert desk.numbers() == [1, 1, 2, 3]
