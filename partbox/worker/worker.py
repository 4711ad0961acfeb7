"""One worker: poller, dispatcher and saver of one process, from start to stop."""

import logging
import time
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from math import inf

from partbox.codecs import Codecs
from partbox.errors import SchemaError, SettingsError
from partbox.events.delivered import ProcessState
from partbox.handlers import Handlers, Routes
from partbox.handlers.transactional import TransactionKind
from partbox.observe import Observers, Started
from partbox.observe.logs.log_event import log_event
from partbox.protocol.lease import idle_limit
from partbox.settings import Settings
from partbox.text.wording import counted
from partbox.worker.context import Context
from partbox.worker.engine.engine import Engine
from partbox.worker.engine.read_budget import ReadBounds
from partbox.worker.engine.ready_queue import BUNDLE, ReadyQueue
from partbox.worker.fork_safety import tell_forked
from partbox.worker.ownership.ownership import Ownership
from partbox.worker.poller.log_poll import LogReader
from partbox.worker.poller.pacing import Pacer
from partbox.worker.poller.parked_fetch import ParkedReader
from partbox.worker.poller.payload_fetch import Payloads
from partbox.worker.poller.poller import Poller
from partbox.worker.reports.handled_types import HandledTypes
from partbox.worker.reports.limits import LimitNotes
from partbox.worker.reports.load import LoadReport
from partbox.worker.reports.outcomes import Reports
from partbox.worker.reports.process_notes import LongRuns, SinkNotes, TrafficObserver
from partbox.worker.reports.unroutable import NewerVersions, Unroutable
from partbox.worker.runners.dead_letters import DeadLetters, recipients_of
from partbox.worker.runners.dispatcher import Dispatcher, Drive
from partbox.worker.runners.endpoint import Endpoint, Kind
from partbox.worker.runners.event_loop import EventLoop
from partbox.worker.runners.lane_runner import LaneRunner
from partbox.worker.runners.loop_hosts import loops_of
from partbox.worker.runners.process_lifespan import ProcessLifespan
from partbox.worker.runners.settlement import Settlement
from partbox.worker.runners.timeouts import Timeouts
from partbox.worker.runners.transaction import Blame, Surroundings
from partbox.worker.runners.transactor import Transactor
from partbox.worker.saver.saver import Saver
from partbox.worker.session import SessionFactory
from partbox.worker.slot import IDLE_LIMIT, STOPPING, TIMEOUT, Slot

log = logging.getLogger("partbox.worker")


