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
from partbox.worker.engine.runs import Rest
from partbox.worker.fork_safety import leave
from partbox.worker.reports.delivery_counts import Tally
from partbox.worker.runners.endpoint import Endpoint, Kind
from partbox.worker.runners.event_loop import EventLoop, Suspended, walking
from partbox.worker.runners.settlement import Settlement
from partbox.worker.slot import Slot

LANE_TURN = 0.02  # seconds after which a lane's finished events are recorded and other lanes get their turn
RESUMED = 0.0001  # seconds of a walk in the application's loop that a handler has once it has waited
TRUST_SPAN = 0.001  # the lease is looked at again when the wall clock has moved by this much; no longer than QUICK

Step = tuple[Endpoint, DeliveredEvent]
Met = tuple[Endpoint, Suspended | None]


@dataclass(slots=True, eq=False)
class Walk:
    """A runner's turn over the lanes that it took. `ends`: monotonic seconds; `looked_at`: the last look at the lease
    (Unix seconds); `tally` counts what is delivered, None where nobody wants to know. `kind`: of the handlers that
    it may run. `waited`: one of them has, so others have had their turn; the walk may last longer then in the
    application's loop, until `latest` (0.0 in others, where a turn is no shorter than that)."""

    ends: float
    looked_at: float
    tally: Tally | None
    kind: Kind = Kind.SYNC
    waited: bool = False
    latest: float = 0.0


