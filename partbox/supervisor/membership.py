"""The membership of a node in the cluster: the rows of its processes, the leases of all nodes, and the plan.

A tick comes with each heartbeat, and whenever something has changed: it renews the rows of the node's processes,
observes the other nodes and buries instances whose lease is over, and plans if necessary."""

import logging
import random
import shlex
import socket
import time
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from importlib.metadata import version
from typing import Final, TypeVar
from uuid import UUID

from psycopg import Error

from partbox.db.connect import check_server, connect
from partbox.db.delivery import instances, outstanding, proof
from partbox.db.delivery.instances import MembershipView, Renewal
from partbox.db.delivery.outstanding import UnfinishedEvents
from partbox.db.schema import migrate
from partbox.db.sql import Conn
from partbox.errors import SchemaError
from partbox.observe import Observers
from partbox.observe.logs.log_event import log_event
from partbox.platform import boottime, uuid7
from partbox.protocol.intervals import FULL_SHARE_NODES, beat_interval
from partbox.protocol.lease import (
    HeartbeatStreak,
    SeenHeartbeat,
    breaks_watch,
    extra_patience,
    find_burials,
    measure_delay,
    trust_deadline,
    update_sightings,
)
from partbox.protocol.outstanding import OutstandingWork
from partbox.settings import Settings
from partbox.supervisor.membership_pool import MembershipPool
from partbox.supervisor.planner import Planner
from partbox.text.wording import format_count
from partbox.worker.slot import PLAN_COUNT, STOPPING, Slot

T = TypeVar("T")

log = logging.getLogger("partbox.supervisor")
# Looked up at the import, because an application may change `sys.path` later.
VERSION: Final = version("partbox")
LIFESPAN_NOTED_AFTER = 2.0  # seconds in its lifespan after which a process gets a row that shows it
RETRY_PAUSE = 0.2  # seconds until a failed heartbeat is tried again
NO_HEARTBEAT = "no heartbeat: other processes may take the partitions when the lease is over: %s"
NOT_PLANNED = (
    "heartbeats succeed, but registering processes, removing dead ones or planning partitions failed, and is retried: "
    "%s"
)
WENT_BACK = (
    "the server's history went back: it had confirmed commits until %s and has none after about %s. Lost events may "
    "have been delivered; all existing events are delivered"
)
UNKNOWN_PROCESS = (
    "process %d is unknown to the database: another node has declared it dead, or the commit with which it joined is "
    "lost; the process drops all its work and goes on under a new identity"
)
QUERY_FAILED = "cannot determine whether everything is delivered: %s"

MAX_ROTATION_LEASES = 4  # leases
# Random factors of a turn's length, so that nodes that started together do not stay together.
ROTATION_JITTER = (0.8, 1.2)


