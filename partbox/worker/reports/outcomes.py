"""Reports of event outcomes and saves to observers and to the log."""

import logging
from collections import Counter
from collections.abc import Sequence
from typing import cast

from partbox.errors import PayloadError
from partbox.events import DeliveredEvent
from partbox.handlers import Routes
from partbox.observe import Observers
from partbox.observe.logs.log_event import log_event
from partbox.protocol.parking import READY_STATES
from partbox.protocol.verdict import Verdict
from partbox.text.wording import format_count
from partbox.worker.engine.saves import PartitionSave
from partbox.worker.reports.delivery_counts import Tally, build_list_turn
from partbox.worker.runners.endpoint import Endpoint
from partbox.worker.runners.traceback import find_application_frames

log = logging.getLogger("partbox.worker")


class EventReports:
    """The reporter of event outcomes to observers and to the log. Any thread may use it, but never while it holds the
    engine's lock."""

    def __init__(self, observers: Observers, routes: Routes[Endpoint]) -> None:
        self._observers = observers
        self._routes = routes
        self._hears_settled = observers.has_hook("settled")
        self._hears_delivered = observers.has_hook("delivered")

    def build_tally(self) -> Tally | None:
        """Return a new counter of deliveries for one thread or task, or None if no observer counts deliveries."""
        return Tally() if self._hears_delivered else None

    def report_delivered(self, tally: Tally) -> None:
        """Report the deliveries counted in `tally` to observers, and clear the counts."""
        for turn in tally.take_turns():
            self._observers.delivered(turn)

    def report_list(
        self, endpoint: Endpoint, ends: tuple[DeliveredEvent, DeliveredEvent], count: int, seconds: float
    ) -> None:
        """Report to observers that a list handler has handled `count` events, each in `seconds`."""
        # `ends` are the first and the last event.
        if self._hears_delivered:
            self._observers.delivered(build_list_turn(endpoint, ends, count, seconds))

    def report_settled(
        self, event: DeliveredEvent, verdict: Verdict | None, result: object = None, seconds: float | None = None
    ) -> None:
        """Report the outcome of an event to observers. A `verdict` of None means done."""
        # A handler has run, or an open circuit refused the event. `result` is the value that the handler returned, or
        # the exception that it raised.
        if self._hears_settled:
            self._observers.settled(event, self._find_handler_name(event), verdict)
        if verdict is not None:
            self.report_parked(event, verdict, result, seconds)

    def report_parked(
        self, event: DeliveredEvent, verdict: Verdict, result: object = None, seconds: float | None = None
    ) -> None:
        """Log an event that was set aside (parked) after a failure, and report it to observers."""
        # A parked event has a row of its own. The verdict is logged too. An event that only waits to run is not
        # reported.
        if verdict.state in READY_STATES:
            return
        # Check the type, because an object may lie about its class.
        error = cast(BaseException, result) if issubclass(type(result), BaseException) else None
        handler = self._find_handler_name(event)
        _log_parked(event, verdict, error, handler)
        self._observers.parked(event, handler, verdict, error, seconds)

    def _find_handler_name(self, event: DeliveredEvent) -> str:
        return self._routes[event.route].handler.name


def _log_parked(event: DeliveredEvent, verdict: Verdict, error: BaseException | None, handler: str) -> None:
    state, attempts, delay, why = verdict.state, verdict.attempts, verdict.delay or 0.0, verdict.error
    trace = None if error is None or verdict.trace is None else (type(error), error, find_application_frames(error))
    if state == "dead":
        name = "decode_error" if issubclass(type(error), PayloadError) else "dead"
        text, shown = "%s is dead after %s: %s", (event, format_count(attempts, "attempt"), why)
        log_event(log, name, text, *shown, about=event, trace=trace, handler=handler, attempts=attempts)
    elif state in ("retrying", "deferred"):
        text, values = "%s is %s, due in %.3g s: %s", (event, state, delay, why)
        log_event(log, state, text, *values, about=event, handler=handler, attempts=attempts, delay=delay)
        if trace is not None:
            text = "the handler of %s raised this error"
            log_event(log, "failure", text, event, about=event, trace=trace, handler=handler, attempts=attempts)


def notify_saved(observers: Observers, saves: Sequence[PartitionSave], seconds: float) -> None:
    """Report to observers that a save of progress took `seconds`."""
    # The report has the number of partitions, and the number of parked rows in each state.
    if observers.has_hook("saved"):
        parks = (pending.parked_save for save in saves for pending in save.parks)
        # Rows whose event went to the dead-letter hook were dead before.
        states = Counter(park.state for park in parks if not park.is_dead_letter)
        observers.saved(len(saves), states, seconds)
