"""Outcomes of events: records whether an event is done (a verdict of None), parked, or put back. For a plainly done
event a runner appends the row to `Lane.done` without the lock, and `record` takes the rows over when the turn ends."""

from collections.abc import Collection, Iterable, Sequence
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import NamedTuple

from partbox.events import DeliveredEvent
from partbox.events.delivered import build_first_deliveries
from partbox.events.record import IDENTITY, ROUTE, Row
from partbox.protocol.parking import ParkedRow, RowState
from partbox.protocol.verdict import Verdict
from partbox.worker.engine.destination import Destination
from partbox.worker.engine.key import key_of
from partbox.worker.engine.limited_queue import EvictedLane
from partbox.worker.engine.lock import under_lock
from partbox.worker.engine.partition import Lane, Partition, SharedLane
from partbox.worker.engine.phase import Phase
from partbox.worker.engine.state import EngineState

_identity, _partition = itemgetter(IDENTITY), attrgetter("partition")
_record, _parked = attrgetter("record"), attrgetter("parked")


class ListPart(NamedTuple):
    """The events of one queue that were handled together with events of other queues in one call."""

    # The queue is a lane, with the events of one key. `incarnation` is the count of restarts of the lane's partition at
    # that time.

    lane: Lane
    events: list[DeliveredEvent]
    incarnation: int
    # The rows of the events if they come from a shared lane, so that none of them was parked before.
    rows: list[Row] | None = None


