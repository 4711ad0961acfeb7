"""Signals: a flag that signal handlers may set, and processes that start without SIGINT and SIGHUP."""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

CHECK_INTERVAL = 0.02  # seconds


class SignalFlag:
    """A flag that a signal handler, or any thread, may set at any time. Never reset. A `threading.Event` has a lock
    that is not reentrant. The handler may interrupt the very wait of the main thread that holds the lock, and both
    would wait for each other for ever."""

    def __init__(self) -> None:
        self._set = False

    def set(self) -> None:
        """Set the flag."""
        self._set = True

    def is_set(self) -> bool:
        """Return True if the flag is set."""
        return self._set

    def wait(self, timeout: float) -> bool:
        """Wait for up to `timeout` seconds until the flag is set. Return True if it is set."""
        until = time.monotonic() + timeout
        while not self._set and (left := until - time.monotonic()) > 0:
            time.sleep(min(CHECK_INTERVAL, left))
        return self._set


@contextmanager
def hold_signals() -> Iterator[None]:
    """Block SIGINT and SIGHUP in this thread, in threads begun meanwhile, and in the processes of all of them. Both go
    to every process of a group, and a process that is still starting would die with a traceback. It handles them later
    in its own way."""
    # Imported here, as commands that only want the flag do not need multiprocess.
    from multiprocess import resource_tracker

    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    try:
        # multiprocess's tracker is started once, and unblocks SIGINT in the thread that starts it, so it is started
        # before SIGINT is blocked. The tracker does not handle SIGHUP, and would die of it, so SIGHUP is blocked first.
        resource_tracker.ensure_running()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def hangup_is_ignored() -> bool:
    """Return True if SIGHUP is ignored, as under `nohup`, so that the process outlives its terminal."""
    return signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