class Worker:
    """Delivers the events of the partitions that its instance owns. Who the instance is says the slot."""

    def __init__(  # noqa: PLR0913  each comes from elsewhere, and none belongs to another
        self,
        settings: Settings,
        handlers: Handlers,
        codecs: Codecs,
        slot: Slot,
        *,
        subscription: str,
        concurrency: int,
        dsn: Callable[[], str],
        isolates: bool,
        observers: Observers | None = None,
        drive: Drive | None = None,
        loop: EventLoop | None = None,
        dead_to: str | None = None,
    ) -> None:
        self.failure: BaseException | None = None  # that ended the worker, if it ended by itself
        self._until = inf  # monotonic seconds at which a stop waits no more
        traffic = TrafficObserver()
        observers = (observers or Observers(handlers.observers)).and_also(traffic)
        routes = _endpoints(handlers, subscription, settings, observers)
        drive = drive or _drive(routes, concurrency, loop or EventLoop(loops_of(settings.event_loop)))
        recipients, state = recipients_of(handlers, dead_to), ProcessState()
        engine, self._loop = _engine(settings, routes, drive, letters=bool(recipients)), drive.loop
        self.engine = engine(concurrency, subscription=subscription, codecs=codecs, process=state)
        self.lifespan = ProcessLifespan(handlers.process_lifespan, drive.loop, state)
        self._context = Context(settings, dsn, routes, self.engine, subscription, concurrency, slot, observers)
        names = tuple(dict.fromkeys(each.handler.name for each in routes.registered()))
        self._about = Started(subscription, names, concurrency)
        self._settlement = Settlement(self.engine, Reports(observers, routes))
        self._runner = LaneRunner(self.engine, routes, slot, self._settlement)
        self.dispatcher = Dispatcher(self._context, self._runner, self._settlement, drive)
        self.letters = DeadLetters(self._context, recipients, drive.loop, traffic)
        self.timeouts = Timeouts(self.engine, routes, self._settlement, self.dispatcher, isolates=isolates)
        self._sessions = SessionFactory(self._context)
        self.poller = self._poller(traffic)
        self._listen()
        slot[TIMEOUT] = _longest(routes, settings)
        tell_forked(self.dispatcher.disown)
        self._context.limits.give({})

    def _poller(self, traffic: TrafficObserver) -> Poller:
        context = self._context
        payloads = Payloads(context)
        reader = LogReader(context, payloads)
        return Poller(
            context,
            self._sessions,
            ownership=Ownership(context, reader.claimed),
            reader=reader,
            parked=ParkedReader(context, payloads, self._settlement.reports),
            timeouts=self.timeouts,
            letters=self.letters,
            load=LoadReport(context),
            notes=(HandledTypes(context), LongRuns(context), SinkNotes(context, traffic), LimitNotes(context)),
            pace=Pacer(context),
            saver=Saver(context),
            transactor=self._transactor(),
        )

    def _transactor(self) -> Transactor | None:
        kinds = {each.transaction for each in self._context.routes.all()} - {None}
        if not kinds:
            return None
        around = Surroundings(self._context, self._runner, self._settlement.reports, Blame())
        return Transactor(around, [kind for kind in TransactionKind if kind in kinds], self._loop)

    def _listen(self) -> None:
        signals, poller = self._context.signals, self.poller
        signals.failed = self.fail
        signals.lost = poller.ownership.refused
        signals.broken = poller.break_off

    @property
    def is_stuck(self) -> bool:
        """True if something of the application does not end, of which a process gets rid only by its own end."""
        return bool(self.timeouts.stuck) or self.letters.is_stuck

    def start(self) -> None:
        """Deliver; the lifespan has been entered."""
        context, entered = self._context, copy_context()
        for endpoint in context.routes.all():
            endpoint.enter(entered)
        context.slot[IDLE_LIMIT] = idle_limit(context.settings.lease)
        self.announce()
        self.dispatcher.start()
        self.letters.start()
        self.poller.start()
        handlers, at_once = len(self._about.handlers), context.concurrency
        said = context.subscription, counted(handlers, "handler"), at_once
        text = "delivering in subscription %r: %s, up to %d at once"
        context.log("worker_started", text, *said, handlers=handlers, concurrency=at_once)

    def announce(self) -> None:
        """Tell the observers that it begins."""
        self._context.observers.started(self._about)

    def wake(self) -> None:
        """Look for new records at once."""
        self.poller.wake()

    def drain(self, timeout: float) -> bool:
        """Start nothing new, release every partition, wait at most `timeout` seconds; whether all are released."""
        self._context.slot[STOPPING] = 1.0
        self.poller.wake()
        self._sessions.hurry(timeout)
        self.engine.letters.hurry(timeout / 2)
        self._until = min(self._until, time.monotonic() + timeout)
        owned = self.engine.claims.numbers
        while (left := owned()) and self.failure is None and time.monotonic() < self._until:
            if self._loop.ended and left <= {lane.partition.number for lane in self.engine.runs.running()}:
                break  # nothing ends that runs there
            time.sleep(0.005)
        return not owned()

    def hurry(self) -> None:
        """Let a stop, now or later, not wait for what runs."""
        self._until = 0.0

    def stop(self, timeout: float | None = None) -> bool:
        """Drain for at most `timeout` seconds (the setting), then end; False when handlers had to be abandoned.

        Partitions whose handlers still run then are not released: their events may be delivered again elsewhere,
        which is said for each.
        """
        drained = self.drain(self._context.settings.drain_timeout if timeout is None else timeout)
        for lane in self.engine.runs.running():
            text = "stopped while the handler of %s was running: it may be delivered again"
            log_event(log, "abandoned", text, lane.current, about=lane.current)
        return self._end(self._until, drained=drained)

    def leave(self, until: float) -> None:
        """Leave the lifespan by then (monotonic seconds), and end the loop that it lives in."""
        self.lifespan.leave(until - time.monotonic())
        self.dispatcher.close()

    def leave_stuck(self) -> None:
        """Give up handlers that do not end: save that they were, release every other partition, end."""
        self._context.slot[STOPPING] = 1.0
        self.poller.wake()
        until = time.monotonic() + self._context.settings.drain_timeout
        owned = self.engine.claims.numbers
        while time.monotonic() < until:
            stuck = {partition.number for partition in list(self.timeouts.stuck)}
            if owned() <= stuck and self.timeouts.settled():
                break
            time.sleep(0.005)
        self._end(until, drained=False)

    def _end(self, until: float, *, drained: bool) -> bool:
        self.engine.runs.stop()
        ended = self.dispatcher.join(time.monotonic() + (1.0 if drained else 0.1))
        quiet = self.poller.end_transactions()
        self.letters.stop(until)
        self.leave(until)
        self.poller.end()
        released = quiet and drained and ended
        text = "delivery in subscription %r has ended, %s"
        how = "with nothing left running" if released else "and what ran may be delivered again"
        self._context.log("worker_stopped", text, self._context.subscription, how, released=released)
        return released

    def fail(self, error: BaseException) -> None:
        """Something has ended that must not: the worker is of no use any more, and says so."""
        trace = None if isinstance(error, SchemaError | SettingsError) else error
        self._context.log("worker_failed", "the worker ends: %s", error, trace=trace)
        self.failure = error