# While a handler runs, other threads may change its partition. If the partition is lost, no outcome is recorded. If the
# partition is read anew after a lost connection, the event comes again, and a done event is remembered so that it does
# not start again. If the event runs for long, it may be parked so that the window can
# move on (`evict_slow`). The lane keeps it in `parked_running`, and its row is deleted if it is done. So each method
# looks at the partition and records the outcome under one lock.
class Outcomes:
    """The part of the engine that records the result of each event that ran: done, failed or waiting, or not started.

    A failed or waiting event is set aside (parked), and an event that did not start is put back. Runner threads, the
    event loop, the transactor and the poller use this class."""

    def __init__(self, state: EngineState) -> None:
        self._state = state
        self._lock = state.lock
        # Events of a running list that are behind the `current_event` event of their lane and have not ended.
        self._followers: dict[Lane, list[DeliveredEvent]] = {}

    # The partition may be lost or read anew between the check of its incarnation and the note.
    @under_lock
    def settle_event(
        self, lane: Lane, event: DeliveredEvent, verdict: Verdict | None, incarnation: int | None = None
    ) -> bool:
        """Record the result of an event, such as a failure. Return True if observers must be told of the result."""
        # The event is not plainly done.
        # `incarnation` is the one in which the event was read, if not the one in which its lane began to run.
        partition, incarnation = lane.partition, lane.incarnation if incarnation is None else incarnation
        lane.parked_running = None if lane.parked_running is event else lane.parked_running
        self._note_ended(lane, event)
        self.record_lanes([lane])
        if partition.is_lost:
            return False
        if partition.incarnation != incarnation:
            # Only a done event is remembered. A failed event runs again when it is read again.
            done = verdict is None and not getattr(event, "ignored", False)
            if done:
                partition.resumption.remembered.add(event.identity)
            return done
        self.note_verdict(lane, event, verdict)
        if event.parked is not None:
            self._state.wake_next_trials()
        self._state.mark_dirty(partition)
        return True

    # The remembered outcome is dropped in the same section in which the event is noted as done.
    @under_lock
    def skip_if_done(self, lane: Lane, event: DeliveredEvent) -> bool:
        """Return True if the event must not start, because it is already done or will be read again."""
        # The event was done before a lost connection, and is now recorded as done, or its partition was read anew, so
        # that the event comes again.
        partition = lane.partition
        pair, remembered = event.identity, partition.resumption.remembered
        if partition.incarnation != lane.incarnation:
            # The partition was read anew since the event was taken, so the event comes again, or has come.
            return True
        if pair not in remembered:
            return False
        if not partition.is_lost:
            remembered.discard(pair)
            partition.settle_done(event)
            self._state.mark_dirty(partition)
        return True

    # Parked rows of the key must not change between the search for rows that run first and the return of the event.
    @under_lock
    def put_back(self, lane: Lane, event: DeliveredEvent) -> None:
        """Return an event that was taken but not started to the front of its queue."""
        # The runner took the event from its lane, the queue of its key.
        partition = lane.partition
        # If the partition was read anew meanwhile, the event comes again.
        if partition.incarnation != lane.incarnation or partition.is_lost:
            return
        chains = partition.parked.chains
        if chains or not partition.may_share_lane:
            # The shared lane was split meanwhile, or must be split now.
            lane = lane.find_lane_behind(event)
        if isinstance(lane, SharedLane):
            lane.types.add({event.event_type}, replace=False)
        lane.queue.appendleft(event if lane.claim is None else event.record)
        # While the runner had the event, a row of its key may have been found that must run first.
        if chains and lane.would_overtake(event):
            lane.park_waiting()
            self._state.mark_dirty(partition)

    # The list of events done belongs to one incarnation of the partition.
    @under_lock
    def record_done(self, lane: Lane) -> None:
        """Record the events that a queue has finished so far, while the queue goes on running."""
        # The queue is a lane, with the events of one key.
        # The partition of the lane may have been read anew meanwhile.
        self.record_lanes([lane])

    # Either this verdict is noted, or the handler's own, never both.
    @under_lock
    def give_up(self, lane: Lane, event: DeliveredEvent, verdict: Verdict | None) -> bool:
        """Record a result for an event whose handler still runs after its timeout. Return False if the handler has
        ended."""
        # The result is False, and nothing is recorded, if the handler has ended or the partition is lost.
        partition = lane.partition
        # Either this verdict counts or the handler's own, never both.
        if lane.current_event is not event or lane.has_ended(event) or partition.is_lost:
            return False
        if verdict is None:
            self.note_verdict(lane, event, None)
            self._state.mark_dirty(partition)
        else:
            self.evict_slow(lane, verdict)
        partition.in_transaction = False
        return True

    @under_lock
    def are_all_saved(self, partitions: Collection[Partition]) -> bool:
        """Return True if the results of all events of these partitions are saved in the database."""
        # Nothing waits for a save, and no save is under way.
        # A save moves a partition from dirty to in flight. Without the lock, two looks could miss the partition in both
        # places.
        dirty = self._state.dirty_partitions
        return not any(each.parked.pending_parks or each.last_save.is_in_flight or each in dirty for each in partitions)

    # The lane's current event and its followers change together.
    @under_lock
    def start_list(self, lane: Lane, events: Sequence[DeliveredEvent]) -> None:
        """Record that these first events of a queue are now handled together in one call of a handler."""
        self._start_events(lane, events)

    @under_lock
    def join_lanes(self, lanes: Iterable[Lane], to: Destination, per_lane: int, most: int) -> list[ListPart]:
        """Take events for one handler from the front of several queues, to handle the events in one call."""
        # The lanes are running, and the events start as one list.
        # The events are for the handler `to`. Each lane gives at most `per_lane` events, all lanes at most `most`. A
        # lane that is stopping, was read anew, or has remembered events gives none.
        taken: list[ListPart] = []
        for lane in lanes:
            partition = lane.partition
            read_anew = partition.incarnation != lane.incarnation
            if not (partition.is_stopping or partition.resumption.remembered or read_anew):
                events, rows = _take_heads(lane, to, min(per_lane, most))
                self._start_events(lane, events)
                most -= len(events)
                if events:
                    taken.append(ListPart(lane, events, lane.incarnation, rows))
        return taken

    # The partition may be lost or read anew between the check of its incarnation and the note.
    @under_lock
    def finish_list(self, slices: Iterable[ListPart]) -> list[ListPart]:
        """Record the events of a handled list as done. Return the parts whose events need a result each."""
        # The list is recorded in one step.
        # Parts whose events were parked, or whose partition was read again, while the list ran.
        exceptional: list[ListPart] = []
        done: dict[Partition, list[Row]] = {}
        for each in slices:
            lane, events, incarnation, rows = each
            partition = lane.partition
            was_parked = any(map(_parked, events)) if rows is None else lane.parked_running is not None
            if partition.incarnation != incarnation or was_parked:
                exceptional.append(each)
            else:
                lane.clear_current()
                self._followers.pop(lane, None)
                if isinstance(lane, SharedLane):
                    # The caller still refers to the events, so their memory is freed there, without the lock.
                    lane.set_in_hand(())
                done.setdefault(partition, []).extend(map(_record, events) if rows is None else rows)
        for partition, rows in done.items():
            partition.finish_rows(rows)
            self._state.mark_dirty(partition)
        return exceptional

    def record_lanes(self, lanes: Iterable[Lane]) -> None:
        """Record the events that runners have finished in these event queues. The caller holds the lock."""
        # The rows of the events are in `Lane.done`. Lanes of one partition must be adjacent.
        for partition, neighbours in groupby(lanes, _partition):
            done: list[Row] = []
            incarnation = None if partition.phase is Phase.LOST else partition.incarnation
            for lane in neighbours:
                if lane.incarnation == incarnation and lane.parked_running is None:
                    if lane.done_rows:
                        done += lane.done_rows
                        lane.done_rows = []
                else:
                    self._record_exceptional(lane)
            if done:
                partition.finish_rows(done)
                self._state.mark_dirty(partition)

    def note_verdict(self, lane: Lane, event: DeliveredEvent, verdict: Verdict | None) -> None:
        """Record an event as done if `verdict` is None, else as failed or waiting. The caller holds the lock."""
        # The event is parked with the verdict.
        # If the parked event blocks its key, the later events of its lane are parked too.
        partition = lane.partition
        if verdict is None:
            partition.settle_done(event)
        elif partition.parked.park(event, verdict).blocks:
            lane.find_lane_behind(event).park_waiting()

    def evict_lane(self, evicted: EvictedLane, now: float) -> ParkedRow:
        """Move the events of a waiting queue from memory to the database. The caller holds the lock."""
        # The row of the first event is returned.
        # The lane waits for a permit. Its first event is parked, and the events behind it are parked too.
        lane = evicted.lane
        event, partition = lane.queue.popleft(), lane.partition
        # If the database has the head as waiting already, its row is not saved again.
        was_charged = event.parked is not None and event.parked.is_charged
        if not was_charged and partition.parked.put_off(event, now, evicted.delay):
            self._state.schedule_wakeup(partition, lane.key)
        else:
            # An event that failed before keeps its error while it waits for a turn that will come. Under something
            # closed the stored text must say so, or the next owner of the partition would not ask whether it is closed.
            keeps_error = not evicted.is_closed
            state, attempts = RowState.DEFERRED, event.attempt - 1
            self.note_verdict(
                lane,
                event,
                Verdict(state, attempts, evicted.delay, True, evicted.reason, is_wait=keeps_error, waits=True),
            )
            if was_charged:
                # The save takes the attempt back. It is counted again before the event runs.
                event.parked.mark_suspect()
            self._state.mark_dirty(partition)
        if lane.queue:
            lane.park_waiting()
            self._state.mark_dirty(partition)
        lane.is_active = False
        partition.drop_lane(lane)
        row: ParkedRow = event.parked
        return row

    def park_behind_head(self, lane: Lane) -> None:
        """Move all but the first event of a waiting event queue out of memory. The caller holds the lock."""
        # This saves memory. The lane waits for a permit. Its first event is parked already and stays; the events behind
        # it are parked too.
        head = lane.queue.popleft()
        lane.park_waiting()
        lane.queue.append(head)
        self._state.mark_dirty(lane.partition)

    def evict_slow(self, lane: Lane, verdict: Verdict | None = None) -> None:
        """Give a slow running event a database row, so that its partition can go on. The caller holds the lock."""
        # The lane's running event and the events behind it are parked, while its handler goes on.
        # The cursor can then move on past a full window. The row is `ready`, unless `verdict` says that the
        # event is over its timeout.
        partition, event = lane.partition, lane.current_event
        # An event that has ended stays `current_event` until the lane goes on.
        if event is None or lane.has_ended(event):
            return
        if partition.incarnation != lane.incarnation or partition.epoch != event.epoch:
            # The partition was read anew since the event started, so the event waits behind itself. An event of a list
            # may have been taken before the lane's own incarnation was brought up to date; its epoch tells.
            lane.find_lane_behind(event).park_waiting()
            self._state.mark_dirty(partition)
        elif verdict is None and event.parked is not None:
            self._park_followers(lane, event)
        elif _is_undecided(partition, event):
            self._park_running(lane, event, verdict or Verdict(RowState.READY, event.attempt - 1, None, True, None))

    def end_lanes(self, lanes: Iterable[Lane]) -> None:
        """Record the finished events of event queues that have stopped running. The caller holds the lock."""
        # The lists that the lanes ran are forgotten.
        self.record_lanes(lanes)
        if self._followers:
            for lane in lanes:
                self._followers.pop(lane, None)

    def _record_exceptional(self, lane: Lane) -> None:
        partition, done = lane.partition, lane.done_rows
        if partition.incarnation != lane.incarnation:
            # The partition was read anew since the lane began to run, so the done events will come again.
            partition.resumption.remembered.update(map(_identity, done[lane.remembered_count :]))
            lane.incarnation, lane.ended_event = partition.incarnation, lane.current_event
        elif done and not partition.is_lost:
            if lane.parked_running is not None and lane.parked_running.record in done:
                # The event was parked while its handler ran, and is done all the same.
                done.remove(lane.parked_running.record)
                partition.parked.note_done(lane.parked_running)
            if done:
                partition.finish_rows(done)
            self._state.mark_dirty(partition)
        lane.parked_running = None
        lane.done_rows, lane.remembered_count = [], 0

    def _start_events(self, lane: Lane, events: Sequence[DeliveredEvent]) -> None:
        lane.current_event, lane.ended_event = events[0] if events else None, None
        if isinstance(lane, SharedLane):
            lane.set_in_hand(events)
        elif len(events) > 1:
            self._followers[lane] = [*events[1:]]

    def _find_followers(self, lane: Lane) -> list[DeliveredEvent]:
        # The result has the later events of the current handler call that have no result yet.
        # The lane handles them in the same call as its current event.
        if isinstance(lane, SharedLane) and lane.in_hand and lane not in self._followers:
            # Made only when needed: most lists are finished in one step.
            self._followers[lane] = [*lane.in_hand[1:]]
        return self._followers.get(lane, [])

    def _note_ended(self, lane: Lane, event: DeliveredEvent) -> None:
        if event is lane.current_event:
            lane.ended_event = event
        elif event in (followers := self._find_followers(lane)):
            followers.remove(event)

    def _park_running(self, lane: Lane, event: DeliveredEvent, verdict: Verdict) -> None:
        partition = lane.partition
        row = partition.parked.park(event, verdict)
        row.keep_running()
        first = {key_of(event)}
        for follower in self._find_followers(lane):
            if (key := key_of(follower)) in first:
                partition.parked.park_behind(follower)
            else:
                # Each event of a shared lane blocks its own key.
                first.add(key)
                partition.parked.park(follower, verdict)
            follower.parked.keep_running()
        lane.parked_running = event
        if (key := key_of(event)) in partition.parked.chains:
            partition.parked.chains[key].blocked_by_slow = True
        lane.find_lane_behind(event).park_waiting()
        self._state.mark_dirty(partition)

    def _park_followers(self, lane: Lane, event: DeliveredEvent) -> None:
        partition = lane.partition
        partition.payload_bytes.drop((event.id,))
        if event.parked.is_loaded and (key := key_of(event)) in partition.parked.chains:
            partition.parked.chains[key].blocked_by_slow = True
        if (rest := lane.find_lane_behind(event)).queue:
            rest.park_waiting()
            self._state.mark_dirty(partition)


