"""The lanes of one process that have something to do, where handlers have limits.

It stands before the queue of a process without limits, which keeps what no limit concerns. A lane whose next event is
of a limited handler waits here for its turn (`protocol.turns`), and runs that one event in it: then it comes again,
with whatever is next in it. So nothing that waits holds what is not of its key.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from math import inf
from typing import NamedTuple

from partbox.events import DeliveredEvent
from partbox.protocol.limits import Limit
from partbox.protocol.turns import Place, ProcessBounds, Turns
from partbox.worker.engine.partition import Lane, Partition, SharedLane
from partbox.worker.engine.ready_queue import SEARCHED, Queue

PlaceOf = Callable[[DeliveredEvent], Place | None]
"""The place at which an event waits for its turn; None if its handler has no limit."""

AHEAD = 2.0  # seconds; what has a turn by then stays in memory where it is parked already
FEW = 16  # lanes of a place that do so in any case
LOOK = 0.005  # seconds between two looks for turns at least
LONGEST = 60.0  # seconds until one that was put away comes back: its limit may have been raised
OFTEN, SELDOM = 0.1, 1.0  # seconds between two looks at all that waits, where windows are full and else


class WaitingLane(NamedTuple):
    """A lane that waits for the turn of the event at its head, and since when (monotonic seconds)."""

    lane: Lane
    head: int  # the event's id
    since: float

    def is_stale(self) -> bool:
        """True if that event does not wait here any more, or is not going to be started."""
        queue = self.lane.queue
        return self.lane.partition.stopping or not queue or queue[0].id != self.head


class LimitWait(NamedTuple):
    """The line at a place: the number of events, and since when the first waits (monotonic seconds)."""

    place: Place
    events: int
    since: float


class LimitedQueue:
    """Lock held, but for `covers`. `look` says what time it is, before it is asked for lanes."""

    def __init__(self, queue: Queue, place_of: PlaceOf) -> None:
        self.plain = queue
        self.turns = Turns[WaitingLane]()
        self.place_of = place_of
        self._now = 0.0
        self._plain_first = True
        self._started: dict[Lane, tuple[Place, int]] = {}  # its turn, and the event's id
        self._promised: dict[Place, float] = {}  # up to when the turns of those are that were put away
        self._crowded = 0.0
        self._known_at = inf  # when the poller looks for turns (monotonic seconds)

    def __len__(self) -> int:
        return len(self.plain) + len(self.turns)

    def add(self, lanes: Sequence[Lane], *, due: bool) -> None:
        free = []
        for lane in lanes:
            place = self._place(lane)
            if place is None:
                free.append(lane)
            else:
                self.turns.add(place, WaitingLane(lane, lane.queue[0].id, self._now), self._now)
        if free:
            self.plain.add(free, due=due)

    def look(self, now: float) -> None:
        """Find out what may have a turn `now` (monotonic seconds)."""
        self._now = max(now, self._now)
        while (place := self.turns.next(self._now)) is not None and self.turns.first(place).is_stale():
            self._again(self.turns.take(place, lambda _: True, 1))

    def take(self) -> list[Lane]:
        """The next lanes: by turns some of those without a limit, and one that has its turn."""
        self._plain_first = not self._plain_first
        place = self.turns.next(self._now)
        if place is None or (self._plain_first and len(self.plain)):
            return self.plain.take() if len(self.plain) else []
        waiting = self.turns.start(place, self._now)
        self._started[waiting.lane] = place, waiting.head
        self.look(self._now)
        return [waiting.lane]

    def take_those(self, joining: Callable[[Lane], int], most: int, place: Place | None = None) -> list[Lane]:
        """Take lanes of this place, or of none, as `ReadyQueue` does."""
        if place is None:
            return self.plain.take_those(joining, most)
        left = most

        def joins(waiting: WaitingLane) -> bool:
            nonlocal left
            many = joining(waiting.lane) if left > 0 and not waiting.is_stale() else 0
            left -= many
            return many > 0

        return [each.lane for each in self.turns.take(place, joins, SEARCHED * most)]

    def covers(self, lane: Lane) -> tuple[Place, int] | None:
        """The turn that the lane has, and the id of the event that has it; None if it has none. Any thread."""
        return self._started.get(lane)

    def ended(self, lanes: Sequence[Lane]) -> None:
        """Note that these lanes do not run any more: others may have their turn."""
        for lane in lanes if self._started else ():
            if (turn := self._started.pop(lane, None)) is not None:
                self.turns.end(turn[0], self._now)

    # The timer, which the poller has.

    def next_at(self, *, full: bool) -> float | None:
        """The time of the next turn, soon after the last look at most; from here on the poller knows it.

        Where a turn has come, and the process is not `full`, runners are called; each may make the next one known."""
        at = self.turns.next_at()
        if at is None and not (len(self.turns) and not full):
            self._known_at = inf
            return None
        self._known_at = max(at or 0.0, self._now + LOOK)
        return self._known_at

    def is_sooner(self) -> bool:
        """True if there is a turn sooner than the poller knows of, which it is told then."""
        at = self.turns.next_at()
        if at is None or at > self._known_at - LOOK:
            return False
        self._known_at = at
        return True

    def is_awake(self) -> None:
        """The poller is awake, and asks for the next turn before it rests."""
        self._known_at = self._now

    # What is in force.

    def limit(self, limits: Mapping[str, Limit], now: float) -> None:
        """Have these limits in force."""
        self.look(now)
        self._again(self.turns.limit(limits, self._now))
        self.look(now)

    def share(self, share: float, now: float | None) -> None:
        """The process owns so much of the partitions from now on; None: since the last look, and it is less."""
        self.look(self._now if now is None else now)
        self.turns.change_share(share, self._now)
        self.sweep()

    def sweep(self) -> None:
        """Let go what does not wait any more: of lost partitions, or parked behind others."""
        self._again([waiting for _, waiting in self.turns.remove(lambda each, _, __: each.is_stale(), self._now)])
        self.look(self._now)

    def crowd(self, full: Collection[Partition], before: float, now: float) -> list[tuple[Lane, float]]:
        """Take out the lanes that are in the way, each with the seconds until its turn may come: of partitions whose
        windows are `full`, since `before`; and of events that are parked already, and take memory that others need.

        One that is charged stays: put away it would run uncharged."""

        def goes(waiting: WaitingLane, ahead: int, bounds: ProcessBounds) -> bool:
            row = waiting.lane.queue[0].parked
            if row is None:
                return waiting.lane.partition in full and waiting.since < before
            return not row.charged and ahead >= max(FEW, AHEAD * (bounds.pace or 0.0))

        if now < self._crowded + (OFTEN if full else SELDOM):
            return []
        self._crowded = now
        self.look(now)
        self.sweep()
        self._promised = {place: until for place, until in self._promised.items() if until > now}
        return [(each.lane, self._promise(place, now)) for place, each in self.turns.remove(goes, now)]

    def _promise(self, place: Place, now: float) -> float:
        """The seconds until a lane that is put away comes back: they do so one by one, as they have their turns."""
        at = max(self._promised.get(place, 0.0), now + AHEAD)
        pace, _, most = self.turns.bounds(place[0])
        self._promised[place] = min(at + 1 / (pace or most), now + LONGEST)
        return at - now

    def waits(self) -> list[LimitWait]:
        """Each place with the events that wait there for their turn."""
        return [
            LimitWait(place, sum(len(each.lane.queue) for each in waiting), waiting[0].since)
            for place, bucket in self.turns.waiting()
            if (waiting := bucket.waiting)
        ]

    def _place(self, lane: Lane) -> Place | None:
        if isinstance(lane, SharedLane) or not lane.queue or lane.partition.stopping:
            return None
        place = self.place_of(lane.queue[0])
        return place if place is not None and self.turns.has(place[0]) else None  # it is about to have one, or had

    def _again(self, several: Sequence[WaitingLane]) -> None:
        self.add([each.lane for each in several], due=False)
