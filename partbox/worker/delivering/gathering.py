"""Gathers a list for a batch handler: of what waits now, from as many lanes as it takes.

Nothing lingers for a list to fill up. An event that has failed before, or may have killed a process, comes in a list of
its own: so the one that makes its list fail is found, and takes no others with it.
"""

from collections.abc import Callable, Sequence

from partbox.events import DeliveredEvent
from partbox.events.record import ROUTE
from partbox.worker.delivering.endpoint import Endpoint
from partbox.worker.delivering.lane_runner import LaneRunner
from partbox.worker.delivering.settlement import Settlement
from partbox.worker.state.holdings import Holdings
from partbox.worker.state.partition import Lane

More = Callable[[Endpoint, int], Sequence[Lane]]
"""At most so many more lanes that wait with an event for this endpoint; they count as running from then on."""


Member = tuple[Lane, DeliveredEvent, int]
"""An event of a list, its lane, and the life of the partition that it was read in."""


class Gathering:
    """Of one process; any runner thread, and the event loop. `more` brings further lanes."""

    def __init__(self, holdings: Holdings, runner: LaneRunner, settlement: Settlement, more: More) -> None:
        self._holdings = holdings
        self._runner = runner
        self._settlement = settlement
        self._more = more

    def gather(self, lane: Lane, endpoint: Endpoint) -> tuple[list[Member], list[Lane]]:
        """A list that begins with this lane, and the lanes beside it that take part."""
        size = endpoint.handler.max_size or 1
        deep = endpoint.handler.per_key or size
        members = self._take(lane, endpoint, min(deep, size))
        others: list[Lane] = []
        if not members or _runs_alone(members[0][1]):
            return members, others
        while len(members) < size and (more := self._more(endpoint, size - len(members))):
            others.extend(more)
            joining = self._join(more, endpoint, deep, size - len(members))
            members += joining
            if not joining:
                break
        return members, others

    def _take(self, lane: Lane, endpoint: Endpoint, most: int) -> list[Member]:
        """Take from the head of the lane what is for this endpoint."""
        taken: list[Member] = []
        walk = self._runner.begin(float("inf"))
        while len(taken) < most and (step := self._runner.step(lane, walk)) is not None:
            found, event = step
            alone = _runs_alone(event)
            if found is not endpoint or (alone and taken):
                self._runner.put_back(lane, event)
                break
            taken.append((lane, event, lane.life))
            if alone:
                break
        with self._holdings.lock:
            self._begin(lane, taken)
        return taken

    def _join(self, lanes: Sequence[Lane], endpoint: Endpoint, deep: int, most: int) -> list[Member]:
        """The same of many lanes at once; of one with something odd about it nothing: it will begin a list itself."""
        if not self._runner.trusted():
            return []
        taken: list[Member] = []
        with self._holdings.lock:
            for lane in lanes:
                partition = lane.partition
                if not (partition.stopping or partition.resumption.remembered or partition.life != lane.life):
                    members = self._heads(lane, endpoint, min(deep, most - len(taken)))
                    self._begin(lane, members)
                    taken += members
        return taken

    def _heads(self, lane: Lane, endpoint: Endpoint, most: int) -> list[Member]:
        queue, life, routes = lane.queue, lane.life, self._runner.routes
        taken: list[Member] = []
        fits = routes.only is endpoint
        while queue and len(taken) < most:
            event = queue[0]
            if event.parked is not None and _runs_alone(event):
                break
            if not fits and routes[event.record[ROUTE]] is not endpoint:
                break
            taken.append((lane, queue.popleft(), life))
        return taken

    def _begin(self, lane: Lane, members: Sequence[Member]) -> None:
        """These of the lane run from now on. Lock held."""
        lane.current, lane.settled = members[0][1] if members else None, None
        if len(members) > 1:
            self._settlement.followers[lane] = [event for _, event, _ in members[1:]]


def _runs_alone(event: DeliveredEvent) -> bool:
    return event.attempt > 1 or (event.parked is not None and event.parked.charged)
