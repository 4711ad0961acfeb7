"""Watches the handlers that run: tells the supervisor since when, warns of slow ones, gives up those over their time.

An async handler is cancelled by the event loop. A sync one cannot be, nor an async one that blocks the loop or resists:
its event is parked, charged with the attempt, the process releases every other partition and ends, and its supervisor
replaces it. Embedded in an application, which must not end, it is only said.
"""

import logging
import time
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property

from partbox.events import DeliveredEvent
from partbox.handlers import Routes
from partbox.observe.logs.log_event import log_event
from partbox.worker.engine.engine import Engine
from partbox.worker.engine.partition import Lane, Partition
from partbox.worker.runners.dispatcher import Dispatcher
from partbox.worker.runners.endpoint import Endpoint
from partbox.worker.runners.settlement import Settlement

log = logging.getLogger("partbox.worker")

SLOW = 60.0  # seconds
LEAST = 1.0  # seconds that are not slow, whatever the timeout
RESISTS = 5.0  # seconds that an async handler may take to end once it is cancelled
APART = 0.02  # seconds between two looks: the poller steps up to a thousand times a second


@dataclass(eq=False)
class Timeouts:
    """The handlers of one process. The poller's thread looks, between its steps."""

    _engine: Engine
    _routes: Routes[Endpoint]
    _settlement: Settlement
    _dispatcher: Dispatcher
    _: KW_ONLY
    isolates: bool
    stuck: set[Partition] = field(default_factory=set)  # with handlers that were given up
    _slow: dict[Lane, DeliveredEvent] = field(default_factory=dict)  # already warned as slow
    _said: dict[Lane, DeliveredEvent] = field(default_factory=dict)  # already logged as over their time
    _given_up: set[Lane] = field(default_factory=set)
    _looked_at: float = 0.0

    def look(self) -> None:
        """Look at the handlers that run, unless the last look was a moment ago."""
        now = time.monotonic()
        if now - self._looked_at < APART:
            return
        self._looked_at = now
        running = self._dispatcher.note_running()
        self._slow, self._said = _running(self._slow), _running(self._said)
        for lane in running:
            event = lane.current
            if now - lane.started > self._soonest and event is not None and self._said.get(lane) is not event:
                self._judge(lane, event, now - lane.started)

    @cached_property
    def _soonest(self) -> float:
        """Seconds before which there is nothing to say of any handler: in lists thousands of lanes may run."""
        return min(_soonest(endpoint.handler.timeout) for endpoint in self._routes.all())

    def settled(self) -> bool:
        """True if no handler runs but those that were given up, and what is known of all is saved."""
        if any(lane not in self._given_up for lane in self._engine.runs.running()):
            return False
        return self._engine.outcomes.are_saved(tuple(self.stuck))  # the poller may add one meanwhile

    def _judge(self, lane: Lane, event: DeliveredEvent, ran: float) -> None:
        endpoint = self._routes[event.route]
        timeout = endpoint.handler.timeout
        if timeout is not None and ran > timeout + RESISTS * endpoint.handler.is_async:
            self._said[lane] = event
            self._overdue(lane, event, endpoint, timeout, ran)
        elif self._slow.get(lane) is not event and ran > (SLOW if timeout is None else _long(timeout)):
            self._slow[lane] = event
            text = (
                "the handler of %s has been running for %.0f s: its aggregate waits, and so would a rebalance or a stop"
            )
            log_event(
                log, "slow_handler", text, event, ran, about=event, handler=endpoint.handler.name, seconds=round(ran, 1)
            )

    def _overdue(self, lane: Lane, event: DeliveredEvent, endpoint: Endpoint, timeout: float, ran: float) -> None:
        what = ": this process ends and is replaced" if self.isolates else "; nothing can end it here"
        text, name = "the handler of %s is over its timeout of %g s%s", endpoint.handler.name
        log_event(log, "overdue", text, event, timeout, what, about=event, handler=name, seconds=round(ran, 1))
        if not self.isolates:
            return
        error = TimeoutError(f"the handler ran longer than its timeout of {timeout:g} s")
        verdict = endpoint.overdue(event, error, lane.started)
        if not self._engine.outcomes.give_up(lane, event, verdict):
            return
        self._given_up.add(lane)
        self.stuck.add(lane.partition)
        if verdict is not None:
            self._settlement.reports.parked(event, verdict, error, ran)


def _long(timeout: float) -> float:
    """Seconds after which it is said that a handler is slow, though it is still in time."""
    return min(SLOW, max(LEAST, timeout / 2))


def _soonest(timeout: float | None) -> float:
    return SLOW if timeout is None else min(timeout, _long(timeout))


def _running(said: dict[Lane, DeliveredEvent]) -> dict[Lane, DeliveredEvent]:
    return {lane: event for lane, event in said.items() if lane.current is event}
