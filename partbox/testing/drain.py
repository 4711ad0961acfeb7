"""One drain: delivers the events that are due now, one at a time, in the order of the log.

It is a worker without threads, which owns the partitions with due events while it runs.
"""

import os
import socket
from collections.abc import Callable
from math import inf
from typing import NamedTuple
from uuid import UUID

from partbox import __version__
from partbox.codecs import Codecs
from partbox.db import session
from partbox.db.deadline import WatchedConnection
from partbox.db.delivery import instances
from partbox.errors import PartboxError
from partbox.events import Claim, DeliveredEvent
from partbox.handlers import Handlers
from partbox.observe import Observers
from partbox.settings import Settings
from partbox.testing import statements
from partbox.testing.outcome_observer import Noting
from partbox.testing.outcomes import Drained, Settled
from partbox.testing.stepping import Await, Stepped
from partbox.worker.owning.slot import STOPPING, Slot
from partbox.worker.session import Session

LEASE = 3_600.0  # seconds: who debugs a handler takes his time
MOST = 10_000
"""The maximum number of events of one drain: more mean a handler that publishes what it handles."""


class Connections(NamedTuple):
    """Those of a drain: of its membership, of its reading and saving, and of the effects of transactional handlers."""

    membership: WatchedConnection
    log: WatchedConnection
    effects: WatchedConnection | None
    checked: bool
    """An earlier drain has found that the schema is one that this program can work on."""


Connect = Callable[[bool], Connections]
"""Gives the connections; True: with one for effects."""


class Drain:
    """Runs once. `connect` gives its connections, new ones after one was lost."""

    def __init__(
        self,
        settings: Settings,
        handlers: Handlers,
        codecs: Codecs,
        subscription: str,
        connect: Connect,
        await_it: Await,
    ) -> None:
        self._schema = settings.schema_name
        self._codecs = codecs
        self._subscription = subscription
        self._connect = connect
        self._slot = Slot.local()
        self._noting = Noting(lambda events: self._stepper.ran(events))
        self._worker = worker = Stepped(
            settings,
            handlers,
            codecs,
            self._slot,
            subscription=subscription,
            concurrency=1,
            dsn=_none,
            isolates=False,
            observers=Observers([*handlers.observers, self._noting]),
        )
        self._stepper = worker.dispatcher
        self._stepper.awaiting(await_it)
        self._poller = worker.poller
        self._transactor = worker.poller.transactor
        if self._transactor is not None:
            self._transactor.one_by_one()

    def run(self) -> Drained:
        """Deliver, and return the outcome of each event. What ends a test (Ctrl-C, `pytest.fail`) passes through."""
        self._open()
        self._check()
        self._slot.instance = self._me = self._join()
        self._slot.trust_until(inf, inf)
        try:
            self._worker.start()
            if not self._assign():
                session.require(self._conn, self._schema, self._subscription)
                return self._leave([])
            self._begin()
            while self._round() and self._assign():
                pass
            self._release()
            return self._leave(self._noting.settlements())
        except BaseException:
            self._give_up()
            raise

    def _open(self) -> None:
        self._conn, log, effects, self._checked = self._connect(self._transactor is not None)
        self._session = Session(log, log, effects)

    def _check(self) -> None:
        """Check that nobody else delivers; dead processes own nothing once their lease has ended."""
        members = instances.members(self._conn, self._schema, self._subscription)
        for member in members:
            if member.left > 0:
                raise PartboxError(
                    f"a worker delivers from this database already (node {member.node!r}), and would share the events "
                    "with drain(): stop it first, or use its wait_until_empty()"
                )
        if members:
            victims = [member.instance_id for member in members]
            instances.bury(self._conn, self._schema, victims, known_dead=False)

    def _join(self) -> UUID:
        pid = os.getpid()
        return instances.register(
            self._conn,
            self._schema,
            subscription=self._subscription,
            node="testing",
            hostname=socket.gethostname(),
            pids=[pid],
            version=__version__,
            lease=LEASE,
        )[pid]

    def _begin(self) -> None:
        self._poller.begin(self._session, checked=self._checked)

    def _assign(self) -> bool:
        return statements.assign(self._conn, self._schema, self._subscription, self._me)

    def _round(self) -> bool:
        """Claim, read, deliver, save; False if there was nothing to do."""
        self._poller.tick_next()
        brought = self._poller.look(self._session)
        stepped = self._step_all()
        return (self._save() or stepped or brought) and self._noting.fatal is None

    def _step_all(self) -> bool:
        stepped = False
        while self._noting.fatal is None and self._step():
            stepped = True
            if len(self._noting) > MOST:
                raise PartboxError(f"drain() has delivered {MOST} events and more come: a handler publishes them")
        return stepped

    def _step(self) -> bool:
        """The event of the lowest id, or the move of its lane to the transactional ones."""
        waiting = None if self._transactor is None else self._transactor.first()
        if waiting is None:
            return self._stepper.step()
        other = self._stepper.first()
        if other is not None and other < waiting:
            return self._stepper.step()
        return self._transact() or self._stepper.step()

    def _transact(self) -> bool:
        """True if a transactional handler got its event."""
        assert self._transactor is not None
        before = len(self._noting)
        ended = self._transactor.once()
        if self._poller.broken:  # its transaction has failed: what was read is read again
            self._open()
            self._begin()
        return ended and len(self._noting) > before

    def _save(self) -> bool:
        if not self._worker.holdings.dirty:
            return False
        self._poller.saver.save(self._session.saving, self._me)
        return True

    def _release(self) -> None:
        self._slot[STOPPING] = 1.0
        self._poller.ownership.drain_all()
        self._save()
        while self._worker.holdings.partitions:  # a page that was cut is read to its end
            self._poller.look(self._session)
            self._save()

    def _leave(self, settled: list[Settled]) -> Drained:
        held = self._held({each.event.id for each in settled}) if _has_parked(settled) else []
        statements.leave(self._conn, self._schema, self._subscription, self._me)
        if self._noting.fatal is not None:
            raise self._noting.fatal
        return Drained([*settled, *held])

    def _held(self, known: set[int]) -> list[Settled]:
        found = statements.held(self._conn, self._schema, self._subscription, self._me)
        claims = {each.epoch: Claim(each.epoch, self._subscription, self._codecs) for each in found}
        events = [(DeliveredEvent(each.row, claims[each.epoch], each.attempts + 1), each) for each in found]
        return [Settled(event, None, "held", each.attempts) for event, each in events if event.id not in known]

    def _give_up(self) -> None:
        """Release the owned partitions as at a graceful stop: none becomes suspect."""
        try:
            conn = self._connect(False).membership
            instances.leave(conn, self._schema, self._me)
            instances.bury(conn, self._schema, [self._me], known_dead=True)
            statements.leave(conn, self._schema, self._subscription, self._me)
        except Exception:  # the error that brought us here is told
            return


def _none() -> str:
    raise AssertionError("a drain has its own connections")


def _has_parked(settled: list[Settled]) -> bool:
    return any(each.state not in ("done", "ignored") for each in settled)
