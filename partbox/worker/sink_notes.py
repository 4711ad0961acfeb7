"""Notes in the row of the process what its sinks have sent, so that who looks at the cluster sees a broker in trouble.

The poller's thread does it, at most once in `APART` seconds. Where nothing was sent since no statement is sent.
"""

import logging
import time
from typing import Any
from uuid import UUID

from psycopg import Connection, Error

from partbox.db.delivery import traffic
from partbox.db.delivery.traffic import Traffic
from partbox.observe.logs.log_event import log_event
from partbox.observe.traffic import TrafficObserver

log = logging.getLogger("partbox.worker")

APART = 2.0  # seconds


class SinkNotes:
    """Those of one process. The poller's thread calls."""

    def __init__(self, observer: TrafficObserver, schema: str, subscription: str) -> None:
        self._observer = observer
        self._schema = schema
        self._subscription = subscription
        self._me: UUID | None = None
        self._noted: list[Traffic] = []
        self._next = 0.0

    def restart(self, me: UUID | None) -> None:
        """A session begins, perhaps under a new identity, whose row says nothing yet."""
        self._me, self._noted = me, []

    def look(self, conn: Connection[Any]) -> None:
        """Note what was sent, if that has changed."""
        now = time.monotonic()
        if now < self._next or self._me is None:
            return
        self._next = now + APART
        sent = self._observer.totals()
        if sent == self._noted:
            return
        try:
            traffic.note(conn, self._schema, self._me, sent)
        except Error as error:
            if conn.closed:
                raise
            text = "what the sinks have sent could not be noted, which is tried again: %s"
            log_event(log, "not_noted", text, error, subscription=self._subscription)
        else:
            self._noted = sent
