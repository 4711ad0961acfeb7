"""Looks at a database without waiting for it longer than one wants to."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import psycopg

from partbox.db.stats import Overview
from partbox.errors import PartboxError
from partbox.rules.secrets import masked


@dataclass(frozen=True, slots=True)
class Sight:
    """What a look has brought, and when (monotonic seconds): an overview, or why there is none.

    `broken`: the database answers, and the outbox in it is not as it must be.
    """

    at: float
    overview: Overview | None
    error: str | None = None
    broken: bool = False


class Looker:
    """One look at a time, in a thread of its own; any thread may ask."""

    def __init__(self, look: Callable[[], Overview]) -> None:
        self._look = look
        self._changed = threading.Condition()
        self._looking = False
        self._latest: Sight | None = None

    @property
    def latest(self) -> Sight | None:
        """What the last look has brought, however long ago; None before the first one is over."""
        with self._changed:
            return self._latest

    def begin(self) -> float:
        """Begin to look, unless a look is under way; when this was asked, for `wait`."""
        asked = time.monotonic()
        with self._changed:
            if not self._looking:
                threading.Thread(target=self._run, name="partbox-look", daemon=True).start()
                self._looking = True
        return asked

    def wait(self, since: float, timeout: float) -> Sight | None:
        """What a look that ended after `since` has brought; None if none does within `timeout` seconds."""
        with self._changed:
            ended = self._changed.wait_for(lambda: self._latest is not None and self._latest.at >= since, timeout)
            return self._latest if ended else None

    def _run(self) -> None:
        overview, error, broken = self._looked()
        with self._changed:
            self._looking, self._latest = False, Sight(time.monotonic(), overview, error, broken)
            self._changed.notify_all()

    def _looked(self) -> tuple[Overview | None, str | None, bool]:
        try:
            return self._look(), None, False
        except PartboxError as error:
            return None, _in_a_line(error), True
        except psycopg.Error as error:
            return None, _in_a_line(error), False
        except Exception as error:  # what gives the DSN is the application's
            return None, f"{type(error).__name__}: {_in_a_line(error)}", False


def _in_a_line(error: Exception) -> str:
    return masked(" ".join(str(error).split()))[:500] or type(error).__name__
