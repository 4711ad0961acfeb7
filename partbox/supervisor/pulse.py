"""Signs of life of a loop that may wait for a database."""

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Pulse:
    """The moment at which a loop last turned (monotonic seconds). The loop writes, any thread reads."""

    def __init__(self) -> None:
        self.turned_at = 0.0
        self.asking = False  # the database, which may not answer

    def turn(self) -> float:
        """Note that the loop turns now; that moment."""
        self.turned_at = time.monotonic()
        return self.turned_at

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """In here the loop stands still for as long as the database likes: no restart would help."""
        self.asking = True
        try:
            yield
        finally:
            self.turned_at = time.monotonic()
            self.asking = False

    def silent(self, now: float) -> float:
        """Seconds since the loop has turned; 0.0 while it waits for the database."""
        return 0.0 if self.asking else now - self.turned_at
