"""A note in the row of the process, for people who look at the cluster."""

import time
from abc import ABC, abstractmethod
from typing import Any
from uuid import UUID

from psycopg import Connection, Error

from partbox.worker.context import Context


class Note(ABC):
    """One thing of one process, noted when it has changed, and not again within `apart` seconds."""

    text: str
    """The log line when that fails."""

    def __init__(self, context: Context, apart: float) -> None:
        self._context = context
        self._apart = apart
        self._me: UUID | None = None
        self._ever = False  # something was noted under this identity
        self._noted: tuple[Any, ...] | None = ()  # what the row says; None: nobody knows
        self._noted_at = 0.0

    def restart(self, me: UUID | None) -> None:
        """A session begins: what was noted before may be lost. The row of a new identity says nothing yet."""
        self._ever = self._ever and me == self._me
        self._me, self._noted = me, None if self._ever else ()

    def look(self, conn: Connection[Any]) -> None:
        now = time.monotonic()
        if self._me is None or now < self._noted_at + self._apart or (found := self._found(now)) == self._noted:
            return
        self._noted_at = now
        try:
            self._write(conn, self._me, found, now)
        except Error as error:
            if conn.closed:
                raise
            self._context.log("not_noted", self.text, error)
        else:
            self._noted, self._ever = found, True

    @abstractmethod
    def _found(self, now: float) -> tuple[Any, ...]: ...
    @abstractmethod
    def _write(self, conn: Connection[Any], me: UUID, found: tuple[Any, ...], now: float) -> None: ...
