"""Watch running handlers: publish since when they run, log slow handlers, give up overdue handlers.

The event loop cancels async handlers that are over their timeout. If a handler cannot be cancelled, the event is parked
and the attempt is charged, the process releases all other partitions and exits, and the supervisor replaces it. An
embedded worker only logs, because the application must not end."""

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

SLOW = 60.0  # seconds until a handler without a timeout is logged as slow
MIN_SLOW = 1.0  # seconds; a shorter run is never slow, even with a short timeout
CANCEL_GRACE = 5.0  # seconds that an async handler may take to end after cancellation
CHECK_INTERVAL = 0.02  # seconds between two checks; the poller steps up to a thousand times a second


@dataclass(eq=False)
class HandlerTimeouts:
    """A watch that logs slow handlers of a process, and gives up handlers that run over their timeout."""

    # The poller's thread calls it between its steps. `abandoned_partitions` have handlers that were given up.
    # `is_replaceable`: a supervisor replaces the process if it exits.

    _engine: Engine
    _routes: Routes[Endpoint]
    _settlement: Settlement
    _dispatcher: Dispatcher
    _: KW_ONLY
    is_replaceable: bool
    abandoned_partitions: set[Partition] = field(default_factory=set)
    _logged_slow: dict[Lane, DeliveredEvent] = field(default_factory=dict)  # already logged as slow
    _logged_overdue: dict[Lane, DeliveredEvent] = field(default_factory=dict)  # already logged as over the timeout
    _given_up_lanes: set[Lane] = field(default_factory=set)
    _checked_at: float = 0.0

    def check_overdue(self) -> None:
        """Log slow handlers, and give up handlers that run over their timeout."""
        # A sync handler cannot be cancelled, nor can an async handler that blocks the loop or resists.
        # Nothing is done if the last check was less than `CHECK_INTERVAL` ago.
        now = time.monotonic()
        if now - self._checked_at < CHECK_INTERVAL:
            return
        self._checked_at = now
        running = self._dispatcher.note_running()
        self._logged_slow, self._logged_overdue = (
            _select_running(self._logged_slow),
            _select_running(self._logged_overdue),
        )
        for lane in running:
            event = lane.current_event
            if (
                now - lane.started_at > self._first_limit
                and event is not None
                and self._logged_overdue.get(lane) is not event
            ):
                self._check_handler(lane, event, now - lane.started_at)

    @cached_property
    def _first_limit(self) -> float:
        # After these seconds the first handler can be slow or overdue, so that younger calls need no check. Thousands
        # of lanes may run in lists.
        return min(_compute_first_limit(endpoint.handler.timeout) for endpoint in self._routes.list_all())

    def are_all_saved(self) -> bool:
        """Return True if the process may exit without losing the outcome of an event."""
        # Only abandoned handlers still run, and all that is known of their partitions is saved.
        if any(lane not in self._given_up_lanes for lane in self._engine.scheduler.list_running()):
            return False
        # A copy, because the poller may add a partition meanwhile.
        return self._engine.outcomes.are_all_saved(tuple(self.abandoned_partitions))

    def _check_handler(self, lane: Lane, event: DeliveredEvent, ran: float) -> None:
        endpoint = self._routes[event.route]
        timeout = endpoint.handler.timeout
        if timeout is not None and ran > timeout + CANCEL_GRACE * endpoint.handler.is_async:
            self._logged_overdue[lane] = event
            self._give_up(lane, event, endpoint, timeout, ran)
        elif self._logged_slow.get(lane) is not event and ran > (
            SLOW if timeout is None else _compute_slow_limit(timeout)
        ):
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
        verdict = endpoint.judge_timeout(event, error, lane.started_at)
        if not self._engine.outcomes.give_up(lane, event, verdict):
            return
        self._given_up_lanes.add(lane)
        self.abandoned_partitions.add(lane.partition)
        if verdict is not None:
            self._settlement.reports.report_parked(event, verdict, error, ran)


def _compute_slow_limit(timeout: float) -> float:
    return min(SLOW, max(MIN_SLOW, timeout / 2))


def _compute_first_limit(timeout: float | None) -> float:
    return SLOW if timeout is None else min(timeout, _compute_slow_limit(timeout))


def _select_running(logged: dict[Lane, DeliveredEvent]) -> dict[Lane, DeliveredEvent]:
    return {lane: event for lane, event in logged.items() if lane.current_event is event}
