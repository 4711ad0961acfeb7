"""A server whose disk is full: what cannot be saved is tried again, and nothing is lost, repeated or given up."""

import logging

import pytest
from waiting import eventually

pytestmark = pytest.mark.every_version("errors of the server")

FULL = """
create or replace function disk_full() returns trigger language plpgsql as $$
begin
    raise exception using errcode = 'disk_full', message = 'could not extend file "base/1/2": No space left on device',
                          hint = 'Check free disk space.';
end
$$;
create or replace trigger full_disk before {what} for each statement execute function disk_full();
"""
SAVES = "update of saved_at on partbox.partition"
PARKS = "insert on partbox.parked"
BEATS = "update on partbox.instance"


class Disk:
    """The server's disk, as far as one table tells."""

    def __init__(self, desk, caplog):
        self.desk = desk
        self.caplog = caplog
        caplog.set_level(logging.INFO, "partbox")

    def fill(self, what):
        self.table = what.partition(" on ")[2]
        self.desk.conn.execute(FULL.format(what=what))

    def make_room(self):
        self.desk.conn.execute(f"drop trigger full_disk on {self.table}")

    def lines(self, name):
        return [each for each in self.caplog.records if getattr(each, "event", None) == f"partbox.{name}"]

    def complained(self, name):
        """Wait for the line, which says what the server's error says."""
        (line, *_) = eventually(lambda: self.lines(name))
        assert "No space left on device" in line.getMessage()
        assert "Check free disk space" in line.getMessage()
        assert line.levelno == logging.ERROR


@pytest.fixture
def disk(desk, caplog):
    return Disk(desk, caplog)


@pytest.mark.parametrize("what", [SAVES, PARKS])
def test_progress_that_cannot_be_saved_is_saved_when_there_is_room_again(desk, disk, what):
    failed = set()

    def handle(event):
        desk.note(event)
        if event.payload["number"] == 7 and 7 not in failed:
            failed.add(7)
            raise ValueError("once")

    desk.outbox.register(handle, "Counted", retry="fixed:0.01")
    with desk.outbox.worker() as worker:
        eventually(lambda: desk.conn.execute("select count(owner) from partbox.partition").fetchone() == (256,))
        disk.fill(what)
        for number in range(10):
            desk.publish(f"k{number}", number)
        eventually(lambda: len(desk.seen) == 10)
        disk.complained("loop_error")
        assert worker._worker.failure is None
        disk.make_room()
        desk.eventually(desk.all_done)
    assert sorted(number for _, number, _ in desk.seen) == [*range(8), 7, 8, 9]


def test_a_transactional_handler_is_not_to_blame_for_a_save_that_finds_no_room(desk, disk):
    desk.conn.execute("create table effect (number integer)")

    def handle(event, connection):
        connection.execute("insert into effect values (%s)", [event.payload["number"]])
        desk.note(event)

    desk.outbox.on("Counted", transactional=True, max_attempts=2, retry="fixed:0.01")(handle)
    with desk.outbox.worker():
        eventually(lambda: desk.conn.execute("select count(owner) from partbox.partition").fetchone() == (256,))
        disk.fill(SAVES)
        desk.publish("k", 1, 2, 3)
        eventually(lambda: desk.numbers().count(1) >= 4)
        disk.make_room()
        desk.eventually(desk.all_done)
    assert desk.conn.execute("select number from effect order by 1").fetchall() == [(1,), (2,), (3,)]
    assert {attempt for _, _, attempt in desk.seen} == {1}


def test_no_handler_starts_while_the_lease_cannot_be_renewed_and_delivery_goes_on_afterwards(desk_with, caplog):
    desk = desk_with(lease=2, heartbeat=0.1)
    disk = Disk(desk, caplog)
    desk.outbox.register(desk.note, "Counted")
    with desk.outbox.worker() as worker:
        desk.publish("k", 1)
        desk.eventually(desk.all_done)
        disk.fill(BEATS)
        disk.complained("no_heartbeat")
        eventually(lambda: not worker._slot.is_trusted())
        desk.publish("k", 2)
        disk.make_room()
        desk.eventually(desk.all_done)
        assert worker._worker.failure is None
    assert desk.numbers() == [1, 2]
