"""Operations on limited handlers: the limits in force, the permits, and the events that wait for one."""

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from math import inf

from partbox.events import DeliveredEvent
from partbox.protocol.limit_addresses import LimitAddress
from partbox.protocol.limits import Limit
from partbox.worker.engine.destination import Destination
from partbox.worker.engine.evicted_rows import GROUP_SECONDS
from partbox.worker.engine.limited_queue import KeysOf, LimitedQueue, LimitWait, NextProbe, Permit
from partbox.worker.engine.lock import under_lock
from partbox.worker.engine.partition import Lane
from partbox.worker.engine.scheduler import LaneScheduler
from partbox.worker.engine.state import EngineState


class LimitPermits:
    """The control of when events may start whose handler has a rate or concurrency limit.

    A permit is the permission to start an event. Runners and the poller use this class, and the poller keeps the
    timer."""

    def __init__(self, state: EngineState, scheduler: LaneScheduler) -> None:
        self._state = state
        self._lock = state.lock
        self._scheduler = scheduler
        # The engine's lock is held, so this reads the noted keys and does not call the application.
        self.keys_of: KeysOf = lambda event: getattr(event, "limit_keys", None)
        # Kept when no limit is left, because evicted rows may remain.
        self._queue: LimitedQueue | None = None

    # Every lane waits in one queue or in the other.
    @under_lock
    def set_limits(self, limits: Mapping[str | LimitAddress, Limit], now: float) -> None:
        """Replace the limits of all handlers and all pauses by `limits`, by the name of a handler or by address."""
        # Events of handlers without a limit do not wait.
        limited = self._queue
        if not limits and self._scheduler.limited_queue is None:
            return
        if limited is None:
            limited = LimitedQueue(self._scheduler.unlimited_queue, self.keys_of, self._state.stored_waits)
            limited.change_share(self._compute_share(), now)
            self._state.on_ownership_change = self._note_ownership
            self._state.charges.list_waiting_ids = limited.list_charged_waiting
        limited.apply_limits(limits, now)
        self._scheduler.set_limited_queue(limited if limits else None)
        self._queue = limited
        self._fetch_evicted(now)
        self._wake_drivers(limited)

    # The circuit is read under the lock, so the last change of several threads is the one that stays.
    @under_lock
    def update_circuit(
        self, address: LimitAddress, look: Callable[[LimitAddress], NextProbe | None], now: float
    ) -> None:
        """Let events of a handler's value wait for the next probe, or go on, as the circuit of the value says."""
        # `look` returns None if the circuit is not open. It calls no code of the application.
        limited = self._scheduler.limited_queue
        if limited is None:
            return
        if (probe := look(address)) is None:
            limited.remove_circuit(address)
            self._fetch_evicted(now)
        else:
            limited.close_circuit(address, probe, now)
        self._wake_drivers(limited)

    # The row and the circuit belong to one moment.
    @under_lock
    def note_deferred(self, lane: Lane, event: DeliveredEvent) -> None:
        """Let an event that was put off because of the circuit of its value come back for a probe, in its turn, or when
        the circuit closes."""
        keys, row = self.keys_of(event), event.parked
        if (
            self._queue is not None
            and keys is not None
            and row is not None
            and row.waits
            and not lane.partition.is_lost
        ):
            self._queue.note_evicted((keys.circuit, None), lane, row)
            self._fetch_evicted(None)

    def has_permit(self, lane: Lane, event_id: int | None = None) -> bool:
        """Return True if the next event of this queue may start under the limit of its handler."""
        # The lane then holds a permit.
        # If `event_id` is given, the permit must be for that event. The lane's runner calls this without the lock.
        permit = self._find_permit(lane)
        return permit is not None and event_id in (None, permit.event_id)

    def is_probe(self, lane: Lane) -> bool:
        """Return True if the queue holds the permit to find out whether the downstream of an open circuit is back."""
        # The lane's runner calls this without the lock.
        permit = self._find_permit(lane)
        return permit is not None and isinstance(permit.limit_key[0], LimitAddress)

    # The poller may add to the lane's queue.
    @under_lock
    def list_without_key(self, lane: Lane, most: int) -> list[DeliveredEvent]:
        """Return the events at the front of a queue whose rate-limit key has not been computed yet."""
        # Only the first `most` events are searched.
        # An event without a limit key does not wait: its runner finds that the handler has a limit, computes the key,
        # and ends the lane, which waits from then on.
        # A limit key is the handler and the value that its limit is divided by.
        if lane.claim is not None:
            return []
        return [event for event in islice(lane.queue, most) if getattr(event, "limit_keys", None) is None]

    def restrict_destination(self, lane: Lane, to: Destination) -> Destination:
        """Return the handler `to`, restricted to events that share the rate limit of this queue's first event."""
        # It gets a list of events that begins with the events of the lane.
        # If the lane holds a permit, the destination accepts only events with the permit's limit key.
        # The events also share the value of the circuit.
        permit, limited = self._find_permit(lane), self._scheduler.limited_queue
        if permit is None or limited is None:
            return to

        values = None if permit.keys is None else permit.keys.values

        def fits(event: DeliveredEvent) -> bool:
            keys = self.keys_of(event)
            return keys is not None and keys.values == values and limited.find_limit_key(event) == permit.limit_key

        return to._replace(limit_key=permit.limit_key, fits=fits)

    def find_next_check(self, now: float) -> float | None:
        """Return the time (monotonic seconds) at which to check for events that may start, or None."""
        # The poller must call `give_permits` then, unless it is woken before. None means that no time is set.
        if self._scheduler.limited_queue is None:
            return None
        # No runner may find a permit between the look and the answer.
        with self._lock:
            if (limited := self._scheduler.limited_queue) is None:
                return None
            limited.advance_clock(now)
            at = limited.set_next_timer(full=self._scheduler.is_full)
            return min(now + GROUP_SECONDS, at or inf) if self._state.stored_waits else at

    def give_permits(self, now: float) -> None:
        """Let waiting events of limited handlers start, as far as the limits allow now."""
        # Runners are woken for new permits, lanes that wait long are moved out of memory, and parked events whose turn
        # is near are loaded.
        if (
            self._scheduler.limited_queue is not None
            or (self._queue is not None and self._queue.has_evicted)
            or self._state.stored_waits
        ):
            # A runner that is woken must find a lane.
            with self._lock:
                self._scheduler.evict_slow((), now)
                self._fetch_evicted(now)
                if (limited := self._scheduler.limited_queue) is not None:
                    limited.advance_clock(now)
                    limited.note_poller_awake()
                    self._scheduler.call_runners(len(limited.permit_queues))

    def is_due(self, now: float) -> bool:
        """Return True if it is time to check whether waiting events of limited handlers may start."""
        # `give_permits` may find new permits then.
        if self._scheduler.limited_queue is None:
            return False
        # A runner that is woken must find a lane.
        with self._lock:
            at = (
                None
                if self._scheduler.limited_queue is None
                else self._scheduler.limited_queue.permit_queues.find_next_start()
            )
            return at is not None and at <= now

    # All counts belong to one moment.
    @under_lock
    def list_waits(self) -> Sequence[LimitWait]:
        """Return how many events wait under each handler limit, and since when."""
        # The limits are given by limit key.
        # The time is that of the first of them.
        return () if self._scheduler.limited_queue is None else self._scheduler.limited_queue.list_waits()

    def _find_permit(self, lane: Lane) -> Permit | None:
        limited = self._scheduler.limited_queue
        return None if limited is None else limited.find_permit(lane)

    def _note_ownership(self, now: float | None) -> None:
        limited, share = self._queue, self._compute_share()
        if limited is not None:
            limited.forget_lost()
        if limited is not None and limited.permit_queues.share != share:
            limited.change_share(share, now)
            self._wake_drivers(limited)

    def _fetch_evicted(self, now: float | None) -> None:
        # The poller is woken to load the events that may start soon. The caller holds the lock.
        # The events were moved out of memory while they waited for a permit. `now` is None if no rows of earlier owners
        # need to be looked at.
        called, stored = False, self._state.stored_waits
        rows = [] if self._queue is None else [*self._queue.take_returning()]
        if stored and now is not None:
            rows += stored.take_all() if self._scheduler.limited_queue is None else stored.take(now)
        for partition, _, key, row, _ in rows:
            called = True
            if row.blocks:
                row.due = 0.0
                self._state.schedule_wakeup(partition, key)
            else:
                partition.parked.early_ids[row.id] = None
                self._state.early_partitions.add(partition.number)
        if called:
            self._state.wakes.wake_poller()

    def _wake_drivers(self, limited: LimitedQueue) -> None:
        # Runners are woken for events that may now start under the limits. The caller holds the lock.
        # The poller is woken too if its timer is set too late.
        self._scheduler.call_runners(len(limited))
        if limited.advance_timer():
            self._state.wakes.wake_poller()

    def _compute_share(self) -> float:
        # A draining partition does not count, because its next owner may start handlers before this process knows.
        return sum(not each.is_stopping for each in self._state.partitions.values()) / 256
