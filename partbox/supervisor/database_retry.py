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
from partbox.observe.health.database_probe import public_error
from partbox.observe.logs.log_event import log_event
from partbox.protocol.retry import Exponential, Jittered
from partbox.supervisor.restart_backoff import FIRST_PAUSE, LONGEST_PAUSE

log = logging.getLogger("partbox.supervisor")

STEADY_JOIN = 10.0  # seconds; a shorter join does not reset the pause before the next try


class DatabaseRetry:
    """`enter` connects, checks and raises. One thread tries, any thread asks."""

    def __init__(self, enter: Callable[[], None], subscription: str) -> None:
        self._enter = enter
        self._subscription = subscription
        # Jittered, so that nodes that start together do not connect together.
        self._policy = Jittered(Exponential(FIRST_PAUSE, LONGEST_PAUSE), (0.5, 1.0))
        self._failures = 0
        self._logged_reason: str | None = None
        self._failing_since = 0.0  # the first failure
        self._joined_at: float | None = None  # None before the first time
        self.is_joined = False
        self.is_trying = False
        self.error: Exception | None = None  # of the last try
        self.next_try_at = 0.0

    @property
    def has_never_joined(self) -> bool:
        """True if it was tried, and has not been possible yet."""
        return self._joined_at is None and self.error is not None

    def join_or_raise(self) -> None:
        """Try once; raises what stands in the way."""
        self._enter()
        self._joined_at, self.is_joined, self.error = time.monotonic(), True, None

    def try_join(self) -> None:
        """Try once; log the obstacle when it changes, and its end."""
        self.is_trying = True
        try:
            self.join_or_raise()
            if self._logged_reason is not None:
                text = "the database is usable after %.1f s: its events are delivered from now on"
                seconds = time.monotonic() - self._failing_since
                log_event(log, "database_joined", text, seconds, subscription=self._subscription, seconds=seconds)
            self._logged_reason = None
        except (Error, PartboxError) as error:
            self._note_failure(error)
        finally:
            self.is_trying = False

    def mark_lost(self) -> None:
        """Note that the database cannot be worked for any more, so that it is tried again."""
        if not self.is_joined:
            return
        now, joined_at = time.monotonic(), self._joined_at or 0.0
        self.is_joined = False
        self._failures = 0 if now - joined_at > STEADY_JOIN else self._failures
        self.next_try_at = now + self._pause()

    def blocker(self) -> str | None:
        """The obstacle, for everybody to read; None if there is none, or before the first try is over."""
        error = self.error
        if self.is_joined or error is None:
            return None
        seconds = time.monotonic() - self._failing_since
        return f"{_failure_text(error)}, tried again for {seconds:.0f} s by now: {public_error(error)}"

    def _note_failure(self, error: Exception) -> None:
        now = time.monotonic()
        self._failing_since = self._failing_since if self.error is not None else now
        self.error, self.next_try_at = error, now + self._pause()
        logged, self._logged_reason = self._logged_reason, f"{type(error).__name__}: {error}"
        if logged == self._logged_reason:
            return
        text = "%s: its events wait, those of the other databases do not; it is tried again, at last every %g s: %s"
        name = "database_away" if isinstance(error, OperationalError) else "database_unfit"
        log_event(log, name, text, _failure_text(error), LONGEST_PAUSE, error, subscription=self._subscription)

    def _pause(self) -> float:
        self._failures += 1
        return self._policy.next_delay(self._failures)


def _failure_text(error: Exception) -> str:
    return f"cannot {'connect to' if isinstance(error, OperationalError) else 'work for'} the database"
