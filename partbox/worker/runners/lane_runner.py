"""Run the events of one lane, one handler after another."""

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
from partbox.worker.runners.event_loop import EventLoop, SuspendedHandler, current_run
from partbox.worker.runners.settlement import Settlement
from partbox.worker.slot import Slot

LANE_SLICE = 0.02  # seconds until done events of a lane are recorded and other lanes have their turn
RESUMED_SLICE = 0.0001  # seconds that a handler has after a wait, in the application's loop
TRUST_SPAN = 0.001  # seconds by which the wall clock moves before the lease is checked again; at most QUICK

NextEvent = tuple[Endpoint, DeliveredEvent]
Handoff = tuple[Endpoint, SuspendedHandler | None]


@dataclass(slots=True, eq=False)
class LaneRun:
    """One time slice in which a thread or task runs events of the queues (lanes) that it has taken."""

    # `ends_at` is in monotonic seconds, `lease_checked_at` in Unix seconds. `tally` counts deliveries, or is None if
    # nothing reads them. Only handlers of `kind` are run. `has_waited` is True once a handler has suspended, so that
    # other tasks have run. In the application's loop the slice may then last until `latest_end` (0.0 elsewhere: no
    # extension).

    ends_at: float
    lease_checked_at: float
    tally: Tally | None
    kind: RunKind = RunKind.SYNC
    has_waited: bool = False
    latest_end: float = 0.0


