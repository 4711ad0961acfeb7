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
from partbox.protocol.turns import LimitKey, PermitQueues, ProcessBounds
from partbox.worker.engine.key import Key
from partbox.worker.engine.partition import Lane, Partition, SharedLane
from partbox.worker.engine.ready_queue import SEARCHED, RunQueue

LimitKeyOf = Callable[[DeliveredEvent], LimitKey | None]
"""The place at which an event waits for its turn; None if its handler has no limit."""

KEEP_SECONDS = 2.0  # seconds; what has a turn by then stays in memory, or comes back
KEEP_SECONDS_FULL = 0.2  # the same of what fills a window
MIN_LANES = 16  # lanes of a place that stay in any case, while nobody needs the memory
POLL_INTERVAL = 0.005  # seconds between two looks for turns at least
INTERVAL_FULL, INTERVAL_ELSE = 0.1, 1.0  # seconds between two looks at all that waits, where windows are full and else


class WaitingLane(NamedTuple):
    """A lane that waits for the turn of the event at its head, and since when (monotonic seconds)."""

    lane: Lane
    head: int  # the event's id
    since: float

    def is_stale(self) -> bool:
        """True if that event does not wait here any more, or is not going to be started."""
        queue = self.lane.queue
        return self.lane.partition.is_stopping or not queue or queue[0].id != self.head


class EvictedRow(NamedTuple):
    """A row that was put away: its event waits at a place, and is not in memory."""

    partition: Partition
    incarnation: int
    key: Key
    row: ParkedRow
    since: float  # monotonic seconds

    def is_obsolete(self) -> bool:
        """True if the row is not this process's any more, or waits for its turn no longer, or again."""
        partition, row = self.partition, self.row
        if partition.is_stopping or partition.incarnation != self.incarnation:
            return True
        return row.state is not RowState.DEFERRED or not row.waits or row.stage is RowStage.LOADED

    def is_returning(self) -> bool:
        """True if the row, which was called back, is not in memory yet."""
        return not self.is_obsolete() and (self.row.blocks or self.row.id in self.partition.parked.early)


class EvictableLanes(NamedTuple):
    """The lanes that are in the way.

    The `evicted` ones have left a place, for so many seconds. Of the `oversized` ones only the head is to stay.
    """

    evicted: Sequence[tuple[Lane, LimitKey, float]] = ()
    oversized: Sequence[Lane] = ()


class LimitWait(NamedTuple):
    """The line at a place: the number of events, and since when the first waits (monotonic seconds)."""

    limit_key: LimitKey
    events: int
    since: float


