"""Runs one lane: hands its events to their handlers, one after the other."""

import asyncio
from dataclasses import dataclass
from time import monotonic, time
from typing import Any

from partbox.events import DeliveredEvent
from partbox.events.record import ROUTE
from partbox.handlers import Routes
from partbox.worker.engine.engine import Engine
from partbox.worker.engine.partition import Lane, SharedLane
from partbox.worker.engine.scheduler import NoLane
from partbox.worker.fork_safety import exit_forked
from partbox.worker.reports.delivery_counts import Tally
from partbox.worker.runners.endpoint import Endpoint, RunKind
from partbox.worker.runners.event_loop import EventLoop, Suspended, current_run
from partbox.worker.runners.settlement import Settlement
from partbox.worker.slot import Slot

LANE_SLICE = 0.02  # seconds after which a lane's finished events are recorded and other lanes get their turn
RESUMED_SLICE = 0.0001  # seconds of a walk in the application's loop that a handler has once it has waited
TRUST_SPAN = 0.001  # the lease is looked at again when the wall clock has moved by this much; no longer than QUICK

NextEvent = tuple[Endpoint, DeliveredEvent]
Handoff = tuple[Endpoint, Suspended | None]


@dataclass(slots=True, eq=False)
class LaneRun:
    """A runner's turn over the lanes that it took. `ends`: monotonic seconds; `lease_checked_at`: the last look at the
    lease (Unix seconds); `tally` counts what is delivered, None where nobody wants to know. `kind`: of the handlers
    that it may run. `has_waited`: one of them has, so others have had their turn; the walk may last longer then in the
    application's loop, until `latest_end` (0.0 in others, where a turn is no shorter than that)."""

    ends: float
    lease_checked_at: float
    tally: Tally | None
    kind: RunKind = RunKind.SYNC
    has_waited: bool = False
    latest_end: float = 0.0


