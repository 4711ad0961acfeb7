"""The run queue while some handlers have a limit. A lane whose next event belongs to a limited handler waits here for a
permit to start (`protocol.turns`). All other lanes stay in the unlimited queue."""

from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import islice
from math import inf
from typing import NamedTuple

from partbox.events import DeliveredEvent
from partbox.protocol.limit_addresses import EventKeys, LimitAddress, LimitKey, describe_wait
from partbox.protocol.limits import Limit
from partbox.protocol.parking import ParkedRow
from partbox.protocol.turns import PermitQueues, ProcessBounds
from partbox.worker.engine.evicted_rows import CLOSED_SECONDS, EvictedRow, StoredWaits
from partbox.worker.engine.partition import Lane, Partition, SharedLane
from partbox.worker.engine.ready_queue import SEARCHED, RunQueue

KeysOf = Callable[[DeliveredEvent], EventKeys | None]
"""Returns the values by which limits divide an event, or None if its handler has no limit."""

# Seconds: a lane that has its turn by then stays in memory, and an evicted row is loaded.
KEEP_SECONDS = 2.0
# The same limit, in seconds, for new events in a full window.
KEEP_SECONDS_FULL = 0.2
# Lanes of one limit key that always stay while the memory is not needed.
MIN_LANES = 16
# Rows of evicted lanes whose events are counted in a report. Of the others only the first event of the lane counts.
COUNTED_ROWS = 2_000
# Least seconds between two looks at permits.
POLL_INTERVAL = 0.005
# Least seconds between two searches for lanes to evict: while windows are full, and otherwise.
INTERVAL_FULL, INTERVAL_ELSE = 0.1, 1.0
# Obsolete surplus rows of a limit key are searched for each time that this number of rows was added.
SURPLUS_PRUNED = 256


class WaitingLane(NamedTuple):
    """A queue of events of one key that must wait because its handler has a rate or concurrency limit."""

    # It waits for a permit of `limit_key` since the monotonic time `since`. `head_id` is the id of the first event.

    lane: Lane
    head_id: int
    since: float
    limit_key: LimitKey

    def is_stale(self) -> bool:
        """Return True if the first event of this queue no longer waits for permission to start."""
        # The entry is outdated then.
        # Either the event has left the head of the lane, or its partition starts no more events.
        queue = self.lane.queue
        return self.lane.partition.is_stopping or not queue or queue[0].id != self.head_id


class EvictedLane(NamedTuple):
    """An event queue that leaves memory while it waits for a handler's limit."""

    # Its first event comes back after `delay` seconds, or earlier if its turn comes. `reason` says for people why it
    # waits. `is_closed` means that this cannot be foreseen.

    lane: Lane
    limit_key: LimitKey
    delay: float
    reason: str
    is_closed: bool


class EvictableLanes(NamedTuple):
    """The event queues that must make room in memory while they wait for a handler's limit."""

    # They wait for a permit. `evicted` lanes are parked as a whole. `oversized` lanes keep only their first event.

    evicted: Sequence[EvictedLane] = ()
    oversized: Sequence[Lane] = ()


class Permit(NamedTuple):
    """The permission to start one event under a handler's limit."""

    # A list that begins with the event may have other events of the same limit key, limit value and circuit value.

    limit_key: LimitKey
    event_id: int
    keys: EventKeys | None


class NextProbe(NamedTuple):
    """The time of the next probe of an open circuit, in monotonic seconds, and since when it is open, for people."""

    at: float
    open_since: str


class LimitWait(NamedTuple):
    """The number of events that wait under one rate or concurrency limit, and since when the first has waited."""

    # `since` is in monotonic seconds.

    limit_key: LimitKey
    events: int
    since: float


