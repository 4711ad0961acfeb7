"""Walks one lane: hands its events to their handlers, one after the other, and notes what became of each."""

from collections.abc import Iterable
from itertools import groupby
from operator import attrgetter
from time import monotonic, time

from partbox.events import DeliveredEvent
from partbox.events.record import IDENTITY, ROUTE
from partbox.handlers import Routes
from partbox.rules.parking import Verdict
from partbox.worker.delivering.endpoint import Endpoint, Kind
from partbox.worker.delivering.loop import Loop
from partbox.worker.delivering.reports import Reports
from partbox.worker.delivering.tally import Tally
from partbox.worker.delivering.walk import TRUST_SPAN, Walk
from partbox.worker.forks import leave
from partbox.worker.owning.slot import Slot
from partbox.worker.state.holdings import Holdings
from partbox.worker.state.partition import Lane

Step = tuple[Endpoint, DeliveredEvent]
_partition = attrgetter("partition")


class Delivery:
    """How the lanes of one process are walked; from any of its runner threads, and from its event loop."""

    def __init__(self, holdings: Holdings, routes: Routes[Endpoint], slot: Slot, reports: Reports) -> None:
        self._holdings = holdings
        self.routes = routes
        self._slot = slot
        self.reports = reports
        self.followers: dict[Lane, list[DeliveredEvent]] = {}  # what runs with the current event of a lane, in a list
        self._trusted_at = 0.0

    def begin(self, began: float, tally: Tally | None = None) -> Walk:
        """A walk that begins now (monotonic seconds)."""
        if tally is not None:
            tally.begin(began)
        return Walk(began, self._trusted_at, tally)

    def walk(self, lane: Lane, walk: Walk) -> Endpoint | None:
        """Run the lane's sync handlers in this thread; the endpoint of its next event if that is of another kind.

        It goes from event to event as `step` does, but without a call for each.
        """
        partition, routes, tally = lane.partition, self.routes, walk.tally
        remembered = partition.resumption.remembered
        counted, count, got = None, 0, None
        if tally is not None:
            counted, count = tally.endpoint, tally.count
            if tally.oldest is None:
                tally.oldest = _first(lane)
        other = None
        while (queue := lane.queue) and not partition.stopping:
            if not -TRUST_SPAN < time() - walk.looked_at < TRUST_SPAN and not self._look(lane, walk):
                break
            if partition.life != lane.life:
                with self._holdings.lock:
                    self.record([lane])
                continue
            try:
                event = queue.popleft()
            except IndexError:  # cleared meanwhile
                continue
            if remembered and self._remembered(lane, event):
                continue
            now = monotonic()
            if now > walk.ends and lane.current is not None:
                self.put_back(lane, event)
                break
            record = event.record
            lane.started, lane.current = now, event
            endpoint = routes[record[ROUTE]]
            plain = endpoint.plain
            if not plain:
                if endpoint.kind is not Kind.SYNC:
                    self.put_back(lane, event)
                    other = endpoint
                    break
                if self.refused(lane, endpoint, event):
                    continue
            try:
                result = endpoint.call(event)
            except BaseException as error:  # also SystemExit: a handler does not end the process
                result = error
            if result is None and event.parked is None and plain:
                lane.done.append(record[IDENTITY])
                if tally is not None:
                    if endpoint is not counted:
                        if counted is not None:
                            tally.switch(counted, count)
                        counted, count = endpoint, 0
                    count += 1
            else:
                self._end(lane, walk, endpoint, event, result)
            got, by = event, endpoint
        lane.current = None
        if tally is not None and got is not None:
            tally.endpoint, tally.count = counted, count
            tally.last, tally.started = (by, got), lane.started
        return other

    async def walk_async(self, lane: Lane, walk: Walk) -> None:
        """Run the lane's async handlers; one of another kind that follows waits for a runner."""
        while (step := self.step(lane, walk)) is not None:
            endpoint, event = step
            if endpoint.kind is not Kind.ASYNC:
                self.put_back(lane, event)
                break
            if self.refused(lane, endpoint, event):
                continue
            self._end(lane, walk, endpoint, event, await Loop.call(endpoint.call, event, endpoint.handler.timeout))
        if walk.tally is not None:
            self.reports.delivered(walk.tally)

    def trusted(self) -> bool:
        """May a handler start now? The wall clock jumps over every pause of the process or its machine."""
        now = time()
        if -TRUST_SPAN < now - self._trusted_at < TRUST_SPAN:
            return True
        if self._slot.version != self._holdings.version or not self._slot.trusted():
            return False
        self._trusted_at = now
        return True

    def _look(self, lane: Lane, walk: Walk) -> bool:
        """Time has passed: a handler was slow perhaps, and may the next one start?"""
        tally, event = walk.tally, lane.current
        if tally is not None:
            if event is None:
                tally.passed_between()
            elif lane.done and lane.done[-1] == event.identity:  # else it did not run, or is noted already
                tally.passed(self.routes[event.route], event, lane.started)
        if not self.trusted():
            return False
        walk.looked_at = self._trusted_at
        return True

    def step(self, lane: Lane, walk: Walk) -> Step | None:
        """The next event of the lane and where it goes; None at the end of the lane, or of its turn."""
        partition, remembered = lane.partition, lane.partition.resumption.remembered
        while (queue := lane.queue) and not partition.stopping:
            # Without a call, for it is done before each event.
            if not -TRUST_SPAN < time() - walk.looked_at < TRUST_SPAN and not self._look(lane, walk):
                break
            if partition.life != lane.life:
                with self._holdings.lock:
                    self.record([lane])
                continue
            try:
                event = queue.popleft()
            except IndexError:  # cleared meanwhile
                continue
            if remembered and self._remembered(lane, event):
                continue
            now = monotonic()
            if now > walk.ends and lane.current is not None:
                self.put_back(lane, event)
                break
            lane.started, lane.current = now, event
            return self.routes[event.record[ROUTE]], event
        lane.current = None
        return None

    def put_back(self, lane: Lane, event: DeliveredEvent) -> None:
        """The event is not started now. If its partition is read anew meanwhile, it will come again.

        While it was in its runner's hands, something that must run before it may have been found for its key.
        """
        with self._holdings.lock:
            partition = lane.partition
            if partition.life != lane.life or partition.lost:
                return
            lane.queue.appendleft(event)
            if partition.parked.chains and _overtakes(lane, event):
                hold_rest(lane)
                self._holdings.touch(partition)

    def refused(self, lane: Lane, endpoint: Endpoint, event: DeliveredEvent) -> bool:
        """Whether the event is deferred, because the circuit of its handler is open."""
        refusal = endpoint.refusal(lane.started)
        if refusal is None:
            return False
        self.settle(lane, event, endpoint.deferred(event, refusal))
        return True

    def _end(self, lane: Lane, walk: Walk, endpoint: Endpoint, event: DeliveredEvent, result: object) -> None:
        """The handler has ended, not as it mostly does."""
        if self._holdings.forked:
            leave(result)
        seconds = monotonic() - lane.started
        verdict = endpoint.judge(event, result, lane.started)
        if walk.tally is not None:
            walk.tally.ran(endpoint, event, seconds, done=verdict is None)
        self.settle(lane, event, verdict, result, seconds)

    def settle(
        self,
        lane: Lane,
        event: DeliveredEvent,
        verdict: Verdict | None,
        result: object = None,
        seconds: float | None = None,
        life: int | None = None,
    ) -> None:
        """What became of one event, where it is not simply done; `life` is that of the partition it was read in."""
        with self._holdings.lock:
            partition, life = lane.partition, lane.life if life is None else life
            lane.unstuck = None if lane.unstuck is event else lane.unstuck
            self.ended(lane, event)
            self.record([lane])
            if partition.lost:
                return
            if partition.life == life:
                self.note(lane, event, verdict)
                if event.parked is not None:
                    self._holdings.take_turns()
                self._holdings.touch(partition)
            elif verdict is None:
                partition.resumption.remembered.add(event.identity)
            else:
                return
        self.reports.settled(event, verdict, result, seconds)

    def note(self, lane: Lane, event: DeliveredEvent, verdict: Verdict | None) -> None:
        """Park the event, and hold its lane if it blocks; or count it as done. Lock held."""
        partition = lane.partition
        if verdict is not None:
            if partition.parked.park(event, verdict).blocks:
                hold_rest(lane)
        else:
            partition.settle_done(event)

    def record(self, lanes: Iterable[Lane]) -> None:
        """Note what these have done since it was last noted; neighbours of one partition together. Lock held."""
        for partition, neighbours in groupby(lanes, _partition):
            done: list[tuple[int, bytes]] = []
            life = None if partition.lost else partition.life
            for lane in neighbours:
                if lane.life == life and lane.unstuck is None:
                    if lane.done:
                        done += lane.done
                        lane.done = []
                else:
                    self._record_odd(lane)
            if done:
                partition.finish(done)
                self._holdings.touch(partition)

    def _record_odd(self, lane: Lane) -> None:
        """The same where the partition was read anew or lost meanwhile, or an event of the lane was parked."""
        partition, done = lane.partition, lane.done
        if partition.life != lane.life:  # read anew since the lane began: what is done will come again
            partition.resumption.remembered.update(done)
            lane.life, lane.settled = partition.life, lane.current
        elif done and not partition.lost:
            if lane.unstuck is not None and lane.unstuck.identity in done:  # parked while it ran, done all the same
                done.remove(lane.unstuck.identity)
                partition.parked.done(lane.unstuck)
            if done:
                partition.finish(done)
            self._holdings.touch(partition)
        lane.unstuck = None
        lane.done = []

    def unstick(self, lane: Lane, verdict: Verdict | None = None) -> None:
        """Park the event that runs for long, though it goes on here, and its key behind it. Lock held.

        `ready`, unless a `verdict` says more: that it has run out of time.
        """
        partition, event = lane.partition, lane.current
        if event is None or lane.has_settled(event):  # it has ended, and its lane has not gone on yet
            return
        if partition.life != lane.life:  # read anew since it started: it comes a second time behind itself
            hold_rest(lane)
            self._holdings.touch(partition)
            return
        if verdict is None and event.parked is not None:
            self._hold_behind(lane, event)
            return
        if event.parked is not None and (not event.parked.loaded or event.id in partition.parked.deleting):
            return
        if event.parked is None and event.id in partition.progress.finished:
            return
        row = partition.parked.park(event, verdict or Verdict("ready", event.attempt - 1, None, True, None))
        row.loaded = True
        for follower in self.followers.get(lane, ()):
            partition.parked.hold(follower)
            follower.parked.loaded = True
        lane.unstuck = event
        if lane.key in partition.parked.chains:
            partition.parked.chains[lane.key].stuck = True
        hold_rest(lane)
        self._holdings.touch(partition)

    def _hold_behind(self, lane: Lane, event: DeliveredEvent) -> None:
        """A parked event runs for long: what waits behind it, parked or new, does not wait in memory. Lock held."""
        partition = lane.partition
        partition.weight.drop((event.id,))
        if event.parked.loaded and lane.key in partition.parked.chains:
            partition.parked.chains[lane.key].stuck = True
        if lane.queue:
            hold_rest(lane)
            self._holdings.touch(partition)

    def ended(self, lane: Lane, event: DeliveredEvent) -> None:
        """The event, the current one of its lane or one that runs behind it, does not run any more. Lock held."""
        if event is lane.current:
            lane.settled = event
        elif (followers := self.followers.get(lane)) and event in followers:
            followers.remove(event)

    def _remembered(self, lane: Lane, event: DeliveredEvent) -> bool:
        """Whether this event, read again after a lost connection, was done before."""
        partition = lane.partition
        with self._holdings.lock:
            pair = event.identity
            if pair not in partition.resumption.remembered:
                return False
            if partition.life != lane.life or partition.lost:  # lost once more: it comes again, and is found then
                return True
            partition.resumption.remembered.discard(pair)
            partition.settle_done(event)
            self._holdings.touch(partition)
            return True


def _first(lane: Lane) -> DeliveredEvent | None:
    """What the lane has at its head."""
    try:
        return lane.queue[0]
    except IndexError:  # cleared meanwhile
        return None


def hold_rest(lane: Lane) -> None:
    """Park what waits in the lane behind a blocked event. Lock held.

    Its runner may be taking events from the left meanwhile, without the lock. So they are taken from the right: what is
    held are always the last ones, and what runs are those before them.
    """
    held: list[DeliveredEvent] = []
    while lane.queue:
        try:
            held.append(lane.queue.pop())
        except IndexError:  # the runner has taken the last one
            break
    for event in reversed(held):
        lane.partition.parked.hold(event)


def _overtakes(lane: Lane, event: DeliveredEvent) -> bool:
    """Whether the event, at the head of its lane, would run before one of its key that must run first."""
    chain = lane.partition.parked.chains.get(lane.key)
    if chain is None:
        return False
    id = event.id
    return any(not row.loaded for row in chain.before(id)) or any(each.id < id for each in lane.queue)
