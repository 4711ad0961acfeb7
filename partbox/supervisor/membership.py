"""A node's part in the cluster: its processes' rows, everybody's leases, the plan.

One tick a second, and whenever something changed:

1. Renew the rows of all processes that this node vouches for, in one statement. What is renewed may be trusted until
   the time at which the statement was *sent*, plus the lease, less a margin. A row that is gone was buried: its process
   gets a new identity, and with it drops everything.
2. Bury. A process's lease is over when the database's clock says so *and* this node has seen the same heartbeat for a
   full lease by its own clock *and* has itself beaten without a break for that long: a database that was down, or whose
   clock stepped, expires nobody.
3. Plan, only when an assignee is gone or the shares differ by more than one; somebody else's plan is left in force.
"""

import logging
import shlex
import socket
import time
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import version
from typing import Any
from uuid import UUID

from psycopg import Connection, Error
from psycopg_pool import ConnectionPool, PoolTimeout
from uuid_utils.compat import uuid7

from partbox.db import deadline as deadlines
from partbox.db import instances, migrate, subscriptions
from partbox.db.connect import check, connect
from partbox.db.deadline import HungError, allowed
from partbox.db.instances import Member
from partbox.errors import SchemaError
from partbox.observe import Observers
from partbox.observe.telling import tell
from partbox.rules.assignment import assign, needs_plan
from partbox.rules.lease import deadline
from partbox.settings import Settings
from partbox.supervisor.wording import of_burial, of_plan
from partbox.worker.owning.slot import STOPPING, Slot, boottime

log = logging.getLogger("partbox.supervisor")

MOST = 2  # connections
CLOSING = 1.0  # seconds that closing waits for connections that are being made
QUICK = (0.5, 3)  # seconds, or this part of the lease: a statement that takes the longer of them hangs
HUNG = "a connection hangs, and no lease was renewed until now; it is made anew: %s"
NO_HEARTBEAT = "no heartbeat, others may take the partitions when the lease is over: %s"


@dataclass(slots=True, eq=False)
class Ward:
    """A process of this node: `vouched` says whether its row is to be renewed, `left` whether that says `leaving`."""

    slot: Slot
    pid: int
    draining: bool = False
    vouched: bool = True
    left: bool = False

    @property
    def leaving(self) -> bool:
        """Was it told to end, by its supervisor or by a signal of its own?"""
        return self.draining or self.slot[STOPPING] > 0


@dataclass(slots=True)
class _Sight:
    heartbeat_at: datetime
    since: float