class LaneRunner:
    """Walks the lanes of one process; from any of its runner threads, and from its event loop."""

    def __init__(self, engine: Engine, routes: Routes[Endpoint], slot: Slot, settlement: Settlement) -> None:
        self._engine = engine
        self._outcomes = engine.outcomes
        self.routes = routes
        self._slot = slot
        self._settlement = settlement
        self._trusted_at = 0.0

    def begin(self, ends: float, tally: Tally | None = None, kind: Kind = Kind.SYNC, *, latest: float = 0.0) -> Walk:
        """A walk that begins now, and ends then (monotonic seconds), or up to `latest` if its handlers wait."""
        return Walk(ends, self._trusted_at, tally, kind, latest=latest)

    def turn(self, tally: Tally | None) -> Walk:
        """A walk over a lane that has its turn: it is over when one event has been started."""
        return self.begin(0.0, tally, Kind.LIMITED)

    def has_turn(self, lane: Lane) -> bool:
        """True if the lane has its turn, of an event whose handler has a limit."""
        return self._engine.limits.covers(lane)

    def next(self, ended: list[Lane], tally: Tally | None) -> list[Lane] | Rest:
        """End these lanes; the next to run, or why there are none. Observers hear first what `tally` owes them."""
        owed = tally if tally is not None and tally.oldest is not None else None
        trusted = self.trusted()
        lanes = self._engine.runs.next(ended, monotonic(), trusted=trusted, waits=owed is None)
        if owed is None or not isinstance(lanes, Rest):
            return lanes
        self._settlement.reports.delivered(owed)
        return self.next([], tally)

    # Over 40 lines: `step`, call and `Settlement.end` in one loop. This is all that most events go through, where one
    # more call for each of them shows.
    def walk(self, lane: Lane, walk: Walk) -> Met | None:  # noqa: PLR0915
        """Run the lane's handlers here, as far as they are of the kind of the walk; the endpoint of the next event if
        that is of another kind, or of the `current` one, whose async handler waits."""
        partition, routes, only, tally, claim = lane.partition, self.routes, self.routes.only, walk.tally, lane.claim
        remembered, outcomes, got, by = partition.resumption.remembered, self._outcomes, None, None
        met: Met | None = None
        mine = only is not None and only.walked_as is walk.kind
        quick: list[Endpoint] = []
        if tally is not None and tally.oldest is None:
            tally.oldest = _first(lane)
        while (queue := lane.queue) and not partition.stopping:
            if not -TRUST_SPAN < time() - walk.looked_at < TRUST_SPAN and not self._look(lane, walk):
                break
            if partition.incarnation != lane.incarnation:
                outcomes.take_over(lane)
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
            if recalls and outcomes.recall(lane, event):
                continue
            now = monotonic()
            if now > walk.ends and lane.current is not None:
                outcomes.put_back(lane, event)
                break
            record = event.record
            endpoint = only or routes[record[ROUTE]]
            plain = endpoint.plain
            if not (plain and mine) and endpoint.walked_as is not walk.kind:
                outcomes.put_back(lane, event)
                met = endpoint, None
                break
            lane.started, lane.current = now, event
            if not plain and self._settlement.refused(lane, endpoint, event):
                claim = lane.claim
                continue
            context = endpoint.context()
            try:
                result = context.run(endpoint.first, event)  # as in `call`, which would show here
            except BaseException as error:  # also SystemExit: a handler does not end the process
                result = error
            if result is None and event.parked is None and plain:
                lane.done.append(record)
                if tally is not None:
                    quick.append(endpoint)
            elif type(result) is Suspended:
                result.context = context
                met = endpoint, result
                break
            else:
                self._settlement.end(lane, endpoint, event, result, tally)
                claim = lane.claim  # the lane was taken over with it, if its partition was read anew meanwhile
            got, by = event, endpoint
        if met is None or met[1] is None:
            lane.rest()
        if tally is not None and got is not None and by is not None:
            tally.walked(quick, (by, got), lane.started)
        return met

    async def walk_async(self, lane: Lane, walk: Walk, task: asyncio.Task[Any] | None) -> Endpoint | None:
        """Run the lane's async handlers in this `task`; the endpoint of its next event if that is of another kind."""
        tally = walk.tally
        walking.task = task
        while (met := self.walk(lane, walk)) is not None:
            endpoint, suspended = met
            if suspended is None:
                return endpoint
            event, started = lane.current, lane.started
            assert event is not None
            if isinstance(lane, SharedLane):  # even if nothing waits behind it yet
                self._engine.runs.give_way(lane, started)
            walk.waited = True
            result = await EventLoop.rest(suspended, endpoint.handler.timeout, task)
            if walk.latest:  # its slice may be over, but the loop has made a round meanwhile
                walk.ends = max(walk.ends, min(walk.latest, monotonic() + RESUMED))
            if result is None and event.parked is None and endpoint.plain:
                lane.note_done(event)
                if tally is not None:
                    tally.ran(endpoint, event, monotonic() - started, done=True)
            else:
                self._settlement.end(lane, endpoint, event, result, tally)
            walking.task = task
            if not lane.queue:  # `walk` would find no more than that
                lane.rest()
                break
            if tally is None:
                walk.looked_at = self._trusted_at  # by whoever has looked meanwhile
        if self._engine.forked:  # nothing is walked on there, whatever waits
            leave(None)
        return None

    def trusted(self) -> bool:
        """True if a handler may start now, within the lease (⛨ DESIGN 5).

        The wall clock jumps over every pause of the process or its machine.
        """
        now = time()
        if -TRUST_SPAN < now - self._trusted_at < TRUST_SPAN:
            return True
        if self._slot.version != self._engine.version or not self._slot.trusted():
            return False
        self._trusted_at = now
        return True

    def is_transactional(self, event: DeliveredEvent) -> bool:
        """True if its handler is for the transactor."""
        return self.routes[event.route].kind is Kind.TRANSACTIONAL

    def step(self, lane: Lane, walk: Walk) -> Step | None:
        """The next event of the lane and where it goes; None at the end of the lane, or of its turn."""
        partition, outcomes = lane.partition, self._outcomes
        remembered = partition.resumption.remembered
        while lane.queue and not partition.stopping:
            if not -TRUST_SPAN < time() - walk.looked_at < TRUST_SPAN and not self._look(lane, walk):
                break
            if partition.incarnation != lane.incarnation:
                outcomes.take_over(lane)
                continue
            recalls = bool(remembered)  # as in `walk`
            try:
                event = lane.take_first()
            except IndexError:  # cleared meanwhile
                continue
            if recalls and outcomes.recall(lane, event):
                continue
            now = monotonic()
            if now > walk.ends and lane.current is not None:
                outcomes.put_back(lane, event)
                break
            lane.begin(event, now)
            return self.routes[event.record[ROUTE]], event
        lane.rest()
        return None

    def _look(self, lane: Lane, walk: Walk) -> bool:
        """Time has passed: a handler was slow perhaps, and may the next one start?"""
        tally, event = walk.tally, lane.current
        if tally is not None:
            if event is None:
                tally.passed_between()
            elif lane.done and lane.done[-1] is event.record:  # else it did not run, or is noted already
                tally.passed(self.routes[event.route], event, lane.started)
        if not self.trusted():
            return False
        walk.looked_at = self._trusted_at
        return True


def _first(lane: Lane) -> DeliveredEvent | None:
    try:
        return lane.event(lane.queue[0])
    except IndexError:  # cleared meanwhile
        return None