class LimitedQueue:
    """Lock held, but for `covers`. `poll` says what time it is, before it is asked for lanes."""

    def __init__(self, queue: RunQueue, limit_key_of: LimitKeyOf) -> None:
        self.unlimited = queue
        self.turns = PermitQueues[WaitingLane]()
        self.limit_key_of = limit_key_of
        self._now = 0.0
        self._unlimited_first = True
        self._permits: dict[Lane, tuple[LimitKey, int]] = {}  # its turn, and the event's id
        self._promised: dict[LimitKey, float] = {}  # up to when the turns of those are that were put away
        self._evicted: defaultdict[LimitKey, deque[EvictedRow]] = defaultdict(
            deque
        )  # those, in the order in which they come back
        self._returning: dict[LimitKey, list[EvictedRow]] = {}  # those that were called back lately
        self._short_queues: set[LimitKey] = set()  # places whose line may be short, though some are away
        self._evicted_at = 0.0
        self._timer_at = inf  # when the poller looks for turns (monotonic seconds)

    def __len__(self) -> int:
        return len(self.unlimited) + len(self.turns)

    def add(self, lanes: Sequence[Lane], *, due: bool) -> None:
        free = []
        for lane in lanes:
            limit_key = self._limit_key(lane)
            if limit_key is None:
                free.append(lane)
            else:
                # What is parked is older than what was just read, and has waited.
                parked = lane.queue[0].parked is not None
                if parked:
                    lane.partition.parked.count_as_waiting(lane.key)
                self.turns.add(limit_key, WaitingLane(lane, lane.queue[0].id, self._now), self._now, first=parked)
        if free:
            self.unlimited.add(free, due=due)

    def poll(self, now: float) -> None:
        """Find out what may have a turn `now` (monotonic seconds)."""
        self._now = max(now, self._now)
        while (limit_key := self.turns.next(self._now)) is not None and self.turns.first(limit_key).is_stale():
            self._requeue(self.turns.take(limit_key, lambda _: True, 1))

    def take(self) -> list[Lane]:
        """The next lanes: by turns some of those without a limit, and one that has its turn."""
        self._unlimited_first = not self._unlimited_first
        limit_key = self.turns.next(self._now)
        if limit_key is None or (self._unlimited_first and len(self.unlimited)):
            return self.unlimited.take() if len(self.unlimited) else []
        waiting = self.turns.start(limit_key, self._now)
        self._permits[waiting.lane] = limit_key, waiting.head
        if limit_key in self._evicted:
            self._short_queues.add(limit_key)
        self.poll(self._now)
        return [waiting.lane]

    def take_joining(self, joining: Callable[[Lane], int], most: int, limit_key: LimitKey | None = None) -> list[Lane]:
        """Take lanes of this place, or of none, as `ReadyQueue` does."""
        if limit_key is None:
            return self.unlimited.take_joining(joining, most)
        left = most

        def joins(waiting: WaitingLane) -> bool:
            nonlocal left
            many = joining(waiting.lane) if left > 0 and not waiting.is_stale() else 0
            left -= many
            return many > 0

        return [each.lane for each in self.turns.take(limit_key, joins, SEARCHED * most)]

    def covers(self, lane: Lane) -> tuple[LimitKey, int] | None:
        """The turn that the lane has, and the id of the event that has it; None if it has none. Any thread."""
        return self._permits.get(lane)

    def ended(self, lanes: Sequence[Lane]) -> None:
        """Note that these lanes do not run any more: others may have their turn."""
        for lane in lanes if self._permits else ():
            if (permit := self._permits.pop(lane, None)) is not None:
                self.turns.end(permit[0], self._now)

    # The timer, which the poller has.

    def next_at(self, *, full: bool) -> float | None:
        """The time of the next turn, soon after the last look at most; from here on the poller knows it.

        Where a turn has come, and the process is not `full`, runners are called; each may make the next one known."""
        at = self.turns.next_at()
        if at is None and not (len(self.turns) and not full):
            self._timer_at = inf
            return None
        self._timer_at = max(at or 0.0, self._now + POLL_INTERVAL)
        return self._timer_at

    def advance_timer(self) -> bool:
        """True if there is a turn sooner than the poller knows of, which it is told then."""
        at = self.turns.next_at()
        if at is None or at > self._timer_at - POLL_INTERVAL:
            return False
        self._timer_at = at
        return True

    def note_poller_awake(self) -> None:
        """The poller is awake, and asks for the next turn before it rests."""
        self._timer_at = self._now

    # What is in force.

    def limit(self, limits: Mapping[str, Limit], now: float) -> None:
        """Have these limits in force."""
        self.poll(now)
        self._requeue(self.turns.limit(limits, self._now))
        self._short_queues.update(self._evicted)
        self.poll(now)

    def share(self, share: float, now: float | None) -> None:
        """The process owns so much of the partitions from now on; None: since the last look, and it is less."""
        self.poll(self._now if now is None else now)
        self.turns.change_share(share, self._now)
        self.drop_stale()

    def drop_stale(self) -> None:
        """Let go what does not wait any more: of lost partitions, or parked behind others."""
        self._requeue([waiting for _, waiting in self.turns.remove(lambda each, _, __: each.is_stale(), self._now)])
        self.poll(self._now)

    def evictable(self, full: Collection[Partition], before: float, now: float) -> EvictableLanes:
        """Take out the lanes that are in the way, each with the seconds until its turn may come: of partitions whose
        windows are `full`, all that have no turn soon or are long, and those that have been there since `before`; and
        of events that are parked already, those that take memory for long. In a full window a long lane whose head is
        parked loses what is behind that.

        One that is charged stays: put away it would run uncharged."""
        oversized: list[Lane] = []

        def must_leave(waiting: WaitingLane, ahead: int, bounds: ProcessBounds) -> bool:
            lane, row, few = waiting.lane, waiting.lane.queue[0].parked, max(1.0, _count_starts(bounds, KEEP_SECONDS))
            if lane.partition not in full:
                return row is not None and not row.charged and ahead >= max(MIN_LANES, few)
            is_long = len(lane.queue) > few
            if row is None:
                return ahead + 1 > _count_starts(bounds, KEEP_SECONDS_FULL) or is_long or waiting.since < before
            must_leave = not row.charged and ahead >= few
            if not must_leave and len(lane.queue) > 1 and (is_long or lane.queue[-1].parked is None):
                oversized.append(lane)
            return must_leave

        if now < self._evicted_at + (INTERVAL_FULL if full else INTERVAL_ELSE):
            return EvictableLanes()
        self._evicted_at = now
        self.poll(now)
        self.drop_stale()
        self._promised = {limit_key: until for limit_key, until in self._promised.items() if until > now}
        removed = self.turns.remove(must_leave, now)
        return EvictableLanes(
            [(each.lane, limit_key, self._promise_delay(limit_key, now)) for limit_key, each in removed], oversized
        )

    def evict(self, limit_key: LimitKey, lane: Lane, row: ParkedRow) -> None:
        """Have a row come back when its turn is near, whose lane `evictable` has taken out."""
        self._evicted[limit_key].append(
            EvictedRow(lane.partition, lane.partition.incarnation, lane.key, row, self._now)
        )
        self._short_queues.add(limit_key)

    def take_returning(self) -> Iterator[EvictedRow]:
        """Take as many of those that were put away as may start within the next seconds; all where no limit is left."""
        for limit_key in [*self._short_queues]:
            evicted, room = self._evicted[limit_key], inf
            returning = [each for each in self._returning.pop(limit_key, ()) if each.is_returning()]
            if self.turns.has_limit(limit_key[0]):
                # What was just read is younger than what was put away, and makes no line.
                _, in_line = self.turns.count(limit_key)
                room = max(1.0, _count_starts(self.turns.bounds(limit_key[0]), KEEP_SECONDS)) - in_line
            while evicted and (evicted[0].is_obsolete() or (room > len(returning) and not evicted[0].row.unsaved)):
                each = evicted.popleft()
                if not each.is_obsolete():
                    returning.append(each)
                    yield each
            if not evicted:
                del self._evicted[limit_key]
            elif returning:
                self._returning[limit_key] = returning
            if not evicted or room <= 0:
                self._short_queues.discard(limit_key)

    def forget_lost(self) -> None:
        """Forget what was put away and is not this process's any more."""
        self._returning.clear()
        for limit_key, evicted in [*self._evicted.items()]:
            kept = deque(each for each in evicted if not each.partition.is_stopping)
            if kept:
                self._evicted[limit_key] = kept
            else:
                del self._evicted[limit_key]

    @property
    def has_evicted(self) -> bool:
        """True if rows that were put away may have to come back."""
        return bool(self._short_queues)

    def count_keyless(self) -> int:
        """Count the parked events without an aggregate that are in line."""
        lanes = (each.lane for _, bucket in self.turns.waiting() for each in bucket.waiting)
        return sum(lane.key[0] is None and bool(lane.queue) and lane.queue[0].parked is not None for lane in lanes)

    def _promise_delay(self, limit_key: LimitKey, now: float) -> float:
        """Return the seconds until the turn of a lane that is put away: after those in line, and those put away."""
        pace, _, most = self.turns.bounds(limit_key[0])
        speed = pace or most  # a call may take long: that each takes a second is a guess
        in_line, _ = self.turns.count(limit_key)
        at = max(self._promised.get(limit_key, 0.0), now + max(KEEP_SECONDS, in_line / speed))
        self._promised[limit_key] = at + 1 / speed
        return at - now

    def waits(self) -> list[LimitWait]:
        """Return each place with the events that wait there for their turn, in memory or put away.

        Of those that were put away with one aggregate the first counts.
        """
        waits = {
            limit_key: LimitWait(limit_key, sum(len(each.lane.queue) for each in waiting), waiting[0].since)
            for limit_key, bucket in self.turns.waiting()
            if (waiting := bucket.waiting)
        }
        for limit_key, evicted in self._evicted.items():
            _, events, since = waits.get(limit_key, LimitWait(limit_key, 0, inf))
            waits[limit_key] = LimitWait(limit_key, events + len(evicted), min(since, evicted[0].since))
        return [*waits.values()]

    def _limit_key(self, lane: Lane) -> LimitKey | None:
        if isinstance(lane, SharedLane) or not lane.queue or lane.partition.is_stopping:
            return None
        limit_key = self.limit_key_of(lane.queue[0])
        return (
            limit_key if limit_key is not None and self.turns.has_limit(limit_key[0]) else None
        )  # it is about to have one, or had

    def _requeue(self, several: Sequence[WaitingLane]) -> None:
        self.add([each.lane for each in several], due=False)


def _count_starts(bounds: ProcessBounds, seconds: float) -> float:
    """Return how many lanes of a place may start within so many seconds; a guess where that depends on others' ends."""
    return MIN_LANES if bounds.pace is None else seconds * bounds.pace
