"""The lanes of one process that have something to do, where handlers have limits.

It stands before the queue of a process without limits, which keeps what no limit concerns. A lane whose next event is
of a limited handler waits here for its turn (`protocol.turns`), and runs that one event in it: then it comes again,
with whatever is next in it. So nothing that waits holds what is not of its key.

What would wait for long leaves memory where that is needed (DESIGN 7a, waiting rows): it is put away into a row, once,
and comes back when the line at its place has got short. So a backlog costs one row an event, however long it waits, and
in memory are only the lanes that start within the next seconds. Of what was put away by another process it is not known
where it waits: it comes back at once, and is put away again without a statement.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from math import inf
from typing import NamedTuple

from partbox.events import DeliveredEvent
from partbox.protocol.limits import Limit
from partbox.protocol.parking import ParkedRow, RowStage, RowState
from partbox.protocol.turns import Place, ProcessBounds, Turns
from partbox.worker.engine.key import Key
from partbox.worker.engine.partition import Lane, Partition, SharedLane
from partbox.worker.engine.ready_queue import SEARCHED, Queue

PlaceOf = Callable[[DeliveredEvent], Place | None]
"""The place at which an event waits for its turn; None if its handler has no limit."""

AHEAD = 2.0  # seconds; what has a turn by then stays in memory, or comes back
AT_ONCE = 0.2  # the same of what fills a window
FEW = 16  # lanes of a place that stay in any case, while nobody needs the memory
LOOK = 0.005  # seconds between two looks for turns at least
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


class Away(NamedTuple):
    """A row that was put away: its event waits at a place, and is not in memory."""

    partition: Partition
    incarnation: int
    key: Key
    row: ParkedRow
    since: float  # monotonic seconds

    def is_over(self) -> bool:
        """True if the row is not this process's any more, or waits for its turn no longer, or again."""
        partition, row = self.partition, self.row
        if partition.stopping or partition.incarnation != self.incarnation:
            return True
        return row.state is not RowState.DEFERRED or not row.waits or row.stage is RowStage.LOADED

    def is_coming(self) -> bool:
        """True if the row, which was called back, is not in memory yet."""
        return not self.is_over() and (self.row.blocks or self.row.id in self.partition.parked.early)


