"""The façade of limits: what is in force, who has a turn, and when the next one is."""

from collections.abc import Mapping, Sequence
from itertools import islice

from partbox.events import DeliveredEvent
from partbox.protocol.limits import Limit
from partbox.protocol.turns import LimitKey
from partbox.worker.engine.destination import Destination
from partbox.worker.engine.limited_queue import LimitedQueue, LimitKeyOf, LimitWait
from partbox.worker.engine.lock import under_lock
from partbox.worker.engine.partition import Lane
from partbox.worker.engine.scheduler import LaneScheduler
from partbox.worker.engine.state import EngineState


class LimitPermits:
    """The verbs of whoever says what is in force, of runners, and of the poller, which has the timer.

    `limit_key_of` returns the noted place of an event: the lock is held, so the application is not asked. An event
    without one does not wait; its runner finds that its handler has a limit, asks, and ends the lane, which waits from
    then on.
    """

    def __init__(self, state: EngineState, scheduler: LaneScheduler) -> None:
        self._state = state
        self._lock = state.lock
        self._scheduler = scheduler
        self.limit_key_of: LimitKeyOf = lambda event: getattr(event, "limit_key", None)
        self._queue: LimitedQueue | None = None  # kept when no limit is left: some may be put away

    @under_lock  # lanes wait in one queue or in the other
    def set_limits(self, limits: Mapping[str, Limit], now: float) -> None:
        """Have these limits hold from now on, by handler; events of others do not wait."""
        limited = self._queue
        if not limits and self._scheduler.limited is None:
            return
        if limited is None:
            limited = LimitedQueue(self._scheduler.unlimited, self.limit_key_of)
            limited.share(self._share(), now)
            self._state.owned = self._note_ownership
        limited.limit(limits, now)
        self._scheduler.limit(limited if limits else None)
        self._queue = limited
        self._fetch_evicted()
        self._wake_drivers(limited)

    def covers(self, lane: Lane, event_id: int | None = None) -> bool:
        """True if the lane has its turn, of this event; read without the lock, by the lane's runner."""
        permit = self._permit(lane)
        return permit is not None and event_id in (None, permit[1])

    @under_lock  # the poller may add to the queue
    def list_without_key(self, lane: Lane, most: int) -> list[DeliveredEvent]:
        """Return those of the first `most` events of a lane that have no place yet."""
        if lane.claim is not None:
            return []
        return [event for event in islice(lane.queue, most) if getattr(event, "limit_key", None) is None]

    def destination(self, lane: Lane, to: Destination) -> Destination:
        """The destination of a list that begins with this lane: if that has a turn, for what waits at its place."""
        permit = self._permit(lane)
        if permit is None:
            return to
        limit_key, limit_key_of = permit[0], self.limit_key_of
        return to._replace(limit_key=limit_key, fits=lambda event: limit_key_of(event) == limit_key)

    def next_at(self, now: float) -> float | None:
        """The time at which the poller is to `give_permits` the next turns (monotonic seconds); None: no time brings
        one.

        A runner that finds a turn sooner than that wakes the poller."""
        if self._scheduler.limited is None:
            return None
        with self._lock:  # no runner finds one between the look and the answer
            if (limited := self._scheduler.limited) is None:
                return None
            limited.poll(now)
            return limited.next_at(full=self._scheduler.is_full)

    def give_permits(self, now: float) -> None:
        """Call runners for those whose turn it is, put away what is in the way, and call back what is to start soon."""
        if self._scheduler.limited is not None or (self._queue is not None and self._queue.has_evicted):
            with self._lock:  # who is called finds a lane
                self._scheduler.evict_slow((), now)
                self._fetch_evicted()
                if (limited := self._scheduler.limited) is not None:
                    limited.poll(now)
                    limited.note_poller_awake()
                    self._scheduler.call_runners(len(limited.turns))

    def is_due(self, now: float) -> bool:
        """True if there may be turns to `give_permits`."""
        if self._scheduler.limited is None:
            return False
        with self._lock:  # as in `give_permits`
            at = None if self._scheduler.limited is None else self._scheduler.limited.turns.next_at()
            return at is not None and at <= now

    @under_lock  # all is of one moment
    def waits(self) -> Sequence[LimitWait]:
        """Each place with the events that wait there for their turn."""
        return () if self._scheduler.limited is None else self._scheduler.limited.waits()

    def _permit(self, lane: Lane) -> tuple[LimitKey, int] | None:
        limited = self._scheduler.limited
        return None if limited is None else limited.covers(lane)

    def _note_ownership(self, now: float | None) -> None:
        """Partitions have come or begun to go. Lock held."""
        limited, share = self._queue, self._share()
        if limited is not None:
            limited.forget_lost()
        if limited is not None and limited.turns.share != share:
            limited.share(share, now)
            self._wake_drivers(limited)

    def _fetch_evicted(self) -> None:
        """Have the poller fetch the rows that were put away and have their turns soon. Lock held."""
        called = False
        for partition, _, key, row, _ in () if self._queue is None else self._queue.take_returning():
            called = True
            if row.blocks:
                row.due = 0.0
                self._state.wake(partition, key)
            else:
                partition.parked.early[row.id] = None
                self._state.early.add(partition.number)
        if called:
            self._state.wakes.poll()

    def _wake_drivers(self, limited: LimitedQueue) -> None:
        """Turns come at other times than before: for runners, or for the poller, which has the timer. Lock held."""
        self._scheduler.call_runners(len(limited))
        if limited.advance_timer():
            self._state.wakes.poll()

    def _share(self) -> float:
        """The share of all partitions in which handlers may start: one that drains counts no more, for another process
        may have it before this one hears of that."""
        return sum(not each.is_stopping for each in self._state.partitions.values()) / 256
