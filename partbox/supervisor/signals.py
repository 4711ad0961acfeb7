"""Signals: a flag that signal handlers may set, and processes that start without SIGINT and SIGHUP."""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

CHECK_INTERVAL = 0.02  # seconds


class SignalFlag:
    """A flag that a signal handler, or any thread, may set safely at any time.

    It is never reset. The lock of `threading.Event` is not reentrant: a handler that interrupts the main thread's own
    wait would block for ever."""

    def __init__(self) -> None:
        self._is_set = False

    def set(self) -> None:
        """Set the flag, which ends the wait for it. A signal handler may call this."""
        self._is_set = True

    def is_set(self) -> bool:
        return self._is_set

    def wait(self, timeout: float) -> bool:
        """Wait for up to `timeout` seconds until the flag is set. Return True if it is set."""
        until = time.monotonic() + timeout
        while not self._is_set and (left := until - time.monotonic()) > 0:
            time.sleep(min(CHECK_INTERVAL, left))
        return self._is_set


@contextmanager
def hold_signals() -> Iterator[None]:
    """Block SIGINT and SIGHUP in this thread, and in threads and processes that it starts in the `with` block."""
    # Workers are started in the block.
    # Both signals go to the whole process group, and a starting process would die with a traceback; it handles them
    # later in its own way. The import is here, as commands that only want the flag do not need multiprocess.
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
    """Return True if this process ignores SIGHUP, so that it outlives its terminal."""
    # `nohup` starts programs like that.
    return signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