class LaneRunner:
    """The code that runs the events of a lane (the queue of events of one key), one handler call after another. All
    runner threads and the event loop of a process share one object."""

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
        """Return a new time slice that ends at `ends`, or up to `latest_end` if its handlers wait."""
        # Both are monotonic seconds.
        return LaneRun(ends, self._trusted_at, tally, kind, latest_end=latest_end)

    def begin_single_run(self, tally: Tally | None) -> LaneRun:
        """Return a time slice that ends after one event."""
        # The slice is for a lane that holds a permit to run one event of a rate- or concurrency-limited handler.
        return self.begin_run(0.0, tally, RunKind.LIMITED)

    def has_permit(self, lane: Lane) -> bool:
        """Return True if an event of this queue may start now under its handler's rate or concurrency limit."""
        # A lane is the queue of events of one key.
        return self._engine.limits.has_permit(lane)

    def take_next_lanes(self, ended: list[Lane], tally: Tally | None) -> list[Lane] | NoLane:
        """Give back the event queues that have ended, and return the next queues to run, or the reason why there are
        none."""
        # The delivery counts in `tally` are reported before the runner waits.
        unreported = tally if tally is not None and tally.oldest_event is not None else None
        trusted = self.may_start()
        lanes = self._engine.scheduler.take_next_lanes(ended, monotonic(), trusted=trusted, waits=unreported is None)
        if unreported is None or not isinstance(lanes, NoLane):
            return lanes
        self._settlement.reports.report_delivered(unreported)
        return self.take_next_lanes([], tally)

    def run(self, lane: Lane, run: LaneRun) -> Handoff | None:  # noqa: PLR0915
        """Run the events of a lane (queue of one key) until the time slice is over, the lane is empty, or an event
        needs another runner. Return None in the first two cases, an endpoint (handler) and None if the next event is
        for another kind of handler, and an endpoint and Suspended if the async handler of the current event waits."""
        # Long, because `take_next_event`, the call and `Settlement.settle_result` are inlined here. Most events go
        # through nothing else, and one more call for each event is measurable.
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
        if tally is not None and tally.oldest_event is None:
            tally.oldest_event = _peek_first_event(lane)
        while (queue := lane.queue) and not partition.is_stopping:
            if not -TRUST_SPAN < time() - run.lease_checked_at < TRUST_SPAN and not self._check_lease(lane, run):
                break
            if partition.incarnation != lane.incarnation:
                outcomes.record_done(lane)
                claim = lane.claim
                continue
            # Read before the event is taken: if the partition is read anew in between, the engine may have found the
            # event itself, and nothing is remembered any more.
            recalls = True if remembered else False  # noqa: SIM210
            try:
                # As in `Lane.take_first`, without the call.
                if claim is None:
                    event = queue.popleft()
                else:
                    lane.head = queue[0]
                    event = DeliveredEvent(queue.popleft(), claim)
            except IndexError:
                # The queue was cleared meanwhile.
                continue
            if recalls and outcomes.skip_if_done(lane, event):
                continue
            now = monotonic()
            if now > run.ends_at and lane.current_event is not None:
                outcomes.put_back(lane, event)
                break
            record = event.record
            endpoint = only_route or routes[record[ROUTE]]
            is_plain = endpoint.is_plain
            if not (is_plain and runs_all) and endpoint.run_kind is not run.kind:
                outcomes.put_back(lane, event)
                handoff = endpoint, None
                break
            lane.started_at, lane.current_event = now, event
            if not is_plain and self._settlement.refuse_event(lane, endpoint, event):
                claim = lane.claim
                continue
            context = endpoint.context()
            try:
                # As in `Endpoint.call`, without the call.
                result = context.run(endpoint.first_step, event)
            except BaseException as error:
                # SystemExit too: a handler must not end the process.
                result = error
            if result is None and event.parked is None and is_plain:
                lane.done_rows.append(record)
                if tally is not None:
                    quick_endpoints.append(endpoint)
            elif type(result) is SuspendedHandler:
                result.context = context
                handoff = endpoint, result
                break
            else:
                self._settlement.settle_result(lane, endpoint, event, result, tally)
                # If the partition was read anew meanwhile, the lane was taken over with another claim.
                claim = lane.claim
            last_event, last_endpoint = event, endpoint
        if handoff is None or handoff[1] is None:
            lane.clear_current()
        if tally is not None and last_event is not None and last_endpoint is not None:
            tally.count_run(quick_endpoints, (last_endpoint, last_event), lane.started_at)
        return handoff

    async def run_async(self, lane: Lane, run: LaneRun, task: asyncio.Task[Any] | None) -> Endpoint | None:
        """Run the events of a lane (queue of one key) in the asyncio task `task`."""
        # Async handlers are awaited. The result is the endpoint (handler) of the next event if that is of another kind.
        tally = run.tally
        current_run.task = task
        while (handoff := self.run(lane, run)) is not None:
            endpoint, suspended = handoff
            if suspended is None:
                return endpoint
            event, started = lane.current_event, lane.started_at
            assert event is not None
            # Even if nothing waits behind the event yet.
            if isinstance(lane, SharedLane):
                self._engine.scheduler.split_if_waiting(lane, started)
            run.has_waited = True
            result = await EventLoop.run_rest(suspended, endpoint.handler.timeout, task)
            # The slice may be over, but other tasks have run meanwhile.
            if run.latest_end:
                run.ends_at = max(run.ends_at, min(run.latest_end, monotonic() + RESUMED_SLICE))
            if result is None and event.parked is None and endpoint.is_plain:
                lane.note_done(event)
                if tally is not None:
                    tally.count_timed(endpoint, event, monotonic() - started, done=True)
            else:
                self._settlement.settle_result(lane, endpoint, event, result, tally)
            current_run.task = task
            # `run` would find nothing more.
            if not lane.queue:
                lane.clear_current()
                break
            if tally is None:
                # Another runner may have checked the lease meanwhile.
                run.lease_checked_at = self._trusted_at
        # Nothing more is run in a fork.
        if self._engine.is_forked:
            exit_forked(None)
        return None

    def may_start(self) -> bool:
        """Return True if the worker still owns its partitions, so that a handler may start now."""
        # The worker's lease on its partitions must still hold. The check reads the wall clock, because
        # that jumps over every pause of the process or its machine.
        now = time()
        if -TRUST_SPAN < now - self._trusted_at < TRUST_SPAN:
            return True
        if self._slot.version != self._engine.version or not self._slot.is_trusted():
            return False
        self._trusted_at = now
        return True

    def is_transactional(self, event: DeliveredEvent) -> bool:
        """Return True if the event's handler runs in a database transaction of the worker."""
        # The option is `transactional`.
        return self.routes[event.route].kind is RunKind.TRANSACTIONAL

    def take_next_event(self, lane: Lane, run: LaneRun) -> NextEvent | None:
        """Take the next event of a queue to run it. Return its handler and the event, or None at the end of the queue
        or time slice."""
        # The event counts as running from now on.
        # The handler is an endpoint.
        partition, outcomes = lane.partition, self._outcomes
        remembered = partition.resumption.remembered
        while lane.queue and not partition.is_stopping:
            if not -TRUST_SPAN < time() - run.lease_checked_at < TRUST_SPAN and not self._check_lease(lane, run):
                break
            if partition.incarnation != lane.incarnation:
                outcomes.record_done(lane)
                continue
            # Before the event is taken, as in `run`.
            recalls = bool(remembered)
            try:
                event = lane.take_first()
            except IndexError:
                # The queue was cleared meanwhile.
                continue
            if recalls and outcomes.skip_if_done(lane, event):
                continue
            now = monotonic()
            if now > run.ends_at and lane.current_event is not None:
                outcomes.put_back(lane, event)
                break
            lane.begin_event(event, now)
            return self.routes[event.record[ROUTE]], event
        lane.clear_current()
        return None

    def _check_lease(self, lane: Lane, run: LaneRun) -> bool:
        # The result is True if the worker still owns its partitions, so that another handler may start.
        # If the handler before was slow, it is added to the delivery counts.
        tally, event = run.tally, lane.current_event
        if tally is not None:
            if event is None:
                tally.count_last_if_slow()
            elif lane.done_rows and lane.done_rows[-1] is event.record:
                # Otherwise the handler did not run, or is counted already.
                tally.count_if_slow(self.routes[event.route], event, lane.started_at)
        if not self.may_start():
            return False
        run.lease_checked_at = self._trusted_at
        return True


def _peek_first_event(lane: Lane) -> DeliveredEvent | None:
    try:
        return lane.build_event(lane.queue[0])
    except IndexError:
        # The queue was cleared meanwhile.
        return None
