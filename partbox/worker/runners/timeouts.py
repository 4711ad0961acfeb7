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
MIN_SLOW = 1.0  # seconds that are not slow, whatever the timeout
CANCEL_GRACE = 5.0  # seconds that an async handler may take to end once it is cancelled
CHECK_INTERVAL = 0.02  # seconds between two looks: the poller steps up to a thousand times a second


@dataclass(eq=False)
class HandlerTimeouts:
    """The handlers of one process. The poller's thread looks, between its steps."""

    _engine: Engine
    _routes: Routes[Endpoint]
    _settlement: Settlement
    _dispatcher: Dispatcher
    _: KW_ONLY
    is_replaceable: bool
    abandoned_partitions: set[Partition] = field(default_factory=set)  # with handlers that were given up
    _logged_slow: dict[Lane, DeliveredEvent] = field(default_factory=dict)  # already warned as slow
    _logged_overdue: dict[Lane, DeliveredEvent] = field(default_factory=dict)  # already logged as over their time
    _given_up: set[Lane] = field(default_factory=set)
    _checked_at: float = 0.0

    def check_overdue(self) -> None:
        """Look at the handlers that run, unless the last look was a moment ago."""
        now = time.monotonic()
        if now - self._checked_at < CHECK_INTERVAL:
            return
        self._checked_at = now
        running = self._dispatcher.note_running()
        self._logged_slow, self._logged_overdue = (
            _still_running(self._logged_slow),
            _still_running(self._logged_overdue),
        )
        for lane in running:
            event = lane.current
            if (
                now - lane.started > self._first_limit
                and event is not None
                and self._logged_overdue.get(lane) is not event
            ):
                self._check_handler(lane, event, now - lane.started)

    @cached_property
    def _first_limit(self) -> float:
        """Seconds before which there is nothing to say of any handler: in lists thousands of lanes may run."""
        return min(_first_limit(endpoint.handler.timeout) for endpoint in self._routes.all())

    def all_saved(self) -> bool:
        """True if no handler runs but those that were given up, and what is known of all is saved."""
        if any(lane not in self._given_up for lane in self._engine.scheduler.running()):
            return False
        return self._engine.outcomes.are_all_saved(tuple(self.abandoned_partitions))  # the poller may add one meanwhile

    def _check_handler(self, lane: Lane, event: DeliveredEvent, ran: float) -> None:
        endpoint = self._routes[event.route]
        timeout = endpoint.handler.timeout
        if timeout is not None and ran > timeout + CANCEL_GRACE * endpoint.handler.is_async:
            self._logged_overdue[lane] = event
            self._give_up(lane, event, endpoint, timeout, ran)
        elif self._logged_slow.get(lane) is not event and ran > (SLOW if timeout is None else _slow_after(timeout)):
            self._logged_slow[lane] = event
            text = (
                "the handler of %s has been running for %.0f s: its aggregate waits, and so would a rebalance or a stop"
            )
            log_event(
                log, "slow_handler", text, event, ran, about=event, handler=endpoint.handler.name, seconds=round(ran, 1)
            )

    def _give_up(self, lane: Lane, event: DeliveredEvent, endpoint: Endpoint, timeout: float, ran: float) -> None:
        what = ": this process ends and is replaced" if self.is_replaceable else "; nothing can end it here"
        text, name = "the handler of %s is over its timeout of %g s%s", endpoint.handler.name
        log_event(log, "overdue", text, event, timeout, what, about=event, handler=name, seconds=round(ran, 1))
        if not self.is_replaceable:
            return
        error = TimeoutError(f"the handler ran longer than its timeout of {timeout:g} s")
        verdict = endpoint.timeout_verdict(event, error, lane.started)
        if not self._engine.outcomes.give_up(lane, event, verdict):
            return
        self._given_up.add(lane)
        self.abandoned_partitions.add(lane.partition)
        if verdict is not None:
            self._settlement.reports.report_parked(event, verdict, error, ran)


def _slow_after(timeout: float) -> float:
    """Seconds after which it is said that a handler is slow, though it is still in time."""
    return min(SLOW, max(MIN_SLOW, timeout / 2))


def _first_limit(timeout: float | None) -> float:
    return SLOW if timeout is None else min(timeout, _slow_after(timeout))


def _still_running(logged: dict[Lane, DeliveredEvent]) -> dict[Lane, DeliveredEvent]:
    return {lane: event for lane, event in logged.items() if lane.current is event}
