"""Joining of a node and its database: at the start or, for one of several, as soon as it is possible.

Alone, a node does not start without its database: nothing can be done, and most likely the DSN is wrong. Among several
the others must not wait, so one that cannot be worked for is tried again for as long as the node runs: a server that is
away, and also a schema that is missing or too old, for an operator may run `partbox init` or `migrate`.
"""

import logging
import time
from collections.abc import Callable

from psycopg import Error, OperationalError

from partbox.errors import PartboxError
from partbox.observe.health.database_probe import shown
from partbox.observe.logs.log_event import log_event
from partbox.protocol.retry import Exponential, Jittered
from partbox.supervisor.restart_backoff import FIRST_PAUSE, LONGEST_PAUSE

log = logging.getLogger("partbox.supervisor")

STEADY = 10.0  # seconds; a shorter join does not reset the pause before the next try


class DatabaseRetry:
    """`enter` connects, checks and raises. One thread tries, any thread asks."""

    def __init__(self, enter: Callable[[], None], subscription: str) -> None:
        self._enter = enter
        self._subscription = subscription
        # Jittered, so that nodes that start together do not connect together.
        self._policy = Jittered(Exponential(FIRST_PAUSE, LONGEST_PAUSE), (0.5, 1.0))
        self._failures = 0
        self._said: str | None = None
        self._since = 0.0  # the first failure
        self._joined_at: float | None = None  # None before the first time
        self.joined = False
        self.trying = False
        self.error: Exception | None = None  # of the last try
        self.next_at = 0.0

    @property
    def never(self) -> bool:
        """True if it was tried, and has not been possible yet."""
        return self._joined_at is None and self.error is not None

    def join(self) -> None:
        """Try once; raises what stands in the way."""
        self._enter()
        self._joined_at, self.joined, self.error = time.monotonic(), True, None

    def attempt(self) -> None:
        """Try once; log the obstacle when it changes, and its end."""
        self.trying = True
        try:
            self.join()
            if self._said is not None:
                text = "the database is usable after %.1f s: its events are delivered from now on"
                seconds = time.monotonic() - self._since
                log_event(log, "database_joined", text, seconds, subscription=self._subscription, seconds=seconds)
            self._said = None
        except (Error, PartboxError) as error:
            self._refused(error)
        finally:
            self.trying = False

    def leave(self) -> None:
        """Note that the database cannot be worked for any more, so that it is tried again."""
        if not self.joined:
            return
        now, joined_at = time.monotonic(), self._joined_at or 0.0
        self.joined = False
        self._failures = 0 if now - joined_at > STEADY else self._failures
        self.next_at = now + self._pause()

    def hindrance(self) -> str | None:
        """The obstacle, for everybody to read; None if there is none, or before the first try is over."""
        error = self.error
        if self.joined or error is None:
            return None
        seconds = time.monotonic() - self._since
        return f"{_what(error)}, tried again for {seconds:.0f} s by now: {shown(error)}"

    def _refused(self, error: Exception) -> None:
        now = time.monotonic()
        self._since = self._since if self.error is not None else now
        self.error, self.next_at = error, now + self._pause()
        said, self._said = self._said, f"{type(error).__name__}: {error}"
        if said == self._said:
            return
        text = "%s: its events wait, those of the other databases do not; it is tried again, at last every %g s: %s"
        name = "database_away" if isinstance(error, OperationalError) else "database_unfit"
        log_event(log, name, text, _what(error), LONGEST_PAUSE, error, subscription=self._subscription)

    def _pause(self) -> float:
        self._failures += 1
        return self._policy.next_delay(self._failures)


def _what(error: Exception) -> str:
    return f"cannot {'connect to' if isinstance(error, OperationalError) else 'work for'} the database"