@dataclass(eq=False)
class PeerMonitor:
    """An observer that finds processes with overdue heartbeats and partitions without an owner, on all nodes.

    It observes one subscription. Up to `FULL_SHARE_NODES` nodes observe at every heartbeat. More take turns: with 200
    nodes, each would otherwise compare 200 leases and 256 owners every second, and the server would spend its time on
    that. A node that finds something late or amiss, or changes something, observes at every heartbeat.

    `late_peers`: since when (monotonic) the heartbeat of each late instance is unchanged. `node_count`: their number at
    the last observation."""

    _settings: Settings
    _subscription: str
    # The server's clock and this node's at the last observation.
    _last_observed: tuple[datetime, float] | None = None
    _next_at: float = 0.0
    late_peers: dict[UUID, SeenHeartbeat] = field(default_factory=dict)
    node_count: int = 1

    def observe_soon(self) -> None:
        """Check the heartbeats of all nodes at this node's next heartbeat, even if another node's turn would come
        first."""
        # Something is about to change then.
        self._next_at = 0.0

    def observe(self, conn: Conn) -> MembershipView | None:
        """Query which processes are late with their heartbeat and which partitions lack an owner."""
        # An observation returns only late instances. An instance that was already late at the last observation would
        # have come back with another heartbeat, so it counts as seen since then. A step of the database's clock does no
        # harm, because a lease must be over by that clock too.
        # Only processes of the subscription are queried. It returns None if it is not this node's turn.
        now = time.monotonic()
        if now < self._next_at:
            return None
        since, before = self._last_observed or (None, now)
        # With many nodes some heartbeat always comes just after this observation, and would be late at the next one.
        late_since = since if self.node_count <= FULL_SHARE_NODES else None
        watch = instances.read_membership(conn, self._settings.schema_name, self._subscription, late_since)
        unchanged = [each for each in watch.late_members if since is not None and each.heartbeat_at <= since]
        late = [each for each in watch.late_members if since is None or each.heartbeat_at > since]
        self.late_peers = update_sightings(self.late_peers, late, now) | update_sightings(
            self.late_peers, unchanged, before
        )
        self._last_observed = (watch.clock, now)
        self.node_count = watch.nodes
        self._next_at = now + self._compute_pause(watch)
        return watch

    def _compute_pause(self, watch: MembershipView) -> float:
        # The result is the minimum of seconds until this node observes the others again. Nodes that take turns make
        # about `FULL_SHARE_NODES` observations per heartbeat together, and each node one in `MAX_ROTATION_LEASES`
        # leases at least.
        # 0 means at the next heartbeat.
        if watch.late_members or watch.has_unassigned or watch.has_orphaned or watch.nodes <= FULL_SHARE_NODES:
            return 0.0
        return _compute_rotation(watch.nodes, self._settings) * random.uniform(*ROTATION_JITTER)


def compute_longest_rotation(nodes: int, settings: Settings) -> float:
    """Return the longest time after which a node checks the other nodes again, if nothing is wrong (seconds)."""
    # `nodes` nodes take turns in observing each other.
    beat = beat_interval(nodes, settings.heartbeat, settings.lease)
    return beat if nodes <= FULL_SHARE_NODES else _compute_rotation(nodes, settings) * ROTATION_JITTER[1] + beat


def _compute_rotation(nodes: int, settings: Settings) -> float:
    return min(settings.heartbeat * nodes / FULL_SHARE_NODES, MAX_ROTATION_LEASES * settings.lease)


@dataclass(slots=True, eq=False)
class RegisteredProcess:
    """A worker process of this node, with the state of its row in the database."""

    # `is_vouched`: it works, so its row is inserted or renewed. `is_row_leaving`: the row says that it leaves.
    # `lifespan_row`: the row of a process in its lifespan.

    slot: Slot
    pid: int
    is_draining: bool = False
    is_vouched: bool = True
    is_row_leaving: bool = False
    lifespan_row: UUID | None = None

    @property
    def is_leaving(self) -> bool:
        """True if the worker process was asked to end, by its supervisor or by a signal of its own."""
        return self.is_draining or self.slot[STOPPING] > 0