def must_run_alone(event: DeliveredEvent) -> bool:
    """Return True if an event must not be handled in a list: it has failed, or may have killed a process."""
    return event.attempt > 1 or (event.parked is not None and event.parked.is_charged)


def _is_undecided(partition: Partition, event: DeliveredEvent) -> bool:
    """Return True if an event that a handler runs has no recorded result yet."""
    # Other threads may have recorded one, or parked the event, while the handler ran.
    if event.parked is not None:
        return event.parked.is_loaded and event.id not in partition.parked.unsaved_deletions
    return not partition.progress.has_finished(event.id)


def _take_heads(lane: Lane, to: Destination, most: int) -> tuple[list[DeliveredEvent], list[Row] | None]:
    if isinstance(lane, SharedLane) and lane.claim is not None:
        rows = _take_rows(lane, to, most)
        return build_first_deliveries(rows, lane.claim), rows
    queue, routes, endpoint = lane.queue, to.routes, to.endpoint
    taken: list[DeliveredEvent] = []
    while queue and len(taken) < most:
        event = queue[0]
        if event.parked is not None and must_run_alone(event):
            break
        if routes[event.record[ROUTE]] is not endpoint:
            break
        taken.append(queue.popleft())
    if to.fits is not None:
        at = next((at for at, event in enumerate(taken) if not to.fits(event)), len(taken))
        queue.extendleft(reversed(taken[at:]))
        del taken[at:]
    return taken, None


def _take_rows(shared_lane: SharedLane, to: Destination, most: int) -> list[Row]:
    # Only the runner of the shared lane may call this. The rows are for one handler, and come from the head.
    queue = shared_lane.queue
    if len(queue) <= most:
        rows = [*queue]
        queue.clear()
    else:
        rows = [queue.popleft() for _ in range(most)]
    types = shared_lane.types.known_types
    at = len(rows) if types is not None and to.accepts_types(types) else to.count_leading(rows)
    if at == len(rows):
        return rows
    queue.extendleft(reversed(rows[at:]))
    return rows[:at]