class Crowd(NamedTuple):
    """The lanes that are in the way.

    The `leaving` ones have left a place, for so many seconds. Of the `long` ones only the head is to stay.
    """

    leaving: Sequence[tuple[Lane, Place, float]] = ()
    long: Sequence[Lane] = ()


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
        self._away: defaultdict[Place, deque[Away]] = defaultdict(deque)  # those, in the order in which they come back
        self._coming: dict[Place, list[Away]] = {}  # those that were called back lately
        self._short: set[Place] = set()  # places whose line may be short, though some are away
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
                # What is parked is older than what was just read, and has waited.
                parked = lane.queue[0].parked is not None
                if parked:
                    lane.partition.parked.wait_in_line(lane.key)
                self.turns.add(place, WaitingLane(lane, lane.queue[0].id, self._now), self._now, first=parked)
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
        if place in self._away:
            self._short.add(place)
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
        self._short.update(self._away)
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

    def crowd(self, full: Collection[Partition], before: float, now: float) -> Crowd:
        """Take out the lanes that are in the way, each with the seconds until its turn may come: of partitions whose
        windows are `full`, all that have no turn soon or are long, and those that have been there since `before`; and
        of events that are parked already, those that take memory for long. In a full window a long lane whose head is
        parked loses what is behind that.

        One that is charged stays: put away it would run uncharged."""
        long: list[Lane] = []

        def goes(waiting: WaitingLane, ahead: int, bounds: ProcessBounds) -> bool:
            lane, row, few = waiting.lane, waiting.lane.queue[0].parked, max(1.0, _starts(bounds, AHEAD))
            if lane.partition not in full:
                return row is not None and not row.charged and ahead >= max(FEW, few)
            is_long = len(lane.queue) > few
            if row is None:
                return ahead + 1 > _starts(bounds, AT_ONCE) or is_long or waiting.since < before
            goes = not row.charged and ahead >= few
            if not goes and len(lane.queue) > 1 and (is_long or lane.queue[-1].parked is None):
                long.append(lane)
            return goes

        if now < self._crowded + (OFTEN if full else SELDOM):
            return Crowd()
        self._crowded = now
        self.look(now)
        self.sweep()
        self._promised = {place: until for place, until in self._promised.items() if until > now}
        gone = self.turns.remove(goes, now)
        return Crowd([(each.lane, place, self._promise(place, now)) for place, each in gone], long)

    def put_away(self, place: Place, lane: Lane, row: ParkedRow) -> None:
        """Have a row come back when its turn is near, whose lane `crowd` has taken out."""
        self._away[place].append(Away(lane.partition, lane.partition.incarnation, lane.key, row, self._now))
        self._short.add(place)

    def recall(self) -> Iterator[Away]:
        """Take as many of those that were put away as may start within the next seconds; all where no limit is left."""
        for place in [*self._short]:
            away, room = self._away[place], inf
            coming = [each for each in self._coming.pop(place, ()) if each.is_coming()]
            if self.turns.has(place[0]):
                # What was just read is younger than what was put away, and makes no line.
                _, in_line = self.turns.count(place)
                room = max(1.0, _starts(self.turns.bounds(place[0]), AHEAD)) - in_line
            while away and (away[0].is_over() or (room > len(coming) and not away[0].row.unsaved)):
                each = away.popleft()
                if not each.is_over():
                    coming.append(each)
                    yield each
            if not away:
                del self._away[place]
            elif coming:
                self._coming[place] = coming
            if not away or room <= 0:
                self._short.discard(place)

    def forget_lost(self) -> None:
        """Forget what was put away and is not this process's any more."""
        self._coming.clear()
        for place, away in [*self._away.items()]:
            kept = deque(each for each in away if not each.partition.stopping)
            if kept:
                self._away[place] = kept
            else:
                del self._away[place]

    @property
    def has_away(self) -> bool:
        """True if rows that were put away may have to come back."""
        return bool(self._short)

    def count_loose(self) -> int:
        """Count the parked events without an aggregate that are in line."""
        lanes = (each.lane for _, bucket in self.turns.waiting() for each in bucket.waiting)
        return sum(lane.key[0] is None and bool(lane.queue) and lane.queue[0].parked is not None for lane in lanes)

    def _promise(self, place: Place, now: float) -> float:
        """Return the seconds until the turn of a lane that is put away: after those in line, and those put away."""
        pace, _, most = self.turns.bounds(place[0])
        speed = pace or most  # a call may take long: that each takes a second is a guess
        in_line, _ = self.turns.count(place)
        at = max(self._promised.get(place, 0.0), now + max(AHEAD, in_line / speed))
        self._promised[place] = at + 1 / speed
        return at - now

    def waits(self) -> list[LimitWait]:
        """Return each place with the events that wait there for their turn, in memory or put away.

        Of those that were put away with one aggregate the first counts.
        """
        waits = {
            place: LimitWait(place, sum(len(each.lane.queue) for each in waiting), waiting[0].since)
            for place, bucket in self.turns.waiting()
            if (waiting := bucket.waiting)
        }
        for place, away in self._away.items():
            _, events, since = waits.get(place, LimitWait(place, 0, inf))
            waits[place] = LimitWait(place, events + len(away), min(since, away[0].since))
        return [*waits.values()]

    def _place(self, lane: Lane) -> Place | None:
        if isinstance(lane, SharedLane) or not lane.queue or lane.partition.stopping:
            return None
        place = self.place_of(lane.queue[0])
        return place if place is not None and self.turns.has(place[0]) else None  # it is about to have one, or had

    def _again(self, several: Sequence[WaitingLane]) -> None:
        self.add([each.lane for each in several], due=False)


def _starts(bounds: ProcessBounds, seconds: float) -> float:
    """Return how many lanes of a place may start within so many seconds; a guess where that depends on others' ends."""
    return FEW if bounds.pace is None else seconds * bounds.pace
