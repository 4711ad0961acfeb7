"""The alarm that wakes the poller."""

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from partbox.worker.poller.wakeup import Wakeup

PATIENCE = 120.0


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    here, there = socket.socketpair()
    with here, there:
        yield here, there


def test_a_wakeup_stays_set_until_it_is_cleared_however_often_it_was_set() -> None:
    alarm = Wakeup()
    assert not alarm.wait(0)
    for _ in range(3):
        alarm.set()
    assert alarm.is_set()
    assert alarm.wait(0)
    assert alarm.wait(PATIENCE)
    alarm.clear()
    assert not alarm.is_set()
    assert not alarm.wait(0.001)


def test_a_wakeup_that_nobody_has_waited_for_opens_no_descriptor_and_can_be_set() -> None:
    before = len(os.listdir("/dev/fd"))
    alarm = Wakeup()
    alarm.set()
    assert len(os.listdir("/dev/fd")) == before
    assert alarm.wait(0)


def test_a_waiting_thread_is_woken_by_any_other_thread() -> None:
    alarm, woken = Wakeup(), threading.Event()
    threads = [threading.Thread(target=lambda: alarm.wait(PATIENCE) and woken.set())]
    threads += [threading.Thread(target=alarm.set) for _ in range(5)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(PATIENCE)
    assert woken.is_set()


def test_no_call_is_lost_however_setting_and_clearing_meet() -> None:
    """Each call has a number, which is there before it; who waits clears first, and looks then, as the poller does."""
    alarm, calls, seen = Wakeup(), 20_000, 0
    made = [0]

    def call() -> None:
        for number in range(1, calls + 1):
            made[0] = number
            alarm.set()

    caller = threading.Thread(target=call)
    caller.start()
    while seen < calls:
        assert alarm.wait(PATIENCE), f"{made[0]} were made, {seen} were seen"
        alarm.clear()
        seen = made[0]
    caller.join()


def test_a_waiting_thread_handles_data_on_the_watched_socket_and_wakes_only_if_the_wakeup_is_set(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    here, there = ends
    alarm, heard = Wakeup(), []

    def hear() -> None:
        heard.append(here.recv(1))
        if heard[-1] == b"!":
            alarm.set()

    alarm.watch_socket(here.fileno(), hear)
    there.send(b"..")
    assert not alarm.wait(0.01)
    there.send(b"!")
    assert alarm.wait(PATIENCE)
    assert heard == [b".", b".", b"!"]
    alarm.clear()
    alarm.unwatch_socket()
    alarm.unwatch_socket()
    there.send(b"!")
    assert not alarm.wait(0.001)


def test_another_socket_takes_the_place_of_the_first(ends: tuple[socket.socket, socket.socket]) -> None:
    here, there = ends
    alarm, heard = Wakeup(), []

    def hear(end: socket.socket) -> None:
        heard.append(end.recv(1))
        alarm.set()

    alarm.watch_socket(here.fileno(), lambda: hear(here))
    alarm.watch_socket(there.fileno(), lambda: hear(there))
    there.send(b"1")
    assert not alarm.wait(0.001)
    here.send(b"2")
    assert alarm.wait(PATIENCE)
    assert heard == [b"2"]


def test_the_descriptors_of_a_wakeup_are_closed_when_nobody_can_set_it_any_more(collect: Callable[[], int]) -> None:
    alarm = Wakeup()
    assert not alarm.wait(0)
    ends = {end.fileno(): os.fstat(end.fileno()).st_ino for end in (alarm._near_end, alarm._far_end)}
    del alarm
    collect()
    for end, inode in ends.items():
        with suppress(OSError):  # another file may have its number by now
            assert os.fstat(end).st_ino != inode
