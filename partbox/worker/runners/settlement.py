"""Settle events: the one way from the result of a handler to the state of its event.

The steps are: refuse, call, judge, settle, report. Sync, async, batch and transactional handlers differ only in the
call. An event that is plainly done skips all this, because its lane records it."""

import asyncio
import threading
from time import monotonic
from typing import cast

from partbox.events import DeliveredEvent
from partbox.protocol.verdict import Verdict
from partbox.worker.engine.engine import Engine
from partbox.worker.engine.partition import Lane
from partbox.worker.fork_safety import exit_forked
from partbox.worker.reports.delivery_counts import Tally
from partbox.worker.reports.outcomes import EventReports
from partbox.worker.runners.endpoint import Endpoint, RunKind
from partbox.worker.runners.pool_guard import shared_loops


class Settlement:
    """The part of a worker process that decides and records the outcome of each event. Runner threads, the event loop
    and the transactor's thread use it."""

    def __init__(self, engine: Engine, reports: EventReports) -> None:
        self._engine = engine
        self.reports = reports

    def refuse_event(self, lane: Lane, endpoint: Endpoint, event: DeliveredEvent) -> bool:
        """Return True if the handler must not be called with the event now."""
        # The event is then put back, if its lane has no permit under a limit, or deferred, if the circuit breaker is
        # open.
        if endpoint.run_kind is RunKind.LIMITED and not self._engine.limits.has_permit(lane, event.id):
            self._engine.outcomes.put_back(lane, event)
            return True
        is_probe = endpoint.handler.circuit_by is not None and self._engine.limits.is_probe(lane)
        refusal = endpoint.find_refusal(event, lane.started_at, is_probe=is_probe)
        if refusal is None:
            return False
        self.settle(lane, event, endpoint.build_deferral_verdict(event, refusal))
        return True

    def settle_result(
        self, lane: Lane, endpoint: Endpoint, event: DeliveredEvent, result: object, tally: Tally | None
    ) -> None:
        """Record the outcome of an event whose handler failed or returned a special result."""
        # The result is judged. A plain success does not need this.
        if self._engine.is_forked:
            exit_forked(result)
        self.raise_interrupt(result)
        seconds = monotonic() - lane.started_at
        verdict = endpoint.judge(event, result, lane.started_at)
        self.update_circuits(endpoint)
        if tally is not None:
            tally.count_timed(endpoint, event, seconds, done=verdict is None)
        self.settle(lane, event, verdict, result, seconds)

    def update_circuits(self, endpoint: Endpoint) -> None:
        """Let events wait or go on whose circuit has changed. Call this after each judgement, before the lane ends."""
        # Only handlers with a circuit for each value have such circuits.
        for address in endpoint.circuit.take_changed():
            self._engine.limits.update_circuit(address, endpoint.circuit.find_next_probe, monotonic())

    @staticmethod
    def raise_interrupt(result: object) -> None:
        """Raise the result if it is a KeyboardInterrupt (Ctrl-C) from the application's event loop."""
        # The interrupt reached a handler there, and the application must end.
        if (
            issubclass(type(result), KeyboardInterrupt)
            and threading.current_thread() is threading.main_thread()
            and asyncio._get_running_loop() in shared_loops
        ):
            raise cast(KeyboardInterrupt, result)

    def settle(
        self,
        lane: Lane,
        event: DeliveredEvent,
        verdict: Verdict | None,
        result: object = None,
        seconds: float | None = None,
        incarnation: int | None = None,
    ) -> None:
        """Record an event's outcome in the engine and report it to observers."""
        # `incarnation` counts how often the partition had been read anew when the event was read.
        settled = self._engine.outcomes.settle_event(lane, event, verdict, incarnation)
        # Only an event that waits for the circuit of its value has a text beside its wait.
        if verdict is not None and verdict.waits and verdict.error is not None:
            self._engine.limits.note_deferred(lane, event)
        if settled:
            self.reports.report_settled(event, verdict, result, seconds)
