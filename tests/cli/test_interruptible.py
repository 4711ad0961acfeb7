"""Commands that a signal ends, wherever it meets them."""

import os
import signal
import sys
import threading

import pytest

from partbox.cli.shell import stopping
from partbox.cli.shell.stopping import interruptible

PATIENCE = 120.0
NEVER = threading.Event()


class Dropping:
    """Python drops whatever is raised while it is taken away; here a signal comes then, or an error."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    def __del__(self) -> None:
        if self.error is not None:
            raise self.error
        os.kill(os.getpid(), signal.SIGHUP)


def wait() -> None:
    Dropping()
    NEVER.wait(PATIENCE)


def test_a_signal_ends_the_block_even_where_python_drops_its_exception():
    with pytest.raises(KeyboardInterrupt), interruptible(signal.SIGHUP):
        wait()


def test_the_cleanup_after_a_signal_is_not_interrupted_by_another():
    undone = []

    def wait_and_undo() -> None:
        try:
            wait()
        finally:
            os.kill(os.getpid(), signal.SIGHUP)
            undone.append(True)

    with pytest.raises(KeyboardInterrupt), interruptible(signal.SIGHUP):
        wait_and_undo()
    assert undone == [True]


def test_a_signal_is_not_sent_again_after_the_block_has_ended(monkeypatch):
    monkeypatch.setattr(stopping, "RESEND_DELAY", 10 * PATIENCE)
    with interruptible(signal.SIGHUP):
        Dropping()
        (timer,) = (each for each in threading.enumerate() if isinstance(each, threading.Timer))
    timer.join(PATIENCE)
    assert not timer.is_alive()


def test_other_dropped_errors_still_reach_the_unraisable_hook(monkeypatch):
    told = []
    monkeypatch.setattr(sys, "unraisablehook", lambda dropped: told.append(dropped.exc_value))
    before, error = sys.unraisablehook, ValueError("lost")
    with interruptible(signal.SIGHUP):
        Dropping(error)
    assert told == [error]
    assert sys.unraisablehook is before
