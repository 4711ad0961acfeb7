"""A node's part in the cluster: its processes' rows, everybody's leases, the plan.

One tick a heartbeat, and whenever something changed:

1. Renew the rows of all processes that this node vouches for, in one statement. What is renewed may be trusted until
   the time at which the statement was *sent*, plus the lease, less a margin. A row that is gone was buried: its process
   gets a new identity, and with it drops everything.
2. Look at the others (see `PeerMonitor`). Bury whose lease is over, by the rule of `protocol.lease`; this node
   watches without a break while its own heartbeats have none.
3. Plan (see `planner`), if something has changed.
"""

import logging
import random
import shlex
import socket
import time
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import TypeVar
from uuid import UUID

from psycopg import Error

from partbox.db.connect import check, connect
from partbox.db.delivery import instances, outstanding, proof
from partbox.db.delivery.instances import Renewal, Watch
from partbox.db.delivery.outstanding import LeftOver
from partbox.db.schema import migrate
from partbox.db.sql import Conn
from partbox.errors import SchemaError
from partbox.observe import Observers
from partbox.observe.logs.log_event import log_event
from partbox.platform import boottime, uuid7
from partbox.protocol.intervals import AT_ONCE, between_beats
from partbox.protocol.lease import SeenHeartbeat, Steadiness, breaks, burials, deadline, sightings
from partbox.protocol.outstanding import OutstandingWork
from partbox.settings import Settings
from partbox.supervisor.membership_pool import MembershipPool
from partbox.supervisor.parcel import VERSION
from partbox.supervisor.planner import Planner
from partbox.text.wording import counted
from partbox.worker.slot import PLANS, STOPPING, Slot

T = TypeVar("T")

log = logging.getLogger("partbox.supervisor")
ENTERING = 2.0  # seconds in its lifespan after which a process has a row that says so
RETRY = 0.2  # seconds until a heartbeat that failed is tried again
NO_HEARTBEAT = "no heartbeat, others may take the partitions when the lease is over: %s"
NOT_PLANNED = "heartbeats come through, but registering, burying or planning failed, and is tried again: %s"
WENT_BACK = (
    "the server's history went back: it had confirmed commits until %s and has none after about %s. Events that are "
    "gone may have been delivered; all that exist are"
)
UNKNOWN_PROCESS = (
    "process %d is unknown to the database: another node has buried it, or the commit with which it joined is lost; "
    "it drops everything and goes on under a new identity"
)
UNKNOWN = "cannot determine whether everything is delivered: %s"

RARELY = 4  # leases
TURN = (0.8, 1.2)  # of a turn's length: so nodes that started together do not stay together


@dataclass(eq=False)
class PeerMonitor:
    """Looks at the leases and owners of all nodes of a subscription, in turn with the others.

    Each node looks every heartbeat, while there are up to `AT_ONCE` of them. More of them take turns: with 200 nodes
    each would otherwise compare 200 leases and 256 owners every second, and the server would spend its time on that. So
    about `AT_ONCE` looks a heartbeat are made by all together, and each node makes one in `RARELY` leases at least.
    Whoever finds something late or amiss, and whoever changes something, looks every heartbeat.

    A look returns only who is late. What was late at the last look's time already has been seen since then: it would
    have come back with another heartbeat otherwise. What a step of the database's clock makes of that is the same as
    before, for a lease must be over by that clock too.

    `seen`: since when (monotonic) the heartbeat of each instance that is late has been seen unchanged. `nodes`: how
    many there were at the last look.
    """

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


@dataclass(slots=True, eq=False)
class RegisteredProcess:
    """A process of this node. `vouched`: it works, so its row is to be renewed, or made; `row_leaves`: its row
    says that it is leaving; `announced`: the row that says that it is in its lifespan."""

    slot: Slot
    pid: int
    draining: bool = False
    vouched: bool = True
    row_leaves: bool = False
    announced: UUID | None = None

    @property
    def leaving(self) -> bool:
        """True if it was told to end, by its supervisor or by a signal of its own."""
        return self.draining or self.slot[STOPPING] > 0