class LaneRunner:
    """Walks the lanes of one process; from any of its runner threads, and from its event loop."""

    def __init__(self, engine: Engine, routes: Routes[Endpoint], slot: Slot, settlement: Settlement) -> None:
        self._engine = engine
        self._outcomes = engine.outcomes
        self.routes = routes
        self._slot = slot
        self._settlement = settlement
        self._trusted_at = 0.0

    def begin_run(
        self, ends: float, tally: Tally | None = None, kind: RunKind = RunKind.SYNC, *, latest_end: float = 0.0
    ) -> LaneRun:
        """A walk that begins now, and ends then (monotonic seconds), or up to `latest_end` if its handlers wait."""
        return LaneRun(ends, self._trusted_at, tally, kind, latest_end=latest_end)

    def begin_single_run(self, tally: Tally | None) -> LaneRun:
        """A walk over a lane that has its turn: it is over when one event has been started."""
        return self.begin_run(0.0, tally, RunKind.LIMITED)

    def has_permit(self, lane: Lane) -> bool:
        """True if the lane has its turn, of an event whose handler has a limit."""
        return self._engine.limits.covers(lane)

    def next(self, ended: list[Lane], tally: Tally | None) -> list[Lane] | NoLane:
        """End these lanes; the next to run, or why there are none. Observers hear first what `tally` owes them."""
        unreported = tally if tally is not None and tally.oldest is not None else None
        trusted = self.may_start()
        lanes = self._engine.scheduler.next(ended, monotonic(), trusted=trusted, waits=unreported is None)
        if unreported is None or not isinstance(lanes, NoLane):
            return lanes
        self._settlement.reports.report_delivered(unreported)
        return self.next([], tally)

    # Over 40 lines: `next_event`, call and `Settlement.settle_result` in one loop. This is all that most events go
    # through, where one more call for each of them shows.
    def run(self, lane: Lane, run: LaneRun) -> Handoff | None:  # noqa: PLR0915
        """Run the lane's handlers here, as far as they are of the kind of the walk; the endpoint of the next event if
        that is of another kind, or of the `current` one, whose async handler waits."""
        partition, routes, only_route, tally, claim = (
            lane.partition,
            self.routes,
            self.routes.only_route,
            run.tally,
            lane.claim,
        )
        remembered, outcomes, last_event, last_endpoint = partition.resumption.remembered, self._outcomes, None, None
        handoff: Handoff | None = None
        runs_all = only_route is not None and only_route.run_kind is run.kind
        quick_endpoints: list[Endpoint] = []
        if tally is not None and tally.oldest is None:
            tally.oldest = _first_event(lane)
        while (queue := lane.queue) and not partition.is_stopping:
            if not -TRUST_SPAN < time() - run.lease_checked_at < TRUST_SPAN and not self._check_lease(lane, run):
                break
            if partition.incarnation != lane.incarnation:
                outcomes.record_done(lane)
                claim = lane.claim
                continue
            # Asked before one is taken: read anew meanwhile, the partition may have found it, and remember nothing.
            recalls = True if remembered else False  # noqa: SIM210
            try:
                if claim is None:
                    event = queue.popleft()
                else:  # as in `take_first`, which would show here
                    lane.head = queue[0]
                    event = DeliveredEvent(queue.popleft(), claim)
            except IndexError:  # cleared meanwhile
                continue
            if recalls and outcomes.skip_if_done(lane, event):
                continue
            now = monotonic()
            if now > run.ends and lane.current is not None:
                outcomes.put_back(lane, event)
                break
            record = event.record
            endpoint = only_route or routes[record[ROUTE]]
            is_plain = endpoint.is_plain
            if not (is_plain and runs_all) and endpoint.run_kind is not run.kind:
                outcomes.put_back(lane, event)
                handoff = endpoint, None
                break
            lane.started, lane.current = now, event
            if not is_plain and self._settlement.refuse_event(lane, endpoint, event):
                claim = lane.claim
                continue
            context = endpoint.context()
            try:
                result = context.run(endpoint.first_step, event)  # as in `call`, which would show here
            except BaseException as error:  # also SystemExit: a handler does not end the process
                result = error
            if result is None and event.parked is None and is_plain:
                lane.done.append(record)
                if tally is not None:
                    quick_endpoints.append(endpoint)
            elif type(result) is Suspended:
                result.context = context
                handoff = endpoint, result
                break
            else:
                self._settlement.settle_result(lane, endpoint, event, result, tally)
                claim = lane.claim  # the lane was taken over with it, if its partition was read anew meanwhile
            last_event, last_endpoint = event, endpoint
        if handoff is None or handoff[1] is None:
            lane.rest()
        if tally is not None and last_event is not None and last_endpoint is not None:
            tally.count_run(quick_endpoints, (last_endpoint, last_event), lane.started)
        return handoff

    async def run_async(self, lane: Lane, run: LaneRun, task: asyncio.Task[Any] | None) -> Endpoint | None:
        """Run the lane's async handlers in this `task`; the endpoint of its next event if that is of another kind."""
        tally = run.tally
        current_run.task = task
        while (handoff := self.run(lane, run)) is not None:
            endpoint, suspended = handoff
            if suspended is None:
                return endpoint
            event, started = lane.current, lane.started
            assert event is not None
            if isinstance(lane, SharedLane):  # even if nothing waits behind it yet
                self._engine.scheduler.split_if_waiting(lane, started)
            run.has_waited = True
            result = await EventLoop.run_rest(suspended, endpoint.handler.timeout, task)
            if run.latest_end:  # its slice may be over, but the loop has made a round meanwhile
                run.ends = max(run.ends, min(run.latest_end, monotonic() + RESUMED_SLICE))
            if result is None and event.parked is None and endpoint.is_plain:
                lane.note_done(event)
                if tally is not None:
                    tally.count_timed(endpoint, event, monotonic() - started, done=True)
            else:
                self._settlement.settle_result(lane, endpoint, event, result, tally)
            current_run.task = task
            if not lane.queue:  # `run` would find no more than that
                lane.rest()
                break
            if tally is None:
                run.lease_checked_at = self._trusted_at  # by whoever has looked meanwhile
        if self._engine.is_forked:  # nothing is walked on there, whatever waits
            exit_forked(None)
        return None

    def may_start(self) -> bool:
        """True if a handler may start now, within the lease (⛨ DESIGN 5).

        The wall clock jumps over every pause of the process or its machine.
        """
        now = time()
        if -TRUST_SPAN < now - self._trusted_at < TRUST_SPAN:
            return True
        if self._slot.version != self._engine.version or not self._slot.is_trusted():
            return False
        self._trusted_at = now
        return True

    def is_transactional(self, event: DeliveredEvent) -> bool:
        """True if its handler is for the transactor."""
        return self.routes[event.route].kind is RunKind.TRANSACTIONAL

    def next_event(self, lane: Lane, run: LaneRun) -> NextEvent | None:
        """The next event of the lane and where it goes; None at the end of the lane, or of its turn."""
        partition, outcomes = lane.partition, self._outcomes
        remembered = partition.resumption.remembered
        while lane.queue and not partition.is_stopping:
            if not -TRUST_SPAN < time() - run.lease_checked_at < TRUST_SPAN and not self._check_lease(lane, run):
                break
            if partition.incarnation != lane.incarnation:
                outcomes.record_done(lane)
                continue
            recalls = bool(remembered)  # as in `run`
            try:
                event = lane.take_first()
            except IndexError:  # cleared meanwhile
                continue
            if recalls and outcomes.skip_if_done(lane, event):
                continue
            now = monotonic()
            if now > run.ends and lane.current is not None:
                outcomes.put_back(lane, event)
                break
            lane.begin(event, now)
            return self.routes[event.record[ROUTE]], event
        lane.rest()
        return None

    def _check_lease(self, lane: Lane, run: LaneRun) -> bool:
        """Time has passed: a handler was slow perhaps, and may the next one start?"""
        tally, event = run.tally, lane.current
        if tally is not None:
            if event is None:
                tally.count_last_if_slow()
            elif lane.done and lane.done[-1] is event.record:  # else it did not run, or is noted already
                tally.count_if_slow(self.routes[event.route], event, lane.started)
        if not self.may_start():
            return False
        run.lease_checked_at = self._trusted_at
        return True


def _first_event(lane: Lane) -> DeliveredEvent | None:
    try:
        return lane.event(lane.queue[0])
    except IndexError:  # cleared meanwhile
        return None