class Membership:
    """The registration of a node's worker processes in the database, for one subscription.

    It renews leases, detects dead processes of other nodes, and plans the owner of each partition. `lifespan` is the
    name of the lifespan."""

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
        self._lifespan_label = lifespan
        self._observers = observers or Observers()
        self._schema = settings.schema_name
        self.subscription = subscription
        self._log = partial(log_event, log, subscription=subscription)
        # This id tells a start of a node from others of its name, in the order of their starts.
        self._supervisor_id = uuid7()
        self._pool = MembershipPool(settings, subscription, dsn, database)
        self._planner = Planner(self._schema, subscription, self._observers)
        self.heartbeat_streak = HeartbeatStreak(settings.lease)
        self._steady_since: float | None = None
        self._last_renewed_at = 0.0
        # The seconds by which this node's own heartbeats are late.
        self._delay = 0.0
        self._is_renewed = False
        # Until then, a registration without an answer may arrive.
        self._strays_until = 0.0
        # The last renewals that the database has confirmed.
        self._renewals: dict[UUID, Renewal] = {}
        self._peers = PeerMonitor(settings, subscription)

    def open(self) -> None:
        """Check that the database can be used, and begin to open connections to it. Raise SchemaError if it cannot."""
        # Its schema, its cluster and the subscription are checked. `psycopg.Error` is raised if the database cannot be
        # reached.
        with connect(self._pool.dsn(), lease=self._settings.lease, pooler=self._settings.pooler) as conn:
            migrate.check_schema_version(conn, self._schema)
            check_server(conn, self._schema)
            if not instances.is_subscribed(conn, self._schema, self.subscription):
                raise SchemaError(
                    f'there is no subscription {self.subscription!r} in schema "{self._schema}": check the name, or '
                    f"run `partbox subscription create {shlex.quote(self.subscription)}`"
                )
        self._pool.open()

    def close(self) -> None:
        self._pool.close()

    @property
    def last_heartbeat_at(self) -> float | None:
        """The time at which this node's last successful heartbeat was sent (monotonic seconds), or None."""
        return self._last_renewed_at or None

    def count_nodes(self) -> int:
        """Return how many nodes delivered for the subscription when last observed. Any thread may call this."""
        # This node makes the observations.
        return self._peers.node_count

    def tick(self, processes: Sequence[RegisteredProcess]) -> float:
        """Renew the leases of this node's processes. Return the seconds until the next call is due."""
        # A renewed lease may be trusted until the time at which the statement was *sent*, plus the lease, less a
        # margin. A missing row was buried: its process gets a new identity, and drops everything with the old one.
        # Other nodes are observed, and owners planned, if needed. `psycopg.Error` is raised if the database cannot be
        # reached.
        self._is_renewed = False
        with self._pool.connection() as conn:
            self._renew(conn, processes)
            self._is_renewed = True
            self._mark_leaving(conn, processes)
            self._bury_strays(conn, processes)
            new = [each for each in processes if each.slot.instance is None and each.is_vouched and not each.is_leaving]
            # Processes are new, or were buried in this tick.
            self._register(conn, new)
            self._note_lifespans(conn, processes)
            due = self._watch_peers(conn)
            self._publish_plans(processes)
        return min(self._compute_beat_interval(), max(0.01, due))

    def try_tick(self, processes: Sequence[RegisteredProcess]) -> float:
        """Run `tick`, but log a database error instead of raising it. Return the seconds until the next call."""
        try:
            pause, reached = self.tick(processes), True
        except Error as error:
            pause, reached = RETRY_PAUSE, self.log_failed_tick(error)
        self.heartbeat_streak.note_look(boottime(), reached=reached)
        return pause

    def log_failed_tick(self, error: Error) -> bool:
        """Log a database error of `tick`. Return True if the leases of this node's processes were renewed before the
        error."""
        # A round consists of heartbeat, observation and planning, and the error has ended it.
        text = NOT_PLANNED if self._is_renewed else NO_HEARTBEAT
        self._log("not_planned" if self._is_renewed else "no_heartbeat", text, error)
        return self._is_renewed

    def bury(self, processes: Sequence[RegisteredProcess], others: Sequence[RegisteredProcess] = ()) -> None:
        """Free the partitions of worker processes that have ended, without waiting until their leases expire."""
        # Processes that were asked to end do not count as dead.
        with self._pool.connection() as conn:
            self._mark_leaving(conn, processes)
            ended = {process.slot.instance: process.is_leaving for process in processes if process.slot.instance}
            lifespan_row = {each.lifespan_row for each in processes if each.lifespan_row}
            left = {each for each, leaving in ended.items() if leaving} | lifespan_row
            self._bury(conn, [*ended, *lifespan_row], known_dead=True, left=left)
            self._planner.plan(conn)
            self._publish_plans(others)

    def _publish_plans(self, processes: Sequence[RegisteredProcess]) -> None:
        # This node's processes check their partitions at once. Others see the plan at their next check.
        for process in processes:
            process.slot[PLAN_COUNT] = self._planner.plan_count

    def find_outstanding_work(self) -> OutstandingWork | None:
        """Query the unfinished work of the subscription. Return None if the query failed, which is logged."""
        return self._query(outstanding.read_outstanding)

    def list_unfinished_events(self) -> list[UnfinishedEvents] | None:
        """Query the number of unfinished events of the subscription, by kind. Return None if the query failed."""
        # The failure is logged.
        return self._query(outstanding.count_unfinished)

    def _query(self, query: Callable[[Conn, str, str], T]) -> T | None:
        try:
            with self._pool.connection() as conn:
                return query(conn, self._schema, self.subscription)
        except Error as error:
            log_event(log, "loop_error", QUERY_FAILED, error, subscription=self.subscription, loop="until-empty")
            return None

    def _renew(self, conn: Conn, processes: Sequence[RegisteredProcess]) -> None:
        # Only processes that this node vouches for are renewed. A process whose row no longer exists loses its
        # identity.
        by_instance = {
            each.slot.instance: each for each in processes if each.is_vouched and each.slot.instance is not None
        }
        # Read the clocks before the statement is sent: trust counts from there.
        # The others count from a later moment, when the heartbeat is written. So this process stops trusting its lease
        # before another one may bury it.
        boot, wall, now = boottime(), time.time(), time.monotonic()
        leaving = {id: process.is_leaving for id, process in by_instance.items() if id}
        alive = instances.renew_heartbeats(conn, self._schema, leaving)
        if len(alive) < len(by_instance):
            # If the table was replaced by another, all processes would look dead.
            proof.check_intact(conn, self._schema, self.subscription)
        self._check_history(alive)
        lease = self._settings.lease
        for instance, process in by_instance.items():
            if instance in alive:
                if process.is_row_leaving != leaving[instance]:
                    self._peers.observe_soon()
                process.is_row_leaving = leaving[instance]
                process.slot.trust_until(trust_deadline(boot, lease), trust_deadline(wall, lease))
            else:
                self._log("identity_lost", UNKNOWN_PROCESS, process.pid, worker_pid=process.pid)
                process.slot.instance = None
        gap = now - self._last_renewed_at
        if self._steady_since is None or breaks_watch(gap, lease):
            self._steady_since = now
        self._delay = measure_delay(self._delay, gap, self._compute_beat_interval()) if self._last_renewed_at else 0.0
        self._last_renewed_at = now

    def _check_history(self, renewals: dict[UUID, Renewal]) -> None:
        # An error is logged if the database has lost a heartbeat that it had confirmed.
        # All later commits are then lost too.
        taken = {each: beat.at for each, beat in self._renewals.items() if each in renewals}
        forgotten = [(at, renewals[each].before) for each, at in taken.items() if renewals[each].before < at]
        if forgotten:
            self._log("history_went_back", WENT_BACK, *(at.isoformat(" ", "seconds") for at in max(forgotten)))
        self._renewals = renewals

    def _mark_leaving(self, conn: Conn, processes: Sequence[RegisteredProcess]) -> None:
        # Processes that were asked to end, and no longer renew their rows, are marked as leaving.
        # Such processes are silent or have ended.
        for process in processes:
            if process.is_leaving and not process.is_row_leaving and process.slot.instance is not None:
                instances.mark_leaving(conn, self._schema, process.slot.instance)
                process.is_row_leaving = True
                self._peers.observe_soon()

    def _register(self, conn: Conn, processes: Sequence[RegisteredProcess]) -> None:
        if not processes:
            return
        self._peers.observe_soon()
        boot, wall, lease = boottime(), time.time(), self._settings.lease
        by_pid = self._insert(conn, [process.pid for process in processes])
        for process in processes:
            # Trust comes before the identity, which begins the work.
            process.slot.trust_until(trust_deadline(boot, lease), trust_deadline(wall, lease))
            process.slot.instance = by_pid[process.pid]

    def _insert(self, conn: Conn, pids: list[int]) -> dict[int, UUID]:
        try:
            return instances.register_instances(
                conn,
                self._schema,
                subscription=self.subscription,
                node=self._settings.node,
                hostname=socket.gethostname(),
                pids=pids,
                version=VERSION,
                lease=self._settings.lease,
                supervisor=self._supervisor_id,
            )
        except Error:
            # The server runs a statement for as long as a lease after its client has given up.
            self._strays_until = time.monotonic() + 2 * self._settings.lease
            raise

    def _bury_strays(self, conn: Conn, processes: Sequence[RegisteredProcess]) -> None:
        # A row without a process would get partitions that nobody works on until its lease is over.
        if time.monotonic() < self._strays_until:
            known = [id for each in processes for id in (each.slot.instance, each.lifespan_row) if id]
            strays = instances.list_strays(conn, self._schema, self._supervisor_id, known)
            if strays:
                self._bury(conn, strays, known_dead=True, left={*strays})

    def _note_lifespans(self, conn: Conn, processes: Sequence[RegisteredProcess]) -> None:
        # The database shows which processes are still in the application's startup code (lifespan).
        # Each process that has been there for long gets a row without partitions, to show why no process works.
        now = boottime()
        entered = [each for each in processes if each.lifespan_row and not each.slot.count_lifespan_seconds(now)]
        if entered:
            rows = [each.lifespan_row for each in entered if each.lifespan_row]
            self._bury(conn, rows, known_dead=True, left=set(rows))
        for each in entered:
            each.lifespan_row = None
        leaving_rows = {each.lifespan_row: True for each in processes if each.lifespan_row}
        alive = instances.renew_heartbeats(conn, self._schema, leaving_rows) if leaving_rows else {}
        for each in processes:
            entering = each.slot.count_lifespan_seconds(now)
            if each.lifespan_row not in alive and entering > LIFESPAN_NOTED_AFTER and not each.is_leaving:
                # One transaction, so that the row is never visible without the mark that it is leaving.
                with conn.transaction():
                    row = self._insert(conn, [each.pid])[each.pid]
                    instances.note_lifespan(
                        conn, self._schema, row, instances.LifespanState(self._lifespan_label, entering)
                    )
                each.lifespan_row = row

    def _watch_peers(self, conn: Conn) -> float:
        # This observes the other nodes, frees the partitions of dead processes by the rule of `protocol.lease`, and
        # plans owners. This node watches without a break while its own heartbeats have none.
        # Returned are the seconds until the next lease may be over, or the next heartbeat is due.
        watch = self._peers.observe(conn)
        if watch is None:
            return self._compute_beat_interval()
        now = time.monotonic()
        steady_since = now if self._steady_since is None else self._steady_since
        extra = extra_patience(self._delay, self._settings.lease)
        decision = find_burials(watch.late_members, self._peers.late_peers, now, steady_since, extra)
        if decision.due_instances or watch.has_orphaned:
            self._bury(conn, decision.due_instances, known_dead=False)
        self._planner.plan_if_changed(conn, watch)
        return self._compute_beat_interval() if decision.next_in is None else decision.next_in

    def _compute_beat_interval(self) -> float:
        return beat_interval(self._peers.node_count, self._settings.heartbeat, self._settings.lease)

    def _bury(self, conn: Conn, victims: Sequence[UUID], *, known_dead: bool, left: Set[UUID] = frozenset()) -> None:
        # Ended processes are removed from the database, and the partitions that this frees are logged.
        # Instances in `left` ended as asked, and do not count as dead.
        gone, freed = instances.bury_instances(conn, self._schema, victims, known_dead=known_dead)
        self._peers.observe_soon()
        self._planner.invalidate()
        dead = sum(instance not in left for instance in gone)
        if dead:
            self._observers.buried(dead)
        if freed and (dead or not gone):
            self._log("buried", "%s", describe_burial(dead, freed), instances=dead, partitions=freed)


def describe_burial(buried: int, freed: int) -> str:
    """Return a log message about partitions that were freed because their owners have died."""
    # `buried` processes died and left them, or they had no living owner.
    what = format_count(freed, "partition")
    if not buried:
        return f"{what} had no living owner, and may be claimed"
    return f"{format_count(buried, 'process')} died and left {what}, to be claimed by others"
