"""The worker: the poller, dispatcher and saver of one process, from start to stop."""

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
from partbox.text.wording import format_count
from partbox.worker.context import Context
from partbox.worker.engine.engine import Engine
from partbox.worker.engine.read_budget import ReadBounds
from partbox.worker.engine.ready_queue import BUNDLE, ReadyQueue
from partbox.worker.fork_safety import call_when_forked
from partbox.worker.ownership.ownership import Ownership
from partbox.worker.poller.log_poll import LogReader
from partbox.worker.poller.pacing import Pacer
from partbox.worker.poller.parked_fetch import ParkedReader
from partbox.worker.poller.payload_fetch import PayloadFetcher
from partbox.worker.poller.poller import Poller
from partbox.worker.reports.handled_types import HandledTypes
from partbox.worker.reports.limits import LimitNotes
from partbox.worker.reports.load import LoadReport
from partbox.worker.reports.outcomes import EventReports
from partbox.worker.reports.process_notes import LongRuns, SinkNotes, TrafficObserver
from partbox.worker.reports.unroutable import NewerVersionWarning, UnroutableWarning
from partbox.worker.runners.dead_letters import DeadLetters, list_hook_targets
from partbox.worker.runners.dispatcher import Dispatcher, RunnerSetup
from partbox.worker.runners.endpoint import Endpoint, RunKind
from partbox.worker.runners.event_loop import EventLoop
from partbox.worker.runners.lane_runner import LaneRunner
from partbox.worker.runners.loop_hosts import find_loop_factory
from partbox.worker.runners.process_lifespan import ProcessLifespan
from partbox.worker.runners.settlement import Settlement
from partbox.worker.runners.timeouts import HandlerTimeouts
from partbox.worker.runners.transaction import Blame, TransactionParts
from partbox.worker.runners.transactor import Transactor
from partbox.worker.saver.saver import Saver
from partbox.worker.session import SessionFactory
from partbox.worker.slot import IDLE_LIMIT, STOPPING, TIMEOUT, Slot

log = logging.getLogger("partbox.worker")


