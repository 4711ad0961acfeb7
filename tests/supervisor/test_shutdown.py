"""The end of a node: asked for once, by a signal or by its loop, and overdue when killing all does not end it."""

import os
from types import SimpleNamespace

import pytest

from partbox.supervisor import loop
from partbox.supervisor.loop import DRAIN_GRACE, Shutdown, WakePipe


@pytest.fixture
def clock(monkeypatch):
    class Clock:
        now = 100.0

    monkeypatch.setattr(loop, "time", SimpleNamespace(monotonic=lambda: Clock.now))
    return Clock


def test_processes_are_killed_after_the_drain_timeout_and_a_little_more(clock):
    end = Shutdown()
    assert not end.is_asked
    assert not end.is_kill_due(1e9)
    end.ask_to_drain(15.0)
    assert end.is_asked
    assert [end.is_kill_due(100.0 + 15.0 + DRAIN_GRACE + late) for late in (-0.1, 0.0, 1.0)] == [False, True, True]


def test_a_second_stop_gives_no_more_time_and_a_kill_leaves_none(clock):
    end = Shutdown()
    end.ask_to_drain(1.0)
    clock.now = 102.0
    end.ask_to_drain(60.0)
    assert end.is_kill_due(103.0)
    end = Shutdown()
    end.ask_to_drain(60.0)
    end.ask_to_kill()
    assert end.is_kill_due(102.0)


def test_a_shutdown_is_overdue_only_if_the_loop_runs_on_after_all_processes_were_killed(clock):
    end = Shutdown()
    end.ask_to_kill()
    assert not end.is_overdue
    end.note_killed()
    clock.now += loop.KILL_GRACE
    end.note_killed()
    assert not end.is_overdue
    clock.now += 0.1
    assert end.is_overdue, "a second kill begins no new wait"


def test_a_wake_pipe_ends_a_wait_and_ignores_wakes_once_it_is_closed():
    pipe = WakePipe()
    assert not pipe.wait([], 0.0)
    pipe.wake()
    assert pipe.wait([], 60.0)
    assert not pipe.wait([], 0.0)
    pipe.close()
    pipe.wake()


def test_a_forked_process_does_not_wake_its_parent(monkeypatch):
    pipe = WakePipe()
    with monkeypatch.context() as forked:
        forked.setattr(os, "getpid", lambda: -1)
        pipe.wake()
    assert not pipe.wait([], 0.0)
    pipe.close()
