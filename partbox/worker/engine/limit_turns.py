"""The façade of limits: what is in force, who has a turn, and when the next one is."""

from collections.abc import Mapping, Sequence
from itertools import islice

from partbox.events import DeliveredEvent
from partbox.protocol.limits import Limit
from partbox.protocol.turns import Place
from partbox.worker.engine.destination import Destination
from partbox.worker.engine.limited_queue import LimitedQueue, LimitWait, PlaceOf
from partbox.worker.engine.lock import verb
from partbox.worker.engine.partition import Lane
from partbox.worker.engine.runs import Runs
from partbox.worker.engine.state import EngineState


class LimitTurns:
    """The verbs of whoever says what is in force, of runners, and of the poller, which has the timer.

    `place_of` returns the noted place of an event: the lock is held, so the application is not asked. An event without
    one does not wait; its runner finds that its handler has a limit, asks, and ends the lane, which waits from then on.
    """

    def __init__(self, state: EngineState, runs: Runs) -> None:
        self._state = state
        self._lock = state.lock
        self._runs = runs
        self.place_of: PlaceOf = lambda event: getattr(event, "place", None)
        self._queue: LimitedQueue | None = None  # kept when no limit is left: some may be put away

    @verb  # lanes wait in one queue or in the other
    def put_in_force(self, limits: Mapping[str, Limit], now: float) -> None:
        """Have these limits hold from now on, by handler; events of others do not wait."""
        limited = self._queue
        if not limits and self._runs.limited is None:
            return
        if limited is None:
            limited = LimitedQueue(self._runs.unlimited, self.place_of)
            limited.share(self._share(), now)
            self._state.owned = self._owned
        limited.limit(limits, now)
        self._runs.limit(limited if limits else None)
        self._queue = limited
        self._recall()
        self._wake(limited)

    def covers(self, lane: Lane, event_id: int | None = None) -> bool:
        """True if the lane has its turn, of this event; read without the lock, by the lane's runner."""
        turn = self._turn(lane)
        return turn is not None and event_id in (None, turn[1])

    @verb  # the poller may add to the queue
    def unplaced(self, lane: Lane, most: int) -> list[DeliveredEvent]:
        """Return those of the first `most` events of a lane that have no place yet."""
        if lane.claim is not None:
            return []
        return [event for event in islice(lane.queue, most) if getattr(event, "place", None) is None]

    def destination(self, lane: Lane, to: Destination) -> Destination:
        """The destination of a list that begins with this lane: if that has a turn, for what waits at its place."""
        turn = self._turn(lane)
        if turn is None:
            return to
        place, place_of = turn[0], self.place_of
        return to._replace(place=place, fits=lambda event: place_of(event) == place)

    def next_at(self, now: float) -> float | None:
        """The time at which the poller is to `give` the next turns (monotonic seconds); None: no time brings one.

        A runner that finds a turn sooner than that wakes the poller."""
        if self._runs.limited is None:
            return None
        with self._lock:  # no runner finds one between the look and the answer
            if (limited := self._runs.limited) is None:
                return None
            limited.look(now)
            return limited.next_at(full=self._runs.is_full)

    def give(self, now: float) -> None:
        """Call runners for those whose turn it is, put away what is in the way, and call back what is to start soon."""
        if self._runs.limited is not None or (self._queue is not None and self._queue.has_away):
            with self._lock:  # who is called finds a lane
                self._runs.unstick((), now)
                self._recall()
                if (limited := self._runs.limited) is not None:
                    limited.look(now)
                    limited.is_awake()
                    self._runs.call(len(limited.turns))

    def is_due(self, now: float) -> bool:
        """True if there may be turns to `give`."""
        if self._runs.limited is None:
            return False
        with self._lock:  # as in `give`
            at = None if self._runs.limited is None else self._runs.limited.turns.next_at()
            return at is not None and at <= now

    @verb  # all is of one moment
    def waits(self) -> Sequence[LimitWait]:
        """Each place with the events that wait there for their turn."""
        return () if self._runs.limited is None else self._runs.limited.waits()

    def _turn(self, lane: Lane) -> tuple[Place, int] | None:
        limited = self._runs.limited
        return None if limited is None else limited.covers(lane)

    def _owned(self, now: float | None) -> None:
        """Partitions have come or begun to go. Lock held."""
        limited, share = self._queue, self._share()
        if limited is not None:
            limited.forget_lost()
        if limited is not None and limited.turns.share != share:
            limited.share(share, now)
            self._wake(limited)

    def _recall(self) -> None:
        """Have the poller fetch the rows that were put away and have their turns soon. Lock held."""
        called = False
        for partition, _, key, row, _ in () if self._queue is None else self._queue.recall():
            called = True
            if row.blocks:
                row.due = 0.0
                self._state.wake(partition, key)
            else:
                partition.parked.early[row.id] = None
                self._state.early.add(partition.number)
        if called:
            self._state.wakes.look()

    def _wake(self, limited: LimitedQueue) -> None:
        """Turns come at other times than before: for runners, or for the poller, which has the timer. Lock held."""
        self._runs.call(len(limited))
        if limited.is_sooner():
            self._state.wakes.look()

    def _share(self) -> float:
        """The share of all partitions in which handlers may start: one that drains counts no more, for another process
        may have it before this one hears of that."""
        return sum(not each.stopping for each in self._state.partitions.values()) / 256