class Worker:
    """The worker that delivers events in one process: it polls for events, runs handlers and saves progress.

    It serves the partitions that the instance in its slot (its part of shared memory) owns."""

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
        is_replaceable: bool,
        observers: Observers | None = None,
        runner_setup: RunnerSetup | None = None,
        loop: EventLoop | None = None,
        dead_to: str | None = None,
    ) -> None:
        # The error that ended the worker from within.
        self.failure: BaseException | None = None
        # The monotonic time at which a stop waits no longer.
        self._stop_deadline = inf
        traffic = TrafficObserver()
        observers = (observers or Observers(handlers.observers)).with_observer(traffic)
        routes = _build_routes(handlers, subscription, settings, observers)
        runner_setup = runner_setup or _build_runner_setup(
            routes, concurrency, loop or EventLoop(find_loop_factory(settings.event_loop))
        )
        targets, state = list_hook_targets(handlers, dead_to), ProcessState()
        engine, self._loop = (
            _build_engine_factory(settings, routes, runner_setup, dead_letters=bool(targets)),
            runner_setup.loop,
        )
        self.engine = engine(concurrency, subscription=subscription, codecs=codecs, process=state)
        registered = routes.list_registered()
        self.engine.credits.set_held_up(lambda: all(each.circuit.is_held_up for each in registered))
        self.lifespan = ProcessLifespan(handlers.process_lifespan, runner_setup.loop, state)
        self._context = Context(settings, dsn, routes, self.engine, subscription, concurrency, slot, observers)
        names = tuple(dict.fromkeys(each.handler.name for each in routes.list_registered()))
        self._start_notice = Started(subscription, names, concurrency)
        self._is_replaceable = is_replaceable
        self._settlement = Settlement(self.engine, EventReports(observers, routes))
        self._lane_runner = LaneRunner(self.engine, routes, slot, self._settlement)
        self.dispatcher = Dispatcher(self._context, self._lane_runner, self._settlement, runner_setup)
        self.dead_letters = DeadLetters(self._context, targets, runner_setup.loop, traffic)
        self.timeouts = HandlerTimeouts(
            self.engine, routes, self._settlement, self.dispatcher, is_replaceable=is_replaceable
        )
        self._sessions = SessionFactory(self._context)
        self.poller = self._build_poller(traffic)
        self._connect_signals()
        slot[TIMEOUT] = _find_longest_timeout(routes, settings)
        call_when_forked(self.dispatcher.disown)
        self._context.limits.override_limits({})

    def _build_poller(self, traffic: TrafficObserver) -> Poller:
        context = self._context
        payloads = PayloadFetcher(context)
        reader = LogReader(context, payloads)
        return Poller(
            context,
            self._sessions,
            ownership=Ownership(context, reader.add_claimed),
            reader=reader,
            parked_reader=ParkedReader(context, payloads, self._settlement.reports),
            timeouts=self.timeouts,
            dead_letters=self.dead_letters,
            load_report=LoadReport(context),
            notes=(HandledTypes(context), LongRuns(context), SinkNotes(context, traffic), LimitNotes(context)),
            pacer=Pacer(context),
            saver=Saver(context),
            transactor=self._build_transactor(),
        )

    def _build_transactor(self) -> Transactor | None:
        kinds = {each.transaction for each in self._context.routes.list_all()} - {None}
        if not kinds:
            return None
        around = TransactionParts(self._context, self._lane_runner, self._settlement.reports, Blame())
        return Transactor(around, [kind for kind in TransactionKind if kind in kinds], self._loop)

    def _connect_signals(self) -> None:
        signals, poller = self._context.signals, self.poller
        signals.report_failure = self.mark_failed
        signals.report_refused = poller.ownership.drop_refused
        signals.report_broken = poller.restart_session

    @property
    def is_stuck(self) -> bool:
        """True if a handler or other application code does not return."""
        # Only the end of the process can get rid of it then.
        return bool(self.timeouts.abandoned_partitions) or self.dead_letters.is_stuck

    def start(self) -> None:
        """Start the threads that deliver events."""
        # The application's lifespan was entered before. Handlers get a copy of the caller's context variables.
        context, entered = self._context, copy_context()
        for endpoint in context.routes.list_all():
            endpoint.set_context(entered)
        context.slot[IDLE_LIMIT] = idle_limit(context.settings.lease)
        self.notify_started()
        self.dispatcher.start()
        self.dead_letters.start()
        self.poller.start()
        handlers, at_once = len(self._start_notice.handlers), context.concurrency
        where = "" if self._is_replaceable else " in this process"
        values = where, context.subscription, format_count(handlers, "handler"), at_once
        text = "delivering%s in subscription %r: %s, up to %d at once"
        context.log("worker_started", text, *values, handlers=handlers, concurrency=at_once)

    def notify_started(self) -> None:
        self._context.observers.started(self._start_notice)

    def wake(self) -> None:
        """Have the worker look for new events at once, without waiting for its next poll."""
        self.poller.wake()

    def drain(self, timeout: float) -> bool:
        """Start no more handlers, and release all partitions. Return False if some are left after `timeout` seconds."""
        # Each partition is released as its handlers end.
        self._context.slot[STOPPING] = 1.0
        self.poller.wake()
        self._sessions.limit_statements(timeout)
        self.engine.dead_letters.limit_hold(timeout / 2)
        self._stop_deadline = min(self._stop_deadline, time.monotonic() + timeout)
        owned = self.engine.claims.list_numbers
        while (left := owned()) and self.failure is None and time.monotonic() < self._stop_deadline:
            # The event loop has ended, so the handlers that run on it never end.
            if self._loop.has_ended and left <= {
                lane.partition.number for lane in self.engine.scheduler.list_running()
            }:
                break
            time.sleep(0.005)
        return not owned()

    def abandon_running(self) -> None:
        """Let the worker stop without waiting for handlers that still run."""
        # This applies to a stop in progress or later.
        self._stop_deadline = 0.0

    def stop(self, timeout: float | None = None) -> bool:
        """Stop the worker: drain for `timeout` seconds, then end. Return False if handlers had to be abandoned."""
        # The default timeout is the setting. The partitions of abandoned handlers are not released: each event may be
        # delivered again, which is logged.
        drained = self.drain(self._context.settings.drain_timeout if timeout is None else timeout)
        for lane in self.engine.scheduler.list_running():
            text = "stopped while the handler of %s was running: it may be delivered again"
            log_event(log, "abandoned", text, lane.current_event, about=lane.current_event)
        return self._end(self._stop_deadline, drained=drained)

    def leave_lifespan(self, until: float) -> None:
        """Run the application's shutdown code (leave its lifespan) before the monotonic time `until`."""
        # The event loop that it runs in is ended too.
        self.lifespan.leave(until - time.monotonic())
        self.dispatcher.close()

    def abandon_hung(self) -> None:
        """End the worker although handlers hang, and release all partitions without a hung handler."""
        # The process saves first that the hung handlers were abandoned.
        self._context.slot[STOPPING] = 1.0
        self.poller.wake()
        until = time.monotonic() + self._context.settings.drain_timeout
        owned = self.engine.claims.list_numbers
        while time.monotonic() < until:
            abandoned_partitions = {partition.number for partition in list(self.timeouts.abandoned_partitions)}
            if owned() <= abandoned_partitions and self.timeouts.are_all_saved():
                break
            time.sleep(0.005)
        self._end(until, drained=False)

    def _end(self, until: float, *, drained: bool) -> bool:
        self.engine.scheduler.stop()
        ended = self.dispatcher.join(time.monotonic() + (1.0 if drained else 0.1))
        transactions_ended = self.poller.end_transactions()
        self.dead_letters.stop(until)
        self.leave_lifespan(until)
        self.poller.end()
        released = transactions_ended and drained and ended
        text = "delivery in subscription %r has ended, %s"
        how = "with nothing left running" if released else "and unfinished events may be delivered again"
        self._context.log("worker_stopped", text, self._context.subscription, how, released=released)
        return released

    def mark_failed(self, error: BaseException) -> None:
        """Log the error that ended an essential thread, and mark the worker as failed."""
        # The error is kept as `failure`, which marks the worker as useless.
        # Errors in the schema or the settings are the user's to mend, and need no traceback.
        trace = None if isinstance(error, SchemaError | SettingsError) else error
        self._context.log("worker_failed", "the worker ends: %s", error, trace=trace)
        self.failure = error