class Membership:
    """The membership of one node in one subscription."""

    def __init__(
        self,
        settings: Settings,
        subscription: str,
        dsn: Callable[[], str],
        observers: Observers | None = None,
        database: str = "",
        lifespan: str = "",
    ) -> None:
        self._settings = settings
        self._lifespan = lifespan  # its name
        self._observers = observers or Observers()
        self._schema = settings.schema_name
        self.subscription = subscription
        self._log = partial(log_event, log, subscription=subscription)
        self._supervisor = uuid7()  # tells this start of a node from others of its name, in the order of their starts
        self._pool = MembershipPool(settings, subscription, dsn, database)
        self._planner = Planner(self._schema, subscription, self._observers)
        self.steadiness = Steadiness(settings.lease)
        self._steady_since: float | None = None
        self._last_beat = 0.0
        self._renewed = False  # in the last tick
        self._beats: dict[UUID, Renewal] = {}  # the last ones that the database took
        self._peers = PeerMonitor(settings, subscription)

    def open(self) -> None:
        """Connect; check that schema, cluster and subscription are there. Raises SchemaError, psycopg.Error."""
        with connect(self._pool.dsn(), lease=self._settings.lease, pooler=self._settings.pooler) as conn:
            migrate.check(conn, self._schema)
            check(conn, self._schema)
            if not instances.subscribed(conn, self._schema, self.subscription):
                raise SchemaError(
                    f'there is no subscription {self.subscription!r} in schema "{self._schema}": check the name, or '
                    f"run `partbox subscription create {shlex.quote(self.subscription)}`"
                )
        self._pool.open()

    def close(self) -> None:
        self._pool.close()

    @property
    def beaten_at(self) -> float | None:
        """The time at which the last heartbeat that the database took was sent (monotonic seconds)."""
        return self._last_beat or None

    def nodes(self) -> int:
        """The number of nodes that the subscription had when this one looked last. Any thread."""
        return self._peers.nodes

    def tick(self, processes: Sequence[RegisteredProcess]) -> float:
        """One tick; the seconds until the next is due. psycopg.Error when the database cannot be reached."""
        self._renewed = False
        with self._pool.connection() as conn:
            self._renew(conn, processes)
            self._renewed = True
            self._leave(conn, processes)
            new = [each for each in processes if each.slot.instance is None and each.vouched and not each.leaving]
            self._register(conn, new)  # or buried
            self._tell_entering(conn, processes)
            due = self._attend(conn)
            self._announce(processes)
        return min(self._between_beats(), max(0.01, due))

    def beat(self, processes: Sequence[RegisteredProcess]) -> float:
        """A tick, of which an error is logged; the seconds until the next."""
        try:
            pause, reached = self.tick(processes), True
        except Error as error:
            pause, reached = RETRY, self.failed(error)
        self.steadiness.note(boottime(), reached=reached)
        return pause

    def failed(self, error: Error) -> bool:
        """Log the error of the last tick; True if its heartbeat came through all the same."""
        text = NOT_PLANNED if self._renewed else NO_HEARTBEAT
        self._log("not_planned" if self._renewed else "no_heartbeat", text, error)
        return self._renewed

    def bury(self, processes: Sequence[RegisteredProcess], others: Sequence[RegisteredProcess] = ()) -> None:
        """Free at once the partitions of these processes, which have ended; the `others` of this node go on.

        Those that had been told to end have left; only the others count as buried.
        """
        with self._pool.connection() as conn:
            self._leave(conn, processes)
            ended = {process.slot.instance: process.leaving for process in processes if process.slot.instance}
            announced = {each.announced for each in processes if each.announced}
            left = {each for each, leaving in ended.items() if leaving} | announced
            self._bury(conn, [*ended, *announced], known_dead=True, left=left)
            self._planner.plan(conn)
            self._announce(others)

    def _announce(self, processes: Sequence[RegisteredProcess]) -> None:
        """The processes of this node look at once after a plan that it has made; others see it at their next tick."""
        for process in processes:
            process.slot[PLANS] = self._planner.made

    def outstanding(self) -> OutstandingWork | None:
        """Return the unfinished work of the subscription; None if the database cannot be asked, which is logged."""
        return self._asked(outstanding.outstanding)

    def left_over(self) -> list[LeftOver] | None:
        """Return the kinds of unfinished events; None if the database cannot be asked, which is logged."""
        return self._asked(outstanding.left_over)

    def _asked(self, question: Callable[[Conn, str, str], T]) -> T | None:
        try:
            with self._pool.connection() as conn:
                return question(conn, self._schema, self.subscription)
        except Error as error:
            log_event(log, "loop_error", UNKNOWN, error, subscription=self.subscription, loop="until-empty")
            return None

    def _renew(self, conn: Conn, processes: Sequence[RegisteredProcess]) -> None:
        named = {each.slot.instance: each for each in processes if each.vouched and each.slot.instance is not None}
        boot, wall, now = boottime(), time.time(), time.monotonic()
        leaving = {id: process.leaving for id, process in named.items() if id}
        alive = instances.heartbeat(conn, self._schema, leaving)
        if len(alive) < len(named):
            proof.intact(conn, self._schema, self.subscription)  # in another table nobody is alive
        self._compare(alive)
        lease = self._settings.lease
        for instance, process in named.items():
            if instance in alive:
                if process.row_leaves != leaving[instance]:
                    self._peers.hurry()
                process.row_leaves = leaving[instance]
                process.slot.trust_until(deadline(boot, lease), deadline(wall, lease))
            else:
                self._log("identity_lost", UNKNOWN_PROCESS, process.pid, worker_pid=process.pid)
                process.slot.instance = None
        if self._steady_since is None or breaks(now - self._last_beat, lease):
            self._steady_since = now
        self._last_beat = now

    def _compare(self, beats: dict[UUID, Renewal]) -> None:
        """Log it if the database has forgotten a heartbeat that it had taken: with it go all later commits."""
        taken = {each: beat.at for each, beat in self._beats.items() if each in beats}
        forgotten = [(at, beats[each].before) for each, at in taken.items() if beats[each].before < at]
        if forgotten:
            self._log("history_went_back", WENT_BACK, *(at.isoformat(" ", "seconds") for at in max(forgotten)))
        self._beats = beats

    def _leave(self, conn: Conn, processes: Sequence[RegisteredProcess]) -> None:
        """Mark as leaving those that leave and are not renewed: they are silent, or have ended since."""
        for process in processes:
            if process.leaving and not process.row_leaves and process.slot.instance is not None:
                instances.leave(conn, self._schema, process.slot.instance)
                process.row_leaves = True
                self._peers.hurry()

    def _register(self, conn: Conn, processes: Sequence[RegisteredProcess]) -> None:
        if not processes:
            return
        self._peers.hurry()
        boot, wall, lease = boottime(), time.time(), self._settings.lease
        by_pid = self._insert(conn, [process.pid for process in processes])
        for process in processes:
            process.slot.trust_until(deadline(boot, lease), deadline(wall, lease))
            process.slot.instance = by_pid[process.pid]

    def _insert(self, conn: Conn, pids: list[int]) -> dict[int, UUID]:
        return instances.register(
            conn,
            self._schema,
            subscription=self.subscription,
            node=self._settings.node,
            hostname=socket.gethostname(),
            pids=pids,
            version=VERSION,
            lease=self._settings.lease,
            supervisor=self._supervisor,
        )

    def _tell_entering(self, conn: Conn, processes: Sequence[RegisteredProcess]) -> None:
        """Keep a row for each process that has been in its lifespan for a while, which gets no partitions: so whoever
        looks at the cluster sees why nobody works."""
        now = boottime()
        over = [each for each in processes if each.announced and not each.slot.entering(now)]
        if over:
            rows = [each.announced for each in over if each.announced]
            self._bury(conn, rows, known_dead=True, left=set(rows))
        for each in over:
            each.announced = None
        told = {each.announced: True for each in processes if each.announced}
        alive = instances.heartbeat(conn, self._schema, told) if told else {}
        for each in processes:
            entering = each.slot.entering(now)
            if each.announced not in alive and entering > ENTERING and not each.leaving:
                with conn.transaction():  # nobody sees the row before it says that it is leaving
                    row = self._insert(conn, [each.pid])[each.pid]
                    instances.note_lifespan(conn, self._schema, row, instances.InLifespan(self._lifespan, entering))
                each.announced = row

    def _attend(self, conn: Conn) -> float:
        """Look at the others if it is time, and bury those whose lease is over; seconds until the next lease may be
        over, or the next heartbeat is due."""
        watch = self._peers.observe(conn)
        if watch is None:
            return self._between_beats()
        now = time.monotonic()
        steady_since = now if self._steady_since is None else self._steady_since
        decided = burials(watch.late, self._peers.seen, now, steady_since)
        if decided.due or watch.orphaned:
            self._bury(conn, decided.due, known_dead=False)
        self._planner.attend(conn, watch)
        return self._between_beats() if decided.next_in is None else decided.next_in

    def _between_beats(self) -> float:
        return between_beats(self._peers.nodes, self._settings.heartbeat, self._settings.lease)

    def _bury(self, conn: Conn, victims: Sequence[UUID], *, known_dead: bool, left: Set[UUID] = frozenset()) -> None:
        gone, freed = instances.bury(conn, self._schema, victims, known_dead=known_dead)
        self._peers.hurry()
        self._planner.forget()
        dead = sum(instance not in left for instance in gone)
        if dead:
            self._observers.buried(dead)
        if freed and (dead or not gone):
            self._log("buried", "%s", of_burial(dead, freed), instances=dead, partitions=freed)


def of_burial(buried: int, freed: int) -> str:
    """The fate of the partitions of processes without a lease."""
    what = counted(freed, "partition")
    if not buried:
        return f"{what} had no living owner, and may be claimed"
    return f"{counted(buried, 'process')} died and left {what}, to be claimed by others"
