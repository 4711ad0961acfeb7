"""The one way from a handler's result to what is known of its event: refuse → call → judge → settle → report.

Sync, async, list and transactional handlers differ only in how they are called. Before the call the circuit may
refuse; after it the endpoint judges the result, the engine notes the verdict (`engine.outcomes`), and who wants to know
is told. What is plainly done skips all that: its lane notes it.
"""

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
    """The settlement of one process, by its runner threads, its event loop, and the transactor's thread."""

    def __init__(self, engine: Engine, reports: EventReports) -> None:
        self._engine = engine
        self.reports = reports

    def refuse_event(self, lane: Lane, endpoint: Endpoint, event: DeliveredEvent) -> bool:
        """Put the event back if it waits for a turn that its lane has not, or defer it if the circuit of its handler is
        open; True then."""
        if endpoint.run_kind is RunKind.LIMITED and not self._engine.limits.covers(lane, event.id):
            self._engine.outcomes.put_back(lane, event)
            return True
        refusal = endpoint.refusal(lane.started)
        if refusal is None:
            return False
        self.settle(lane, event, endpoint.deferral_verdict(event, refusal))
        return True

    def settle_result(
        self, lane: Lane, endpoint: Endpoint, event: DeliveredEvent, result: object, tally: Tally | None
    ) -> None:
        """The handler has ended, not as it mostly does: judge, and settle."""
        if self._engine.is_forked:
            exit_forked(result)
        self.raise_interrupt(result)
        seconds = monotonic() - lane.started
        verdict = endpoint.judge(event, result, lane.started)
        if tally is not None:
            tally.count_timed(endpoint, event, seconds, done=verdict is None)
        self.settle(lane, event, verdict, result, seconds)

    @staticmethod
    def raise_interrupt(result: object) -> None:
        """Raise a Ctrl-C that has met a handler in the application's loop: it is for the application, which it ends."""
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
        """Note the verdict, and tell of it; `incarnation`: that of its partition in which the event was read."""
        if self._engine.outcomes.settle(lane, event, verdict, incarnation):
            self.reports.report_settled(event, verdict, result, seconds)
