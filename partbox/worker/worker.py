"""One worker: poller, dispatcher and saver of one process, from start to stop."""

import logging
import time
from collections.abc import Callable
from typing import Any, ClassVar

from partbox.codecs import Codecs
from partbox.errors import SchemaError
from partbox.handlers import Handlers
from partbox.observe import Observers, Started
from partbox.observe.telling import tell
from partbox.observe.traffic import TrafficObserver
from partbox.rules.wording import counted
from partbox.settings import Settings
from partbox.worker.delivering.dead_letters import DeadLetters
from partbox.worker.delivering.delivery import Delivery
from partbox.worker.delivering.dispatcher import BUNDLE, Dispatcher
from partbox.worker.delivering.endpoint import Endpoint, Kind
from partbox.worker.delivering.long_runs import LongRuns
from partbox.worker.delivering.reports import Reports
from partbox.worker.delivering.unroutable import Unroutable
from partbox.worker.delivering.watch import Watch
from partbox.worker.forks import tell_forked
from partbox.worker.owning.ownership import Ownership
from partbox.worker.owning.slot import STOPPING, TIMEOUT, Slot
from partbox.worker.reading.brake import Brake
from partbox.worker.reading.intake import Intake
from partbox.worker.reading.log_reader import LogReader
from partbox.worker.reading.parked_reader import ParkedReader
from partbox.worker.reading.payloads import Payloads
from partbox.worker.reading.poller import Parts, Poller
from partbox.worker.saving.saver import Saver
from partbox.worker.signals import Signals
from partbox.worker.sink_notes import SinkNotes
from partbox.worker.state.holdings import Holdings
from partbox.worker.state.partition import Partition
from partbox.worker.transactions import Transactions
from partbox.worker.workload import Workload

log = logging.getLogger("partbox.worker")