def _build_routes(handlers: Handlers, subscription: str, settings: Settings, observers: Observers) -> Routes[Endpoint]:
    missed = None
    # Other subscriptions mostly want few types, so no warning is due for the rest.
    if subscription == "default":
        missed = UnroutableWarning(subscription, handlers.build_table(subscription), str(settings.on_unroutable))
    newer_versions = NewerVersionWarning()
    routes = handlers.build_routes(subscription, settings, missed).map_handlers(
        lambda handler: Endpoint(handler, handlers.interceptors, settings.error_limit, observers, newer_versions)
    )
    if not callable(settings.on_unroutable) and {each.kind for each in routes.list_registered()} == {RunKind.ASYNC}:
        # The default endpoint waits for nothing, so it may run wherever the other handlers do, without a runner thread.
        routes.default.kind = RunKind.ASYNC
        routes.default.set_run_kind(RunKind.ASYNC)
    for each in routes.list_registered():
        if each.handler.observed_by is not None:
            each.handler.observed_by(each.handler.name, observers)
    return routes


def _list_handler_kinds(routes: Routes[Endpoint]) -> set[RunKind]:
    return {endpoint.kind for endpoint in routes.list_all()}


def _build_runner_setup(routes: Routes[Endpoint], concurrency: int, loop: EventLoop) -> RunnerSetup:
    # A single runner takes many lanes at a time, unless a list handler may take the events that the runner has not
    # begun.
    alone, kinds = concurrency == 1, _list_handler_kinds(routes)
    queue = ReadyQueue(BUNDLE if alone and RunKind.BATCH not in kinds else 1)
    shared_lanes = RunKind.TRANSACTIONAL not in kinds and not any(each.handler.per_key for each in routes.list_all())
    return RunnerSetup(queue, loop, shared_lanes=shared_lanes)


def _build_engine_factory(
    settings: Settings, routes: Routes[Endpoint], runner_setup: RunnerSetup, *, dead_letters: bool
) -> Callable[..., Engine]:
    bounds = ReadBounds(
        settings.page,
        settings.window,
        settings.max_parked,
        settings.window_bytes,
        settings.max_waiting,
        settings.spill_after,
    )
    has_transactional, notes = RunKind.TRANSACTIONAL in _list_handler_kinds(routes), settings.retain_history > 0
    return partial(
        Engine,
        bounds=bounds,
        queue=runner_setup.queue,
        shared_lanes=runner_setup.shared_lanes,
        transactional=has_transactional,
        dead_letters=dead_letters,
        notes=notes,
    )


def _find_longest_timeout(routes: Routes[Endpoint], settings: Settings) -> float:
    # The default endpoint does nothing that could last, unless it is the application's.
    may_last = routes.list_all() if callable(settings.on_unroutable) else routes.list_registered()
    timeouts = [endpoint.handler.timeout for endpoint in may_last] or [settings.handler_timeout]
    return 0.0 if None in timeouts else max(timeout for timeout in timeouts if timeout)
