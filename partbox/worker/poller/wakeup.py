"""Wakes the poller, by a call of any thread or by a ring, which arrives on the listener's socket.

A thread that read the socket and then woke the poller would cost every ring one more switch of threads, and one more
wait for the interpreter lock.
"""

import selectors
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from weakref import finalize

SELECTOR: type[selectors.BaseSelector] = getattr(selectors, "PollSelector", selectors.SelectSelector)
"""A selector that needs no descriptor of its own."""


class Wakeup:
    """A call that one thread waits for and clears, and any thread makes. A pair of sockets wakes the one that waits.

    The pair is made when a thread first waits, so that a worker that never starts opens nothing.
    The bell's flag is another thing: it is the server's, and says that a worker waits here.
    """

    def __init__(self) -> None:
        self.was_called = False  # not only because there is room to read more: so also where pages follow each other
        self.has_changes = False  # somebody else has said that he changed the plan, or parked rows
        self._set = False
        self._on_readable: Callable[[], None] | None = None
        self._watched_socket = -1
        self._selector = SELECTOR()
        self._near_end: socket.socket | None = None
        self._far_end: socket.socket | None = None

    def call(self) -> None:
        """Have the poller look at once, whatever it does."""
        self.was_called = True
        self.set()

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        """Wake who waits, or whoever waits next."""
        if not self._set:
            self._set = True
            if self._far_end is not None:  # else nobody waits yet, and will see the flag
                with suppress(BlockingIOError):  # what is full wakes as well
                    self._far_end.send(b"!")

    def clear(self) -> None:
        """Whatever it was set for until the end of this call is going to be looked at."""
        if self._set:
            self._drain_socket()
            self._set = False  # who has found it set until here is looked at too

    def wait(self, seconds: float) -> bool:
        """Wait for so many seconds at most until it is set; True if it is. What comes on the socket is heard."""
        end = time.monotonic() + seconds
        if self._far_end is None:
            self._make_pair()
        while not self._set:
            left = end - time.monotonic()
            for key, _ in self._selector.select(max(0.0, left)):  # to the next millisecond
                if key.fileobj is not self._near_end:
                    if self._on_readable is not None:
                        self._on_readable()
                elif not self._set:  # it was cleared between the flag and the write of who set it
                    self._drain_socket()
                    return True
            if left <= 0:
                break
        return self._set

    def watch_socket(self, socket: int, on_readable: Callable[[], None]) -> None:
        """Call `on_readable` in the thread that waits when something comes on this socket, until `unwatch_socket`."""
        self.unwatch_socket()
        self._watched_socket, self._on_readable = socket, on_readable
        self._selector.register(socket, selectors.EVENT_READ)

    def unwatch_socket(self) -> None:
        """Hear nothing any more; idempotent. Before the socket is closed."""
        if self._on_readable is not None:
            self._selector.unregister(self._watched_socket)
            self._on_readable = None

    def _make_pair(self) -> None:
        self._near_end, far_end = socket.socketpair()
        self._selector.register(self._near_end, selectors.EVENT_READ)
        for end in (self._near_end, far_end):
            end.setblocking(False)
            finalize(self, end.close).atexit = False  # daemon threads go on until the process ends
        # Last, before the flag is looked at: a call that does not see it has set the flag.
        self._far_end = far_end

    def _drain_socket(self) -> None:
        if self._near_end is not None:
            with suppress(BlockingIOError):
                self._near_end.recv(4096)