class Membership:
    """The membership of one node in one subscription."""

    def __init__(
        self,
        settings: Settings,
        subscription: str,
        dsn: Callable[[], str],
        observers: Observers | None = None,
        database: str = "",
    ) -> None:
        self._settings = settings
        self._observers = observers or Observers()
        self._schema = settings.schema_name
        self.subscription = subscription
        self._supervisor = uuid7()  # tells this start of a node from others of its name, in the order of their starts
        self._pool = _pool(settings, dsn, lambda: self._patience, database)
        self._steady_since: float | None = None
        self._last_beat = 0.0
        self._sights: dict[UUID, _Sight] = {}
        self._patience = allowed(settings.lease)  # there is no lease yet that could be lost
        self._still = False  # paused or dropped, which is said once

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
        self._pool.open(wait=False)

    def close(self) -> None:
        self._pool.close(CLOSING)

    @property
    def beaten_at(self) -> float | None:
        """When the last heartbeat that the database took was sent (monotonic seconds)."""
        return self._last_beat or None

    def tick(self, wards: Sequence[Ward]) -> float:
        """One tick; the seconds until the next is due. psycopg.Error when the database cannot be reached."""
        with self._connection() as conn:
            self._renew(conn, wards)
            self._leave(conn, wards)
            self._register(conn, [ward for ward in wards if ward.slot.instance is None and not ward.leaving])
            members = instances.members(conn, self._schema, self.subscription)
            due = self._bury_expired(conn, members)
            self._plan(conn)
        return min(self._settings.heartbeat, max(0.01, due))

    def bury(self, wards: Sequence[Ward]) -> None:
        """Free at once what these processes owned; they have ended.

        Those that had been told to end have left; only the others count as buried.
        """
        with self._connection() as conn:
            self._leave(conn, wards)
            ended = {ward.slot.instance: ward.leaving for ward in wards if ward.slot.instance}
            self._bury(conn, [*ended], known_dead=True, left={each for each, leaving in ended.items() if leaving})
            self._plan(conn)

    def empty(self) -> bool:
        """Is everything delivered that is due?"""
        with self._connection() as conn:
            return instances.empty(conn, self._schema, self.subscription)

    @contextmanager
    def _connection(self) -> Iterator[Connection[Any]]:
        """One of the pool that works."""
        conn = self._working()
        try:
            yield conn
        except HungError as error:
            self._hung(error)
            raise
        finally:
            self._pool.putconn(conn)
        self._patience = max(QUICK[0], self._settings.lease / QUICK[1])

    def _working(self) -> Connection[Any]:
        """The pool's own check would rest for a second after one that is broken."""
        for _ in range(MOST):  # all that the pool may have kept can be broken
            try:
                return self._checked()
            except PoolTimeout:
                raise
            except HungError as error:
                self._hung(error)
            except Error:
                pass
        return self._checked()

    def _checked(self) -> Connection[Any]:
        conn = self._pool.getconn(self._settings.lease)
        try:
            deadlines.of(conn).limit = self._patience
            conn.execute("")
        except BaseException:
            self._pool.putconn(conn)
            raise
        return conn

    def _hung(self, error: HungError) -> None:
        """It was cut while the lease still holds. It may be just that all is slow: the next has longer."""
        self._tell("connection_hung", HUNG, error, loop="membership")
        self._patience = min(self._patience * 2, allowed(self._settings.lease))

    def _renew(self, conn: Connection[Any], wards: Sequence[Ward]) -> None:
        named = {ward.slot.instance: ward for ward in wards if ward.vouched and ward.slot.instance is not None}
        boot, wall, now = boottime(), time.time(), time.monotonic()
        leaving = {id: ward.leaving for id, ward in named.items() if id}
        alive = instances.heartbeat(conn, self._schema, leaving)
        lease = self._settings.lease
        for instance, ward in named.items():
            if instance in alive:
                ward.left = leaving[instance]
                ward.slot.trust_until(deadline(boot, lease), deadline(wall, lease))
            else:
                text = "process %d was buried by another node; it drops everything and goes on under a new identity"
                self._tell("identity_lost", text, ward.pid, worker_pid=ward.pid)
                ward.slot.instance = None
        if self._steady_since is None or now - self._last_beat > lease / 2:
            self._steady_since = now
        self._last_beat = now

    def _leave(self, conn: Connection[Any], wards: Sequence[Ward]) -> None:
        """Note it of those that leave and are not renewed: they are silent, or have ended since."""
        for ward in wards:
            if ward.leaving and not ward.left and ward.slot.instance is not None:
                instances.leave(conn, self._schema, ward.slot.instance)
                ward.left = True

    def _register(self, conn: Connection[Any], wards: Sequence[Ward]) -> None:
        if not wards:
            return
        boot, wall, lease = boottime(), time.time(), self._settings.lease
        by_pid = instances.register(
            conn,
            self._schema,
            subscription=self.subscription,
            node=self._settings.node,
            hostname=socket.gethostname(),
            pids=[ward.pid for ward in wards],
            version=version("partbox"),
            lease=lease,
            supervisor=self._supervisor,
        )
        for ward in wards:
            ward.slot.trust_until(deadline(boot, lease), deadline(wall, lease))
            ward.slot.instance = by_pid[ward.pid]

    def _bury_expired(self, conn: Connection[Any], members: Sequence[Member]) -> float:
        """Bury whoever is over; seconds until the next one might be."""
        now = time.monotonic()
        before, self._sights = self._sights, {}
        for member in members:
            seen = before.get(member.instance_id)
            unchanged = seen is not None and seen.heartbeat_at == member.heartbeat_at
            self._sights[member.instance_id] = seen if seen and unchanged else _Sight(member.heartbeat_at, now)
        waits = {member.instance_id: self._wait(member, now) for member in members}
        victims = [instance for instance, wait in waits.items() if wait <= 0]
        self._bury(conn, victims, known_dead=False)
        return min((wait for wait in waits.values() if wait > 0), default=self._settings.heartbeat)

    def _wait(self, member: Member, now: float) -> float:
        """Seconds until this node may bury the member; 0 or less: now."""
        steady = self._steady_since
        unchanged = member.lease - (now - self._sights[member.instance_id].since)
        unbroken = member.lease - (now - steady) if steady is not None else member.lease
        return max(member.left, unchanged, unbroken)

    def _bury(
        self, conn: Connection[Any], victims: Sequence[UUID], *, known_dead: bool, left: Set[UUID] = frozenset()
    ) -> None:
        gone, freed = instances.bury(conn, self._schema, victims, known_dead=known_dead)
        for instance in gone:
            self._sights.pop(instance, None)
        dead = len([instance for instance in gone if instance not in left])
        if dead:
            self._observers.buried(dead)
        if freed and (dead or not gone):
            self._tell("buried", "%s", of_burial(dead, freed), instances=dead, partitions=freed)

    def _plan(self, conn: Connection[Any]) -> None:
        members = [
            member.instance_id
            for member in instances.members(conn, self._schema, self.subscription)
            if not member.draining
        ]
        seen = instances.assignees(conn, self._schema, self.subscription)
        self._say(conn, still=not seen)
        if not seen or not needs_plan(seen, members):
            return
        planned = assign(seen, members)
        moved = sum(before != after for before, after in zip(seen, planned, strict=True))
        if instances.plan(conn, self._schema, self.subscription, members, seen, planned):
            self._observers.planned(moved)
            text = of_plan(moved, len(members))
            self._tell("planned", "%s", text, partitions=moved, instances=len(members))

    def _say(self, conn: Connection[Any], *, still: bool) -> None:
        """Once, when the subscription is paused, and when it goes on."""
        if still == self._still:
            return
        paused = still and subscriptions.paused(conn, self._schema, self.subscription)
        if paused is None:
            text = "subscription %r does not exist any more: stop this worker"
            self._tell("subscription_gone", text, self.subscription)
        elif paused:
            text = "subscription %r is paused: nothing is delivered until `partbox subscription resume`"
            self._tell("paused", text, self.subscription)
        elif not still:
            self._tell("resumed", "subscription %r is delivered again", self.subscription)
        self._still = paused is not False

    def _tell(self, name: str, text: str, *arguments: object, **fields: Any) -> None:
        tell(log, name, text, *arguments, subscription=self.subscription, **fields)


class _Pool(ConnectionPool[Connection[Any]]):
    dsn: Callable[[], str]


def _pool(settings: Settings, dsn: Callable[[], str], patience: Callable[[], float], database: str) -> _Pool:
    """At most two connections, each opened with the DSN of that moment and the options of a worker's.

    Its own threads log by its name alone, so that names the database, too, among several.
    """

    class Fresh(Connection[Any]):
        @classmethod
        def connect(cls, conninfo: str = "", **_: Any) -> Any:
            name = "partbox supervisor"
            return connect(dsn(), lease=settings.lease, pooler=settings.pooler, name=name, limit=patience())

    pool = _Pool(
        "",
        connection_class=Fresh,
        min_size=1,
        max_size=MOST,
        open=False,
        name=f"partbox supervisor of {database}" if database else "partbox supervisor",
        reconnect_timeout=0.0,
    )
    pool.dsn = dsn
    return pool
