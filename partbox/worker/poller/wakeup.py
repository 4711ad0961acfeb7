"""A wakeup: an event that one thread waits for together with a socket."""

import selectors
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from weakref import finalize

# A selector that needs no descriptor of its own.
SELECTOR: type[selectors.BaseSelector] = getattr(selectors, "PollSelector", selectors.SelectSelector)


class Wakeup:
    """An event that any thread can set to wake one waiting thread, which may wait for a socket at the same time.

    A socket pair wakes the thread. The pair is made at the first wait, so a worker that never starts opens nothing.
    This is not the flag of the bell, by which workers ask publishers for notifications."""

    def __init__(self) -> None:
        # True if the poller was woken for another reason than room to read more, so it does not go on to the next page.
        self.was_interrupted = False
        # True if another process has announced a changed plan, or parked rows.
        self.has_changes = False
        self._is_set = False
        self._on_readable: Callable[[], None] | None = None
        self._watched_socket = -1
        self._selector = SELECTOR()
        self._near_end: socket.socket | None = None
        self._far_end: socket.socket | None = None

    def interrupt_poller(self) -> None:
        """Wake the poller and have it begin a new step, even while it reads a backlog."""
        # A backlog is read page after page within one step otherwise.
        self.was_interrupted = True
        self.set()

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        """Wake the waiting thread, or let its next wait return at once."""
        if not self._is_set:
            self._is_set = True
            # Without a pair no thread waits yet, and the next wait sees the flag.
            if self._far_end is not None:
                # A full buffer wakes the thread as well.
                with suppress(BlockingIOError):
                    self._far_end.send(b"!")

    def clear(self) -> None:
        """Reset the event so that the thread can wait for it again."""
        # The caller then serves all wake-up calls made until this call ends.
        if self._is_set:
            self._drain_socket()
            # Clear the flag last: a caller that finds it set until here relies on the poller's next step.
            self._is_set = False

    def wait(self, seconds: float) -> bool:
        """Wait for up to `seconds` until the event is set. Return True if it is."""
        # Notifications that arrive meanwhile on a watched socket are handled.
        end = time.monotonic() + seconds
        if self._far_end is None:
            self._make_pair()
        while not self._is_set:
            left = end - time.monotonic()
            # The selector rounds the timeout to the next millisecond.
            for key, _ in self._selector.select(max(0.0, left)):
                if key.fileobj is not self._near_end:
                    if self._on_readable is not None:
                        self._on_readable()
                # The event was cleared after its setter had set the flag and before the setter wrote its byte.
                elif not self._is_set:
                    self._drain_socket()
                    return True
            if left <= 0:
                break
        return self._is_set

    def watch_socket(self, socket: int, on_readable: Callable[[], None]) -> None:
        """Call `on_readable` in the waiting thread whenever `socket` has data to read."""
        # The poller waits for rings on the listener's socket in this way. If another thread read the socket and then
        # woke the poller, each ring would cost one more thread switch, and one more wait for the interpreter lock.
        # This lasts until `unwatch_socket` is called.
        self.unwatch_socket()
        self._watched_socket, self._on_readable = socket, on_readable
        self._selector.register(socket, selectors.EVENT_READ)

    def unwatch_socket(self) -> None:
        """Stop watching the socket for data. Must be called before the socket is closed."""
        # A second call does nothing.
        if self._on_readable is not None:
            self._selector.unregister(self._watched_socket)
            self._on_readable = None

    def _make_pair(self) -> None:
        self._near_end, far_end = socket.socketpair()
        self._selector.register(self._near_end, selectors.EVENT_READ)
        for end in (self._near_end, far_end):
            end.setblocking(False)
            # Not at exit, as daemon threads go on until the process ends.
            finalize(self, end.close).atexit = False
        # Set this last, before the flag is read: a caller that does not see it has set the flag.
        self._far_end = far_end

    def _drain_socket(self) -> None:
        if self._near_end is not None:
            with suppress(BlockingIOError):
                self._near_end.recv(4096)
