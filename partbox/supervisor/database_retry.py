"""Retries of the step by which a node joins its database.

A node with one database does not start without it: nothing could be done, and most likely the DSN is wrong. With
several databases, an unusable database must not delay the others, and is tried again while the node runs."""

import logging
import time
from collections.abc import Callable

from psycopg import Error, OperationalError

from partbox.errors import PartboxError
from partbox.observe.health.database_probe import format_public_error
from partbox.observe.logs.log_event import log_event
from partbox.protocol.retry import Exponential, Jittered
from partbox.supervisor.restart_backoff import FIRST_PAUSE, LONGEST_PAUSE

log = logging.getLogger("partbox.supervisor")

STEADY_JOIN = 10.0  # seconds; a shorter join does not reset the pause before the next try


class DatabaseRetry:
    """A connector that tries to reach one node's database until it succeeds, with pauses between failed tries.

    One thread tries, and any thread may read the state. `enter` connects and checks, and raises if the database is
    unusable. `error` is the error of the last try."""

    def __init__(self, enter: Callable[[], None], subscription: str) -> None:
        self._join_database = enter
        self._subscription = subscription
        # Jittered, so that nodes that start together do not connect together.
        self._policy = Jittered(Exponential(FIRST_PAUSE, LONGEST_PAUSE), (0.5, 1.0))
        self._failures = 0
        self._logged_reason: str | None = None
        self._failing_since = 0.0
        self._joined_at: float | None = None
        self.is_joined = False
        self.is_trying = False
        self.error: Exception | None = None
        self.next_try_at = 0.0

    @property
    def has_never_joined(self) -> bool:
        """True if at least one try to connect to the database has failed and none has succeeded."""
        return self._joined_at is None and self.error is not None

    def join_or_raise(self) -> None:
        """Connect to the database and check it, once, and raise the error if this fails."""
        self._join_database()
        self._joined_at, self.is_joined, self.error = time.monotonic(), True, None

    def try_join(self) -> None:
        """Connect to the database and check it, once; log an error instead of raising it."""
        # The server may be away, or the schema may be missing or too old, and an operator may run `partbox init` or
        # `migrate`.
        # An error is logged if it differs from the last one, and the end of a problem is logged too.
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
        """Record that this node can no longer use the database, and plan the next try to connect."""
        # The node cannot deliver from the database any more.
        if not self.is_joined:
            return
        now, joined_at = time.monotonic(), self._joined_at or 0.0
        self.is_joined = False
        self._failures = 0 if now - joined_at > STEADY_JOIN else self._failures
        self.next_try_at = now + self._compute_next_pause()

    def find_blocker(self) -> str | None:
        """Return the problem that keeps the node from using its database, or None."""
        # The words are fit for the public. It returns None if there is no problem or the first try is not over.
        error = self.error
        if self.is_joined or error is None:
            return None
        seconds = time.monotonic() - self._failing_since
        return f"{_describe_failure(error)}, retried for {seconds:.0f} s so far: {format_public_error(error)}"

    def _note_failure(self, error: Exception) -> None:
        now = time.monotonic()
        self._failing_since = self._failing_since if self.error is not None else now
        self.error, self.next_try_at = error, now + self._compute_next_pause()
        logged, self._logged_reason = self._logged_reason, f"{type(error).__name__}: {error}"
        if logged == self._logged_reason:
            return
        text = "%s: its events wait, events of other databases do not; partbox retries with pauses of up to %g s: %s"
        name = "database_away" if isinstance(error, OperationalError) else "database_unfit"
        log_event(log, name, text, _describe_failure(error), LONGEST_PAUSE, error, subscription=self._subscription)

    def _compute_next_pause(self) -> float:
        self._failures += 1
        return self._policy.next_delay(self._failures)


def _describe_failure(error: Exception) -> str:
    return f"cannot {'connect to' if isinstance(error, OperationalError) else 'use'} the database"