class LimitedQueue:
    """A run queue that starts events only as fast as the limits of their handlers permit.

    Every method but `find_permit` needs the engine's lock. `advance_clock` sets the clock (monotonic seconds), and
    comes before `take`."""

    def __init__(self, queue: RunQueue, keys_of: KeysOf, stored_waits: StoredWaits) -> None:
        self.unlimited_queue = queue
        self._stored_waits = stored_waits
        self.permit_queues = PermitQueues[WaitingLane]()
        self._keys_of = keys_of
        # When each open circuit opened, for people.
        self._open_since: dict[LimitAddress, str] = {}
        self._now = 0.0
        self._unlimited_first = True
        self._permits: dict[Lane, Permit] = {}
        # The time up to which the turns of evicted lanes are assigned.
        self._promised_until: dict[LimitKey, float] = {}
        # In the order in which the rows are loaded again.
        self._evicted_rows: defaultdict[LimitKey, deque[EvictedRow]] = defaultdict(deque)
        # Rows that were scheduled to be loaded, and may not be loaded yet.
        self._returning_rows: dict[LimitKey, list[EvictedRow]] = {}
        # Limit keys with evicted rows, whose lines may be short.
        self._short_queues: set[LimitKey] = set()
        # The lane of each limit key that waits with a charged event, and the charged lanes that must wait elsewhere.
        self._charged_lanes: dict[LimitKey, Lane] = {}
        self._surplus_lanes: list[EvictedLane] = []
        # The rows of surplus events. A row comes back when it is due, and all rows come back when limits change.
        self._surplus_rows: defaultdict[LimitKey, dict[int, EvictedRow]] = defaultdict(dict)
        self._evicted_at = 0.0
        # The time at which the poller looks at permits next.
        self._timer_at = inf

    def __len__(self) -> int:
        return len(self.unlimited_queue) + len(self.permit_queues)

    def add(self, lanes: Sequence[Lane], *, due: bool) -> None:
        """Add event queues that are ready to run. Events with a limited handler wait until the limit permits their
        start."""
        # Each lane has events of one key.
        # If the first event of a lane has a handler with a limit, the lane waits for a permit. Parked events wait in
        # front of new events.
        free = []
        for lane in lanes:
            limit_key = self._find_lane_key(lane)
            if limit_key is None:
                free.append(lane)
            else:
                parked = lane.queue[0].parked is not None
                if parked:
                    lane.partition.parked.count_as_waiting(lane.key)
                    if lane.queue[0].parked.is_charged and not self._may_wait_charged(limit_key, lane):
                        self._surplus_lanes.append(self._describe_evicted(limit_key, lane, self._now))
                        continue
                # A parked event is older than the events that were just read, and has waited before.
                waiting = WaitingLane(lane, lane.queue[0].id, self._now, limit_key)
                self.permit_queues.add(limit_key, waiting, self._now, first=parked)
        if free:
            self.unlimited_queue.add(free, due=due)

    def take_surplus(self) -> list[EvictedLane]:
        """Remove and return the event queues that must not wait here."""
        surplus, self._surplus_lanes = self._surplus_lanes, []
        return surplus

    def note_surplus(self, limit_key: LimitKey, lane: Lane, row: ParkedRow) -> None:
        """Record the row of an event that was taken by `take_surplus`, to load it again when limits change."""
        if len(self._surplus_rows[limit_key]) % SURPLUS_PRUNED == SURPLUS_PRUNED - 1:
            self._prune_surplus(limit_key)
        self._add_followers(limit_key, row)
        self._surplus_rows[limit_key][row.id] = EvictedRow(
            lane.partition, lane.partition.incarnation, lane.key, row, self._now
        )

    def _prune_surplus(self, limit_key: LimitKey) -> None:
        rows = self._surplus_rows[limit_key]
        for id in [id for id, each in rows.items() if each.is_obsolete()]:
            del rows[id]
        if not rows:
            del self._surplus_rows[limit_key]

    def list_charged_waiting(self) -> set[int]:
        """Return the record ids of events that wait for a permit with their attempt counted beforehand."""
        return {lane.queue[0].id for lane in self._charged_lanes.values() if _waits_charged(lane)}

    def _may_wait_charged(self, limit_key: LimitKey, lane: Lane) -> bool:
        # While a charged event waits for its permit, the process may die of another event and blame this one. So one
        # event of each limit key may wait charged. The others are charged again when their turn is near.
        if not lane.queue[0].parked.is_accused and not _count_kept(self.permit_queues.bounds_of(limit_key[0])):
            # Nothing of the key starts while it is paused, which may be for days.
            return False
        self._charged_lanes = {key: each for key, each in self._charged_lanes.items() if _waits_charged(each)}
        other = self._charged_lanes.get(limit_key)
        if lane.queue[0].parked.is_accused or other is None or other is lane:
            self._charged_lanes[limit_key] = lane
            return True
        return False

    def advance_clock(self, now: float) -> None:
        """Set the queue's clock to `now`, and requeue event queues whose first event no longer waits for the limit."""
        # The first event of such a lane has changed, its partition is stopping, or something it is under was closed,
        # when its turn for a permit comes.
        self._now = max(now, self._now)
        while (limit_key := self.permit_queues.find_next_key(self._now)) is not None and self._is_misplaced(
            self.permit_queues.peek_first(limit_key)
        ):
            self._requeue(self.permit_queues.take_joining(limit_key, lambda _: True, 1))

    def take(self) -> list[Lane]:
        """Remove and return the event queues to run next, in turns with and without a handler limit."""
        # A permit covers one event, and then the lane is queued again by its next event. So a permit is never held by
        # another limit key.
        # Lanes without a limit, and a lane that gets a permit of its limit, have alternate turns.
        self._unlimited_first = not self._unlimited_first
        limit_key = self.permit_queues.find_next_key(self._now)
        if limit_key is None or (self._unlimited_first and len(self.unlimited_queue)):
            return self.unlimited_queue.take() if len(self.unlimited_queue) else []
        waiting = self.permit_queues.start_first(limit_key, self._now)
        self._permits[waiting.lane] = Permit(limit_key, waiting.head_id, self._keys_of(waiting.lane.queue[0]))
        if limit_key in self._evicted_rows:
            self._short_queues.add(limit_key)
        self.advance_clock(self._now)
        return [waiting.lane]

    def take_joining(self, joining: Callable[[Lane], int], most: int, limit_key: LimitKey | None = None) -> list[Lane]:
        """Remove and return event queues under one limit, until `most` of their events can be handled in one list."""
        # If `limit_key` is None, the queues have no limit.
        # `joining` counts the events of a lane that join.
        if limit_key is None:
            return self.unlimited_queue.take_joining(joining, most)
        left = most

        def joins(waiting: WaitingLane) -> bool:
            nonlocal left
            many = joining(waiting.lane) if left > 0 and not waiting.is_stale() else 0
            left -= many
            return many > 0

        return [each.lane for each in self.permit_queues.take_joining(limit_key, joins, SEARCHED * most)]

    def find_permit(self, lane: Lane) -> Permit | None:
        """Return the start permission that this event queue holds, or None."""
        # Any thread may call this without the lock.
        return self._permits.get(lane)

    def return_permits(self, lanes: Sequence[Lane]) -> None:
        """Give back the start permissions of event queues that no longer run, so that other events can start."""
        for lane in lanes if self._permits else ():
            if (permit := self._permits.pop(lane, None)) is not None:
                self.permit_queues.end_call(permit.limit_key, self._now)

    def set_next_timer(self, *, full: bool) -> float | None:
        """Set the poller's timer to the next time at which events may start. Return that time, or None."""
        # If permits are ready and the process is not `full`, the time is soon, as woken runners may change it.
        at = self.permit_queues.find_next_start()
        if at is None and not (len(self.permit_queues) and not full):
            self._timer_at = inf
            return None
        self._timer_at = max(at or 0.0, self._now + POLL_INTERVAL)
        return self._timer_at

    def advance_timer(self) -> bool:
        """Move the poller's timer forward if an event may start earlier. Return True if the poller must be woken."""
        # The timer is changed only if the next permit comes earlier.
        at = self.permit_queues.find_next_start()
        if at is None or at > self._timer_at - POLL_INTERVAL:
            return False
        self._timer_at = at
        return True

    def note_poller_awake(self) -> None:
        """Record that the poller is awake, so that runners need not wake it for events that may start."""
        # The poller asks for the time of the next permit before it sleeps.
        self._timer_at = self._now

    def apply_limits(self, limits: Mapping[str | LimitAddress, Limit], now: float) -> None:
        """Replace the limits of all handlers and all pauses, and requeue events that wait for something else now."""
        self.advance_clock(now)
        self._requeue(self.permit_queues.replace_limits(limits, self._now))
        self._requeue(
            [each for _, each in self.permit_queues.remove_matching(lambda each, _, __: self._is_misplaced(each), now)]
        )
        for limit_key, rows in self._surplus_rows.items():
            self._evicted_rows[limit_key].extend(rows.values())
        self._surplus_rows.clear()
        self._short_queues.update(self._evicted_rows)
        self.advance_clock(now)

    def close_circuit(self, address: LimitAddress, probe: NextProbe, now: float) -> None:
        """Let events under an open circuit wait, but for a probe now and then."""
        # Events in other queues move to that of the circuit when their turn comes.
        self._open_since[address] = probe.open_since
        self.permit_queues.close_circuit(address, probe.at, now)

    def remove_circuit(self, address: LimitAddress) -> None:
        """Let events go on that waited for a circuit, which is not open any more."""
        self._open_since.pop(address, None)
        self._requeue(self.permit_queues.remove_circuit(address))
        if (address, None) in self._evicted_rows:
            self._short_queues.add((address, None))

    def change_share(self, share: float, now: float | None) -> None:
        """Set the fraction (0 to 1) of each rate or concurrency limit that this process may use."""
        # `now` is None if the share has shrunk.
        # The share is the fraction of all partitions that this process owns.
        self.advance_clock(self._now if now is None else now)
        self.permit_queues.change_share(share, self._now)
        self.drop_stale()

    def drop_stale(self) -> None:
        """Requeue event queues whose first event no longer waits for permission to start."""
        # The partition was lost, or the first event was parked meanwhile.
        # Such a queue no longer needs a permit to start.
        self._requeue(
            [
                waiting
                for _, waiting in self.permit_queues.remove_matching(lambda each, _, __: each.is_stale(), self._now)
            ]
        )
        self.advance_clock(self._now)

    def take_evictable(self, full: Collection[Partition], before: float, now: float) -> EvictableLanes:
        """Remove and return event queues that should leave memory, because they wait long for a handler's limit."""
        # A lane that would wait for long is evicted where memory is needed: its events are
        # parked, once, and loaded again shortly before their turn. So a backlog costs one row per event, however long
        # it waits, and only the lanes that start within seconds are in memory. In partitions with `full` windows, a
        # lane leaves if it has no turn soon, is long, or has waited since `before`. A long lane with a parked head
        # keeps only that head. Elsewhere, a lane leaves if its parked head would hold memory for long, or if a new
        # event has waited for `KEEP_SECONDS`: until then it holds back the saved position, and after a crash all later
        # events of its partition would be repeated. A charged event stays, because it would run uncharged afterwards.
        # Each lane comes with the seconds until its turn for a permit.
        oversized: list[Lane] = []

        def must_leave(waiting: WaitingLane, ahead: int, bounds: ProcessBounds) -> bool:
            lane, row, few = waiting.lane, waiting.lane.queue[0].parked, _count_kept(bounds)
            if bounds.is_closed:
                return (row is None or not row.is_charged) and (row is None or ahead >= few)
            if lane.partition not in full:
                if row is None:
                    return ahead >= few and waiting.since < now - KEEP_SECONDS
                return not row.is_charged and ahead >= max(MIN_LANES, few)
            is_long = len(lane.queue) > few
            if row is None:
                return ahead + 1 > _count_starts(bounds, KEEP_SECONDS_FULL) or is_long or waiting.since < before
            must_leave = not row.is_charged and ahead >= few
            if not must_leave and len(lane.queue) > 1 and (is_long or lane.queue[-1].parked is None):
                oversized.append(lane)
            return must_leave

        if now < self._evicted_at + (INTERVAL_FULL if full else INTERVAL_ELSE):
            return EvictableLanes()
        self._evicted_at = now
        # A line also gets short when its lanes join a list, or no longer wait for it. So each one is looked at again.
        self._short_queues.update(self._evicted_rows)
        self.advance_clock(now)
        self.drop_stale()
        self._promised_until = {limit_key: until for limit_key, until in self._promised_until.items() if until > now}
        removed = self.permit_queues.remove_matching(must_leave, now)
        return EvictableLanes(
            [self._describe_evicted(limit_key, each.lane, now) for limit_key, each in removed], oversized
        )

    def note_evicted(self, limit_key: LimitKey, lane: Lane, row: ParkedRow) -> None:
        """Record that a queue's first event has left memory, so that the event is loaded again in time for its turn."""
        # The lane was returned by `take_evictable`, or its event was deferred. The event was parked as `row`.
        self._evicted_rows[limit_key].append(
            EvictedRow(lane.partition, lane.partition.incarnation, lane.key, row, self._now)
        )
        self._short_queues.add(limit_key)
        self._add_followers(limit_key, row)

    def _add_followers(self, limit_key: LimitKey, row: ParkedRow) -> None:
        # If the row was stored by an earlier owner, all rows with the same stored words wait for the same limit.
        if self._stored_waits and (followers := [*self._stored_waits.take_followers(row)]):
            self._evicted_rows[limit_key].extend(followers)
            self._short_queues.add(limit_key)

    def take_returning(self) -> Iterator[EvictedRow]:
        """Yield the events that must be loaded into memory again, because their handler's limit soon permits their
        start."""
        # They may start within seconds.
        # Parked rows are yielded shortly before they get a permit. If the limit of a limit key is gone, all its rows
        # are yielded.
        for limit_key in [*self._short_queues]:
            evicted, room = self._evicted_rows[limit_key], inf
            returning = [each for each in self._returning_rows.pop(limit_key, ()) if each.is_returning()]
            if self.permit_queues.has_limit(limit_key[0]):
                # Only parked events count here: new events are younger than evicted events, and come after them.
                _, in_line = self.permit_queues.count_waiting(limit_key)
                room = _count_kept(self.permit_queues.bounds_of(limit_key[0])) - in_line
            while evicted and (evicted[0].is_obsolete() or (room > len(returning) and not evicted[0].row.is_unsaved)):
                each = evicted.popleft()
                if not each.is_obsolete():
                    # A row behind another one of its key comes after that one, and takes nobody's place until then.
                    if each.is_first():
                        returning.append(each)
                    yield each
            if not evicted:
                del self._evicted_rows[limit_key]
            elif returning:
                self._returning_rows[limit_key] = returning
            if not evicted or room <= 0:
                self._short_queues.discard(limit_key)

    def forget_lost(self) -> None:
        """Forget evicted events (moved out of memory) of partitions that this process lost or is about to release."""
        # They need not be loaded again.
        # The partitions of the parked rows are lost or draining.
        self._returning_rows.clear()
        for limit_key in [*self._surplus_rows]:
            self._prune_surplus(limit_key)
        for limit_key, evicted in [*self._evicted_rows.items()]:
            kept = deque(each for each in evicted if not each.partition.is_stopping)
            if kept:
                self._evicted_rows[limit_key] = kept
            else:
                del self._evicted_rows[limit_key]

    @property
    def has_evicted(self) -> bool:
        """True if some events that left memory while they wait for a limit may have to be loaded now."""
        return bool(self._short_queues)

    def count_keyless(self) -> int:
        """Return the number of events without an aggregate id that were loaded from the database and wait for a
        limit."""
        # Each is the only event of its lane, and is parked.
        # The lanes wait for a permit of a handler's limit.
        lanes = (each.lane for _, bucket in self.permit_queues.iter_waiting() for each in bucket.waiting)
        return sum(lane.key[0] is None and bool(lane.queue) and lane.queue[0].parked is not None for lane in lanes)

    def _describe_evicted(self, limit_key: LimitKey, lane: Lane, now: float) -> EvictedLane:
        name, bounds = limit_key[0], self.permit_queues.bounds_of(limit_key[0])
        delay = CLOSED_SECONDS if bounds.is_closed else self._promise_delay(limit_key, bounds, now)
        since = self._open_since.get(name) if isinstance(name, LimitAddress) else None
        reason = describe_wait(limit_key, is_closed=bounds.is_closed, open_since=since)
        return EvictedLane(lane, limit_key, delay, reason, bounds.is_closed)

    def _promise_delay(self, limit_key: LimitKey, bounds: ProcessBounds, now: float) -> float:
        # Without a rate, assume that each call takes a second.
        speed = bounds.pace or bounds.max_running
        in_line, _ = self.permit_queues.count_waiting(limit_key)
        # The turn comes after all lanes in line, and all lanes evicted before.
        at = max(self._promised_until.get(limit_key, 0.0), now + max(KEEP_SECONDS, in_line / speed))
        self._promised_until[limit_key] = at + 1 / speed
        return at - now

    def list_waits(self) -> list[LimitWait]:
        """Return how many events wait under each handler limit, and since when."""
        # The limits are given by limit key.
        # The events are in memory or were parked meanwhile. Beyond `COUNTED_ROWS` evicted lanes, only the first event
        # of a lane counts, because this holds the lock.
        left = COUNTED_ROWS
        waits = {
            limit_key: LimitWait(limit_key, sum(len(each.lane.queue) for each in waiting), waiting[0].since)
            for limit_key, bucket in self.permit_queues.iter_waiting()
            if (waiting := bucket.waiting)
        }
        for limit_key, evicted in self._evicted_rows.items():
            _, events, since = waits.get(limit_key, LimitWait(limit_key, 0, inf))
            more = sum(each.count_events() - 1 for each in islice(evicted, left))
            left = max(0, left - len(evicted))
            waits[limit_key] = LimitWait(limit_key, events + len(evicted) + more, min(since, evicted[0].since))
        return [*waits.values()]

    def find_limit_key(self, event: DeliveredEvent) -> LimitKey | None:
        """Return the handler and value, or the closed object, for which this event waits, or None if it may start."""
        keys = self._keys_of(event)
        # A limit that is not in force any more, or not yet, does not count.
        if keys is None or not self.permit_queues.has_limit(keys.handler):
            return None
        return keys.find_key(self.permit_queues.closed_addresses)

    def _find_lane_key(self, lane: Lane) -> LimitKey | None:
        if isinstance(lane, SharedLane) or not lane.queue or lane.partition.is_stopping:
            return None
        return self.find_limit_key(lane.queue[0])

    def _is_misplaced(self, waiting: WaitingLane) -> bool:
        # True if the lane does not wait for this permit any more. While nothing is closed, its key stays as it is.
        if waiting.is_stale():
            return True
        may_move = self.permit_queues.closed_addresses or isinstance(waiting.limit_key[0], LimitAddress)
        return bool(may_move) and self._find_lane_key(waiting.lane) != waiting.limit_key

    def _requeue(self, several: Sequence[WaitingLane]) -> None:
        self.add([each.lane for each in several], due=False)


def _waits_charged(lane: Lane) -> bool:
    if lane.is_running or not lane.queue or lane.partition.is_stopping:
        return False
    row = lane.queue[0].parked
    return row is not None and row.is_charged


def _count_kept(bounds: ProcessBounds) -> float:
    # The result is the number of event queues of a limit key that stay in memory: those that start soon, or one for the
    # probe of a circuit.
    return bounds.max_running if bounds.is_closed else max(1.0, _count_starts(bounds, KEEP_SECONDS))


def _count_starts(bounds: ProcessBounds, seconds: float) -> float:
    # The result is the number of event queues of a limit key that may start in `seconds`, under this process's share of
    # the limit.
    # The number is a guess if the limit has no rate.
    return MIN_LANES if bounds.pace is None else seconds * bounds.pace
