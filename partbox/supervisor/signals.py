"""Signals: a flag that their handlers may set, and processes that start deaf to Ctrl-C and to a closing terminal."""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

CHECK_INTERVAL = 0.02  # seconds


class SignalFlag:
    """A flag that a signal handler may set; once, by anybody, at any time.

    Not a `threading.Event`: its lock is not reentrant, and the handler may interrupt the very wait of the main thread
    that holds it. Then the two wait for each other for ever.
    """

    def __init__(self) -> None:
        self._set = False

    def set(self) -> None:
        self._set = True

    def is_set(self) -> bool:
        return self._set

    def wait(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds; True if it is set."""
        until = time.monotonic() + timeout
        while not self._set and (left := until - time.monotonic()) > 0:
            time.sleep(min(CHECK_INTERVAL, left))
        return self._set


@contextmanager
def hold_signals() -> Iterator[None]:
    """Hold SIGINT and SIGHUP back from this thread, from those begun meanwhile, and from the processes of all these.

    Each goes to every process of a group: one that is still starting would die with a traceback. What it does with
    these signals is its own, later.
    """
    from multiprocess import resource_tracker  # not for a command that only wants the flag

    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    try:
        # multiprocess's tracker, which is started once, lets SIGINT through in the thread that starts it: so before it
        # is held back. SIGHUP it does not know, and would die of it.
        resource_tracker.ensure_running()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def hangup_is_ignored() -> bool:
    """True under `nohup`: the process is to outlive its terminal."""
    return signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