class Worker:
    """Delivers the events of the partitions that its instance owns. Who the instance is says the slot."""

    dispatchers: ClassVar[type[Dispatcher]] = Dispatcher

    def __init__(
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
    ) -> None:
        self._settings = settings
        self._slot = slot
        self._failure: BaseException | None = None
        traffic = TrafficObserver()
        self._observers = observers = (observers or Observers(handlers.observers)).and_also(traffic)
        self._routes = handlers.routes(subscription, settings, _missed(handlers, subscription, settings)).map(
            lambda handler: Endpoint(handler, handlers.interceptors, settings.error_limit, observers)
        )
        for each in self._routes.registered():
            if each.handler.observed_by is not None:
                each.handler.observed_by(each.handler.name, observers)
        names = dict.fromkeys(each.handler.name for each in self._routes.registered())
        self._about = Started(subscription, tuple(names), concurrency)
        kinds = {endpoint.kind for endpoint in self._routes.all()}
        self.holdings = holdings = Holdings(concurrency)
        reports = Reports(observers, self._routes)
        self._delivery = Delivery(holdings, self._routes, slot, reports)
        self._signals = Signals()
        self.dispatcher = self.dispatchers(
            holdings,
            self._delivery,
            slot,
            concurrency,
            letters=DeadLetters(holdings, handlers.dead_letter),
            bundle=1 if Kind.LISTS in kinds else BUNDLE,
            signals=self._signals,
        )
        self.watch = Watch(holdings, self._delivery, self.dispatcher, isolates=isolates)
        self.poller = self._poller(handlers, codecs, reports, traffic, dsn)
        # The default takes what has no handler; unless it is the application's it does nothing that could last.
        timed = self._routes.all() if callable(settings.on_unroutable) else self._routes.registered()
        timeouts = [endpoint.handler.timeout for endpoint in timed] or [settings.handler_timeout]
        slot[TIMEOUT] = 0.0 if None in timeouts else max(timeout for timeout in timeouts if timeout)

        tell_forked(self._disown)

    def _disown(self) -> None:
        self.dispatcher.disown()

    def _poller(
        self, handlers: Handlers, codecs: Codecs, reports: Reports, traffic: TrafficObserver, dsn: Callable[[], str]
    ) -> Poller:
        """The poller, all that its thread moves, and who listens to whom."""
        holdings, settings, slot, signals = self.holdings, self._settings, self._slot, self._signals
        schema, subscription, observers = settings.schema_name, self._about.subscription, self._observers
        payloads = Payloads(schema, subscription, settings.lease)
        intake = Intake(holdings, self.dispatcher, self._routes, codecs, subscription, reports)
        reader = LogReader(holdings, self.dispatcher, intake, payloads, settings, observers)
        letters = handlers.dead_letter is not None
        ownership = Ownership(
            holdings, slot, settings, subscription, letters=letters, observers=observers, signals=signals
        )
        self.workload = Workload(holdings, self.dispatcher, reader, observers)
        transactions = self._transactions()
        parts = Parts(
            ownership=ownership,
            intake=intake,
            reader=reader,
            parked=ParkedReader(
                holdings, intake, self._routes, payloads, reader.room, schema, subscription, signals=signals
            ),
            brake=Brake(holdings, settings.max_parked, subscription),
            watch=self.watch,
            long_runs=LongRuns(self.dispatcher, self._routes, schema, subscription),
            sink_notes=SinkNotes(traffic, schema, subscription),
            workload=self.workload,
            saver=Saver(
                holdings, slot, schema, subscription, window=settings.window, observers=observers, signals=signals
            ),
            transactions=transactions,
        )
        poller = Poller(holdings, parts, slot, settings, subscription, dsn, signals)
        signals.failed.listen(self._fail)
        signals.claimed.listen(reader.claimed)
        signals.reloaded.listen(intake.hold_behind)
        signals.lost.listen(ownership.refused)
        signals.released.listen(ownership.released)
        signals.saved.listen(holdings.look.set)
        signals.broken.listen(poller.break_off)
        if transactions is not None:
            signals.saved.listen(transactions.wake)
            signals.transactional.listen(transactions.wait)
        return poller

    def _transactions(self) -> Transactions | None:
        """The thread of transactional handlers, if there are any."""
        if not any(endpoint.kind is Kind.TRANSACTIONAL for endpoint in self._routes.all()):
            return None
        return Transactions(
            self.holdings,
            self._delivery,
            self.dispatcher,
            self._settings.schema_name,
            self._about.subscription,
            self._settings.lease,
            observers=self._observers,
            signals=self._signals,
        )

    @property
    def failure(self) -> BaseException | None:
        """What ended the worker, if it ended by itself."""
        return self._failure

    def start(self) -> None:
        self._observers.started(self._about)
        self.poller.start()
        handlers, at_once = len(self._about.handlers), self._about.concurrency
        text, known = "delivering in subscription %r: %s, up to %d at once", counted(handlers, "handler")
        self._tell(
            "worker_started", text, self._about.subscription, known, at_once, handlers=handlers, concurrency=at_once
        )

    def wake(self) -> None:
        """Look for new records at once."""
        self.poller.wake()

    def drain(self, timeout: float) -> bool:
        """Start nothing new, release every partition, wait at most `timeout` seconds; whether all are released."""
        self._slot[STOPPING] = 1.0
        self.poller.wake()
        self.poller.hurry(timeout)
        until = time.monotonic() + timeout
        while self._owned() and self.failure is None and time.monotonic() < until:
            time.sleep(0.005)
        return not self._owned()

    def stop(self, timeout: float | None = None) -> bool:
        """Drain for at most `timeout` seconds (the setting), then end; False when handlers had to be abandoned.

        Partitions whose handlers still run then are not released: their events may be delivered again elsewhere,
        which is said for each.
        """
        drained = self.drain(self._settings.drain_timeout if timeout is None else timeout)
        for lane in self.dispatcher.running():
            text = "stopped while the handler of %s was running: it may be delivered again"
            tell(log, "abandoned", text, lane.current, about=lane.current)
        return self._end(drained)

    def leave_stuck(self) -> None:
        """Give up handlers that do not end: save that they were, release every other partition, end."""
        self._slot[STOPPING] = 1.0
        self.poller.wake()
        until = time.monotonic() + self._settings.drain_timeout
        while time.monotonic() < until and not (self._owned() <= self.watch.stuck and self.watch.settled()):
            time.sleep(0.005)
        self._end(False)

    def _end(self, drained: bool) -> bool:
        self.dispatcher.stop()
        ended = self.dispatcher.join(time.monotonic() + (1.0 if drained else 0.1))
        released = self.poller.end() and drained and ended
        text = "delivery in subscription %r has ended, %s"
        how = "with nothing left running" if released else "and what ran may be delivered again"
        self._tell("worker_stopped", text, self._about.subscription, how, released=released)
        return released

    def _tell(self, name: str, text: str, *arguments: object, **fields: Any) -> None:
        tell(log, name, text, *arguments, subscription=self._about.subscription, **fields)

    def _fail(self, error: BaseException) -> None:
        """A thread has ended that must not: the worker is of no use any more, and says so."""
        trace = None if isinstance(error, SchemaError) else error
        self._tell("worker_failed", "the worker ends: %s", error, trace=trace)
        self._failure = error

    def _owned(self) -> set[Partition]:
        with self.holdings.lock:
            return {partition for partition in self.holdings.partitions.values() if not partition.lost}


def _missed(handlers: Handlers, subscription: str, settings: Settings) -> Unroutable | None:
    """Who is told of events without a handler: in `default` alone, for other subscriptions mostly want few types."""
    if subscription != "default":
        return None
    return Unroutable(subscription, handlers.table(subscription), str(settings.on_unroutable))
