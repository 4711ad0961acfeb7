"""Looks at the other nodes of a subscription, by turns.

Each node looks every heartbeat, while there are up to `AT_ONCE` of them. More of them take turns: with 200 nodes each
would otherwise compare 200 leases and 256 owners every second, and the server would spend its time on that. So about
`AT_ONCE` looks a heartbeat are made by all together, and each node makes one in `RARELY` leases at least. Whoever finds
something late or amiss, and whoever changes something, looks every heartbeat.

A look returns only who is late. What was late at the last look's time already has been seen since then: it would have
come back with another heartbeat otherwise. What a step of the database's clock makes of that is the same as before, for
a lease must be over by that clock too.
"""

import random
import time
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from partbox.db.delivery import instances
from partbox.db.delivery.instances import Watch
from partbox.db.sql import Conn
from partbox.protocol.intervals import AT_ONCE, between_beats
from partbox.protocol.lease import SeenHeartbeat, sightings
from partbox.settings import Settings

RARELY = 4  # leases
TURN = (0.8, 1.2)  # of a turn's length: so nodes that started together do not stay together


@dataclass(eq=False)
class PeerMonitor:
    """`seen`: since when (monotonic) the heartbeat of each instance that is late has been seen unchanged. `nodes`: how
    many there were at the last look."""

    _settings: Settings
    _subscription: str
    _before: tuple[datetime, float] | None = None  # the server's clock and mine at the last look
    _next_at: float = 0.0
    seen: dict[UUID, SeenHeartbeat] = field(default_factory=dict)
    nodes: int = 1

    def hurry(self) -> None:
        """Look at the next heartbeat: something changes."""
        self._next_at = 0.0

    def observe(self, conn: Conn) -> Watch | None:
        """Look at them if it is this node's turn; None if not."""
        now = time.monotonic()
        if now < self._next_at:
            return None
        since, before = self._before or (None, now)
        # Of many somebody always has its beat just after this look, which would be late at the next one.
        late_since = since if self.nodes <= AT_ONCE else None
        watch = instances.watch(conn, self._settings.schema_name, self._subscription, late_since)
        unheard = [each for each in watch.late if since is not None and each.heartbeat_at <= since]
        late = [each for each in watch.late if since is None or each.heartbeat_at > since]
        self.seen = sightings(self.seen, late, now) | sightings(self.seen, unheard, before)
        self._before = (watch.clock, now)
        self.nodes = watch.nodes
        self._next_at = now + self._pause(watch)
        return watch

    def _pause(self, watch: Watch) -> float:
        """Seconds until the next look at least; 0: at the next heartbeat."""
        if watch.late or watch.unassigned or watch.orphaned or watch.nodes <= AT_ONCE:
            return 0.0
        return _turn(watch.nodes, self._settings) * random.uniform(*TURN)


def longest_turn(nodes: int, settings: Settings) -> float:
    """Seconds in which each of so many nodes looks at the others at least once, if all is calm."""
    beat = between_beats(nodes, settings.heartbeat, settings.lease)
    return beat if nodes <= AT_ONCE else _turn(nodes, settings) * TURN[1] + beat


def _turn(nodes: int, settings: Settings) -> float:
    return min(settings.heartbeat * nodes / AT_ONCE, RARELY * settings.lease)