def _endpoints(handlers: Handlers, subscription: str, settings: Settings, observers: Observers) -> Routes[Endpoint]:
    missed = None
    if subscription == "default":  # others mostly want few types
        missed = Unroutable(subscription, handlers.table(subscription), str(settings.on_unroutable))
    newer = NewerVersions()
    routes = handlers.routes(subscription, settings, missed).map(
        lambda handler: Endpoint(handler, handlers.interceptors, settings.error_limit, observers, newer)
    )
    if not callable(settings.on_unroutable) and {each.kind for each in routes.registered()} == {Kind.ASYNC}:
        routes.default.kind = Kind.ASYNC  # it waits for nothing, so it may run wherever the others do
        routes.default.walk_as(Kind.ASYNC)
    for each in routes.registered():
        if each.handler.observed_by is not None:
            each.handler.observed_by(each.handler.name, observers)
    return routes


def _kinds(routes: Routes[Endpoint]) -> set[Kind]:
    return {endpoint.kind for endpoint in routes.all()}


def _drive(routes: Routes[Endpoint], concurrency: int, loop: EventLoop) -> Drive:
    """Runner threads: one alone takes many lanes at a time, unless a list may take what it has not begun."""
    alone, kinds = concurrency == 1, _kinds(routes)
    queue = ReadyQueue(BUNDLE if alone and Kind.LISTS not in kinds else 1)
    lines = Kind.TRANSACTIONAL not in kinds and not any(each.handler.per_key for each in routes.all())
    return Drive(queue, loop, lines=lines)


def _engine(settings: Settings, routes: Routes[Endpoint], drive: Drive, *, letters: bool) -> Callable[..., Engine]:
    """Return what makes the engine for these handlers, from the rest of its arguments."""
    bounds = ReadBounds(
        settings.page, settings.window, settings.max_parked, settings.window_bytes, settings.max_waiting
    )
    serial, notes = Kind.TRANSACTIONAL in _kinds(routes), settings.retain_history > 0
    return partial(
        Engine, bounds=bounds, queue=drive.queue, lines=drive.lines, transactional=serial, letters=letters, notes=notes
    )


def _longest(routes: Routes[Endpoint], settings: Settings) -> float:
    """The longest timeout of a handler in seconds; 0: some have none.

    The default takes what has no handler; unless it is the application's it does nothing that could last.
    """
    timed = routes.all() if callable(settings.on_unroutable) else routes.registered()
    timeouts = [endpoint.handler.timeout for endpoint in timed] or [settings.handler_timeout]
    return 0.0 if None in timeouts else max(timeout for timeout in timeouts if timeout)
