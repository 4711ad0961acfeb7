"""Drains, each of which delivers the events that are due now, one at a time, in the order of the log. A drain is a
worker without threads, which owns the partitions with due events while it runs."""

import asyncio
import os
import socket
from collections.abc import Coroutine
from math import inf
from typing import Any

from partbox import __version__
from partbox.db import session
from partbox.db.connect import connect
from partbox.db.deadline import WatchedConnection
from partbox.db.delivery import instances
from partbox.errors import PartboxError
from partbox.events import ClaimContext, DeliveredEvent
from partbox.observe import Observers
from partbox.outbox import Outbox
from partbox.testing import statements
from partbox.testing.outcomes import Drained, OutcomeRecorder, Settled
from partbox.testing.sessions import NAME, Sessions
from partbox.testing.stepping import Await, InlineEventLoop, LowestIdQueue, step_worker
from partbox.worker.runners.dispatcher import RunnerSetup
from partbox.worker.session import Session
from partbox.worker.slot import STOPPING, Slot
from partbox.worker.worker import Worker

# Seconds. Somebody may stop in a debugger inside a handler.
LEASE = 3_600.0
# The maximum number of events of one drain. If there are more, a handler publishes the events that it handles.
MOST = 10_000


class Drainer:
    """A test helper that delivers all due events of an outbox without starting a worker.

    Events are delivered in the caller's thread or beside the caller's event loop. Such a delivery is called a drain.
    The drains share connections, which stay open between them."""

    def __init__(self, outbox: Outbox, dsn: str, sessions: Sessions | None = None) -> None:
        self.outbox = outbox
        self._dsn = dsn
        self.sessions = sessions or Sessions()
        self._keeps_sessions = sessions is not None
        self._effects_connection: WatchedConnection | None = None
        self._runner: asyncio.Runner | None = None

    def drain(self, subscription: str) -> Drained:
        """Deliver all due events of a subscription in this thread."""
        # An event loop for `async def` handlers is kept until `close`.
        if asyncio._get_running_loop() is not None:
            raise PartboxError("drain() would block the event loop that runs here: use `await kit.drain_async()`")
        return self._run_drain(subscription, self.await_it)

    async def drain_async(self, subscription: str) -> Drained:
        """Deliver all due events of a subscription, with `async def` handlers in the caller's event loop."""
        # All other handlers run in a thread.
        loop = asyncio.get_running_loop()

        def await_it(coroutine: Coroutine[Any, Any, None]) -> None:
            asyncio.run_coroutine_threadsafe(coroutine, loop).result()

        return await asyncio.to_thread(self._run_drain, subscription, await_it)

    def await_it(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine to its end in the event loop that is kept for test deliveries."""
        if self._runner is None:
            self._runner = asyncio.Runner()
        self._runner.run(coroutine)

    def connection(self, role: str = "membership") -> WatchedConnection:
        """Return the autocommit database connection that test deliveries use for a role, such as "membership"."""
        # It is for use while no drain runs.
        return self.sessions.get(self._dsn, self.outbox.settings, role)

    def effects(self) -> WatchedConnection:
        """Return a database connection for transactional handlers."""
        # Handlers may change its session, so the connection is not kept for the next test.
        if self._effects_connection is None or self._effects_connection.closed:
            settings = self.outbox.settings
            self._effects_connection = connect(
                self._dsn, lease=settings.lease, pooler=settings.pooler, name=NAME, is_lent=True
            )
        return self._effects_connection

    def dsn_of_effects(self) -> str:
        """Return the DSN for connections of `async def` transactional handlers."""
        # Everything else uses the connections of the drains.
        return self._dsn

    def close(self) -> None:
        """Close the event loop and the database connections, except connections that are shared with other kits."""
        self._disconnect(self._keeps_sessions)
        runner, self._runner = self._runner, None
        if runner is not None:
            runner.close()

    def _run_drain(self, subscription: str, await_it: Await) -> Drained:
        self.outbox.handlers.require_handler(subscription, self.outbox.settings)
        drain = Drain(self, subscription, await_it)
        try:
            return drain.run()
        except BaseException:
            self._disconnect()
            raise

    def _disconnect(self, keep_sessions: bool = False) -> None:
        effects, self._effects_connection = self._effects_connection, None
        if effects is not None:
            effects.close()
        if not keep_sessions:
            self.sessions.close()


class Drain:
    """One delivery, in a test, of all due events of a subscription.

    It uses the database connections of `drainer`."""

    def __init__(self, drainer: Drainer, subscription: str, await_it: Await) -> None:
        outbox = drainer.outbox
        self._drainer = drainer
        self._schema = outbox.settings.schema_name
        self._subscription = subscription
        self._slot = Slot.create_local()
        self._recorder = recorder = OutcomeRecorder()
        self._queue = LowestIdQueue(recorder.ran)
        self._worker = worker = Worker(
            outbox.settings,
            outbox.handlers,
            outbox.codecs,
            self._slot,
            subscription=subscription,
            concurrency=1,
            dsn=drainer.dsn_of_effects,
            is_replaceable=False,
            observers=Observers([*outbox.handlers.observers, recorder]),
            runner_setup=RunnerSetup(
                # A time slice ends at once, so that each has one event.
                self._queue,
                InlineEventLoop(await_it),
                slice_seconds=-inf,
            ),
        )
        self._poller = worker.poller
        self._transactor = worker.poller.transactor
        self._lends = self._transactor is not None and self._transactor.effects.needs_lent_conn
        if self._transactor is not None:
            self._transactor.limit_to_one()

    def run(self) -> Drained:
        """Enter the lifespan, deliver all due events, leave the lifespan, and return the outcome of each event."""
        # An error of the lifespan is raised, or an exception that ends a test, such as Ctrl-C or `pytest.fail`.
        lifespan = self._worker.lifespan
        lifespan.enter()
        try:
            drained = self._deliver_all()
        finally:
            lifespan.leave(self._drainer.outbox.settings.drain_timeout)
        if lifespan.error is not None:
            raise lifespan.error
        return drained

    def _deliver_all(self) -> Drained:
        self._open_session()
        self._check_no_worker()
        pid = os.getpid()
        joined = instances.register_instances(
            self._conn,
            self._schema,
            subscription=self._subscription,
            node="testing",
            hostname=socket.gethostname(),
            pids=[pid],
            version=__version__,
            lease=LEASE,
        )
        self._slot.instance = self._me = joined[pid]
        self._slot.trust_until(inf, inf)
        try:
            self._worker.notify_started()
            if self._assign_partitions():
                self._poller.begin_session(self._session, checked=self._checked)
                while self._run_round() and self._assign_partitions():
                    pass
                self._release_partitions()
            else:
                session.require_subscription(self._conn, self._schema, self._subscription)
            return self._end_membership()
        except BaseException:
            self._release_owned()
            raise

    def _open_session(self) -> None:
        self._conn, log = self._drainer.connection(), self._drainer.connection("log")
        self._session = Session(log, log, self._drainer.effects() if self._lends else None)
        self._checked = not self._drainer.sessions.is_first(log, self._schema)

    def _check_no_worker(self) -> None:
        """Raise PartboxError if a worker delivers events from the database at the same time."""
        # Dead processes are removed once their lease has ended.
        members = instances.list_members(self._conn, self._schema, self._subscription)
        for member in members:
            if member.lease_left > 0:
                raise PartboxError(
                    f"a worker delivers from this database already (node {member.node!r}), and would share the events "
                    "with drain(): stop it first, or use its wait_until_empty()"
                )
        if members:
            victims = [member.instance_id for member in members]
            instances.bury_instances(self._conn, self._schema, victims, known_dead=False)

    def _assign_partitions(self) -> bool:
        return statements.assign(self._conn, self._schema, self._subscription, self._me)

    def _run_round(self) -> bool:
        """Take partitions, read and deliver their events, and save the outcomes, once."""
        # False means that there was nothing to do.
        self._poller.force_tick()
        has_read = self._poller.run_step(self._session)
        has_stepped = False
        while self._recorder.fatal is None and self._deliver_next():
            has_stepped = True
            if len(self._recorder.outcomes) > MOST:
                raise PartboxError(f"drain() has delivered {MOST} events and more come: a handler publishes them")
        return (self._save_outcomes() or has_stepped or has_read) and self._recorder.fatal is None

    def _deliver_next(self) -> bool:
        """Deliver the event with the lowest id. Return False if no event is left."""
        # If the event is for a transactional handler, the queue of its aggregate is handed over to the transactional
        # handlers.
        waiting = None if self._transactor is None else self._transactor.choose_first_partition()
        if waiting is None:
            return step_worker(self._worker)
        self._queue.before = waiting
        has_stepped = step_worker(self._worker)
        self._queue.before = inf
        return has_stepped or self._run_transactional() or step_worker(self._worker)

    def _run_transactional(self) -> bool:
        """Run one transaction of waiting events with their handlers. Return True if a handler got its event."""
        assert self._transactor is not None
        before = len(self._recorder.outcomes)
        has_ended = self._transactor.run_once()
        # The transaction has failed, so the events are read again.
        if self._poller.restart_asked.is_set():
            self._open_session()
            self._poller.begin_session(self._session, checked=self._checked)
        return has_ended and len(self._recorder.outcomes) > before

    def _save_outcomes(self) -> bool:
        if not self._worker.engine.saves.count_unsaved().partition_count:
            return False
        self._poller.saver.save(self._session.saving, self._me)
        return True

    def _release_partitions(self) -> None:
        self._slot[STOPPING] = 1.0
        self._poller.ownership.drain_all()
        self._save_outcomes()
        # A cut page is read to its end.
        while self._worker.engine.claims.count_partitions():
            self._poller.run_step(self._session)
            self._save_outcomes()

    def _end_membership(self) -> Drained:
        # The held events (which wait behind another of their key) come after the others.
        outcomes = self._recorder.outcomes
        held = self._list_held() if any(each.state not in ("done", "ignored") for each in outcomes) else []
        statements.leave(self._conn, self._schema, self._subscription, self._me)
        self._close_effects()
        if self._recorder.fatal is not None:
            raise self._recorder.fatal
        return Drained([*outcomes, *held])

    def _list_held(self) -> list[Settled]:
        found = statements.held(self._conn, self._schema, self._subscription, self._me)
        claims = {
            each.epoch: ClaimContext(each.epoch, self._subscription, self._drainer.outbox.codecs) for each in found
        }
        events = [DeliveredEvent(each.row, claims[each.epoch], each.attempts + 1) for each in found]
        ran = self._recorder.ran
        return [Settled(event, None, "held", event.attempt - 1) for event in events if event.id not in ran]

    def _close_effects(self) -> None:
        if self._transactor is not None:
            self._transactor.effects.close()

    def _release_owned(self) -> None:
        """Give up all partitions that this test delivery owns, after an error."""
        # A graceful stop does the same. No event becomes suspect of having crashed the process by that.
        self._close_effects()
        try:
            conn = self._drainer.connection()
            instances.mark_leaving(conn, self._schema, self._me)
            instances.bury_instances(conn, self._schema, [self._me], known_dead=True)
            statements.leave(conn, self._schema, self._subscription, self._me)
        # The error that led here is the one to be raised.
        except Exception:
            return
