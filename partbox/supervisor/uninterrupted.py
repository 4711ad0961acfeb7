"""Processes are born deaf to Ctrl-C and to a closing terminal, which signal every process of a group."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from multiprocess import resource_tracker


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold SIGINT and SIGHUP back from this thread, from those begun meanwhile, and from the processes of all these.

    A process that is still starting would die with a traceback. What it does with these signals is its own, later.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    try:
        # multiprocess's tracker, which is started once, lets SIGINT through in the thread that starts it: so before it
        # is held back. SIGHUP it does not know, and would die of it.
        resource_tracker.ensure_running()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
