"""Notes the outcome of events, as the threads that ran them say: done, parked, or to be met again.

A handler's result has been judged when it comes here; None for a verdict is: done. What is plainly done comes by no
verb: the runner appends it to `done` of its lane without the lock, and `record` takes that over at the end of the turn.

Between an event's start and its end others may have gone on with its partition. It may be *lost*: nothing is noted any
more. It may have been *read anew*, after a lost connection: the event comes again, and if it is done it is remembered,
so that it is not started again (DESIGN 4, lost connection ⛨). Or the event ran for long and is parked, that its window
may go on (`evict_slow`): the lane has it in `parked_running`, and if it is done its row goes.
"""

from collections.abc import Collection, Iterable, Sequence
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import NamedTuple

from partbox.events import DeliveredEvent
from partbox.events.delivered import first_deliveries
from partbox.events.record import IDENTITY, ROUTE, Row
from partbox.protocol.parking import ParkedRow, RowState
from partbox.protocol.verdict import Verdict
from partbox.worker.engine.destination import Destination
from partbox.worker.engine.key import key_of
from partbox.worker.engine.lock import under_lock
from partbox.worker.engine.partition import Lane, Partition, SharedLane
from partbox.worker.engine.phase import Phase
from partbox.worker.engine.state import EngineState

_identity, _partition = itemgetter(IDENTITY), attrgetter("partition")
_record, _parked = attrgetter("record"), attrgetter("parked")


AWAITS_PERMIT = "it waits for its turn: its handler has a limit"  # as sql/queries/blocked.sql has it


class ListPart(NamedTuple):
    """Events of a list that were taken from the head of one lane, and the incarnation of the partition in which.

    `rows`: their records, if they are from a line, and so none of them was parked before.
    """

    lane: Lane
    events: list[DeliveredEvent]
    incarnation: int
    rows: list[Row] | None = None


class Outcomes:
    """The verbs of runner threads, event loop, transactor and poller about events that they have run."""

    def __init__(self, state: EngineState) -> None:
        self._state = state
        self._lock = state.lock
        self._followers: dict[Lane, list[DeliveredEvent]] = {}  # what runs with the current event of a lane, in a list

    # One event.

    @under_lock  # the partition may be lost or read anew between the look at it and the note
    def settle(
        self, lane: Lane, event: DeliveredEvent, verdict: Verdict | None, incarnation: int | None = None
    ) -> bool:
        """Note what became of an event where it is not simply done; True if that is to be reported.

        `incarnation`: that in which it was read, if that is not when its lane began to run.
        """
        partition, incarnation = lane.partition, lane.incarnation if incarnation is None else incarnation
        lane.parked_running = None if lane.parked_running is event else lane.parked_running
        self._note_ended(lane, event)
        self.record([lane])
        if partition.lost:
            return False
        if partition.incarnation != incarnation:
            done = verdict is None and not getattr(event, "ignored", False)  # that it failed is not remembered
            if done:
                partition.resumption.remembered.add(event.identity)
            return done
        self.note(lane, event, verdict)
        if event.parked is not None:
            self._state.wake_next_trials()
        self._state.mark_dirty(partition)
        return True

    @under_lock  # the memory of a pair and the note that it is done change together
    def skip_if_done(self, lane: Lane, event: DeliveredEvent) -> bool:
        """True if this event, taken from the lane, is not to be started: it was done before a lost connection."""
        partition = lane.partition
        pair, remembered = event.identity, partition.resumption.remembered
        if partition.incarnation != lane.incarnation:  # read anew since it was taken, it comes again, or has come
            return True
        if pair not in remembered:
            return False
        if not partition.lost:
            remembered.discard(pair)
            partition.settle_done(event)
            self._state.mark_dirty(partition)
        return True

    @under_lock  # what must run before the event is looked for where it is put back
    def put_back(self, lane: Lane, event: DeliveredEvent) -> None:
        """The event, taken from the head of the lane, is not started now.

        If its partition is read anew meanwhile, it comes again. While it was in its runner's hands, something that must
        run before it may have been found for its key.
        """
        partition = lane.partition
        if partition.incarnation != lane.incarnation or partition.lost:
            return
        chains = partition.parked.chains
        if chains or not partition.may_share_lane:  # the line was sorted meanwhile, or has to be
            lane = lane.lane_behind(event)
        if isinstance(lane, SharedLane):
            lane.types.add({event.event_type}, replace=False)
        lane.queue.appendleft(event if lane.claim is None else event.record)
        if chains and lane.would_overtake(event):
            lane.park_waiting()
            self._state.mark_dirty(partition)

    @under_lock  # `done` belongs to one incarnation of the partition
    def record_done(self, lane: Lane) -> None:
        """Take over what the lane has done so far. Its runner goes on; its partition may have been read anew."""
        self.record([lane])

    # An event that is over its time.

    @under_lock  # either this verdict is noted, or the handler's own
    def give_up(self, lane: Lane, event: DeliveredEvent, verdict: Verdict | None) -> bool:
        """Note the verdict of an event whose handler goes on for too long; False if it has ended after all."""
        partition = lane.partition
        if lane.current is not event or lane.has_ended(event) or partition.lost:
            return False
        if verdict is None:
            self.note(lane, event, None)
            self._state.mark_dirty(partition)
        else:
            self.evict_slow(lane, verdict)
        partition.in_transaction = False
        return True

    @under_lock  # a save moves a partition from dirty to under way: two looks could miss it in both
    def are_all_saved(self, partitions: Collection[Partition]) -> bool:
        """True if all that has become of the events of these is saved."""
        dirty = self._state.dirty
        return not any(each.parked.pending or each.last_save.is_in_flight or each in dirty for each in partitions)

    # Lists.

    @under_lock  # `current` and the followers of a lane change together
    def start(self, lane: Lane, events: Sequence[DeliveredEvent]) -> None:
        """Note that these events, taken from the head of the lane, run as part of a list."""
        self._start_events(lane, events)

    @under_lock  # no partition is lost or read anew between the look at it and the start of its events
    def join(self, lanes: Iterable[Lane], to: Destination, per_lane: int, most: int) -> list[ListPart]:
        """Take from the heads of many lanes what joins a list: at most `per_lane` events of each, and `most` of all.

        A lane that stops, was read anew or has remembered events gives nothing: it begins a list of its own.
        """
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

    @under_lock  # the partition may be lost or read anew between the look at it and the note
    def finish(self, slices: Iterable[ListPart]) -> list[ListPart]:
        """Note that all of a list are done, in one go; those that are not so plain come back, to be settled one by
        one."""
        exceptional: list[ListPart] = []
        done: dict[Partition, list[Row]] = {}
        for each in slices:
            lane, events, incarnation, rows = each
            partition = lane.partition
            was_parked = any(map(_parked, events)) if rows is None else lane.parked_running is not None
            if partition.incarnation != incarnation or was_parked:
                exceptional.append(each)
            else:
                lane.rest()
                self._followers.pop(lane, None)
                if isinstance(lane, SharedLane):
                    lane.hold(())  # their memory is freed by whoever has the slices, without the lock
                done.setdefault(partition, []).extend(map(_record, events) if rows is None else rows)
        for partition, rows in done.items():
            partition.finish(rows)
            self._state.mark_dirty(partition)
        return exceptional

    # For the engine itself. Lock held.

    def record(self, lanes: Iterable[Lane]) -> None:
        """Take over what these have done since the last time; neighbours of one partition together. Lock held."""
        for partition, neighbours in groupby(lanes, _partition):
            done: list[Row] = []
            incarnation = None if partition.phase is Phase.LOST else partition.incarnation
            for lane in neighbours:
                if lane.incarnation == incarnation and lane.parked_running is None:
                    if lane.done:
                        done += lane.done
                        lane.done = []
                else:
                    self._record_exceptional(lane)
            if done:
                partition.finish(done)
                self._state.mark_dirty(partition)

    def note(self, lane: Lane, event: DeliveredEvent, verdict: Verdict | None) -> None:
        """Park the event, and hold its lane if it blocks; or count it as done. Lock held."""
        partition = lane.partition
        if verdict is None:
            partition.settle_done(event)
        elif partition.parked.park(event, verdict).blocks:
            lane.lane_behind(event).park_waiting()

    def evict(self, lane: Lane, delay: float, now: float) -> ParkedRow:
        """Park the event at the head of a lane that waits for its turn, and its key behind it. Lock held.

        Returns its row. That changes nothing in the database if it says there already that the event waits.
        """
        event, partition = lane.queue.popleft(), lane.partition
        if partition.parked.put_off(event, now, delay):
            self._state.wake(partition, lane.key)
        else:
            attempts = event.attempt - 1
            verdict = Verdict(RowState.DEFERRED, attempts, delay, True, AWAITS_PERMIT, is_wait=True, waits=True)
            self.note(lane, event, verdict)
            self._state.mark_dirty(partition)
        if lane.queue:
            lane.park_waiting()
            self._state.mark_dirty(partition)
        lane.is_active = False
        partition.drop_lane(lane)
        row: ParkedRow = event.parked
        return row

    def park_behind_head(self, lane: Lane) -> None:
        """Park what is behind the parked event at the head of a lane that waits for its turn. Lock held."""
        head = lane.queue.popleft()
        lane.park_waiting()
        lane.queue.append(head)
        self._state.mark_dirty(lane.partition)

    def evict_slow(self, lane: Lane, verdict: Verdict | None = None) -> None:
        """Park the event that runs for long, though it goes on here, and its key behind it. Lock held.

        So the cursor moves on past a full window (DESIGN 6). `ready`, unless a `verdict` says that it is over its time.
        """
        partition, event = lane.partition, lane.current
        if event is None or lane.has_ended(event):  # it has ended, and its lane has not gone on yet
            return
        if partition.incarnation != lane.incarnation:  # read anew since: it comes again behind itself
            lane.lane_behind(event).park_waiting()
            self._state.mark_dirty(partition)
        elif verdict is None and event.parked is not None:
            self._park_followers(lane, event)
        elif _is_undecided(partition, event):
            self._park_running(lane, event, verdict or Verdict(RowState.READY, event.attempt - 1, None, True, None))

    def end(self, lanes: Iterable[Lane]) -> None:
        """Take over what these lanes have done; they do not run any more, nor do followers in a list. Lock held."""
        self.record(lanes)
        if self._followers:
            for lane in lanes:
                self._followers.pop(lane, None)

    def _record_exceptional(self, lane: Lane) -> None:
        """Do so where the partition was read anew or lost meanwhile, or an event of the lane was parked."""
        partition, done = lane.partition, lane.done
        if partition.incarnation != lane.incarnation:  # read anew since the lane began: what is done will come again
            partition.resumption.remembered.update(map(_identity, done[lane.remembered_count :]))
            lane.incarnation, lane.ended_event = partition.incarnation, lane.current
        elif done and not partition.lost:
            if (
                lane.parked_running is not None and lane.parked_running.record in done
            ):  # parked while it ran, done all the same
                done.remove(lane.parked_running.record)
                partition.parked.done(lane.parked_running)
            if done:
                partition.finish(done)
            self._state.mark_dirty(partition)
        lane.parked_running = None
        lane.done, lane.remembered_count = [], 0

    def _start_events(self, lane: Lane, events: Sequence[DeliveredEvent]) -> None:
        lane.current, lane.ended_event = events[0] if events else None, None
        if isinstance(lane, SharedLane):
            lane.hold(events)
        elif len(events) > 1:
            self._followers[lane] = [*events[1:]]

    def _followers_of(self, lane: Lane) -> list[DeliveredEvent]:
        """The events that run with the current one of the lane in a list, and have not ended."""
        if isinstance(lane, SharedLane) and lane.in_hand and lane not in self._followers:
            self._followers[lane] = [*lane.in_hand[1:]]  # made when it is asked for: most lists are done in one go
        return self._followers.get(lane, [])

    def _note_ended(self, lane: Lane, event: DeliveredEvent) -> None:
        """The event, the current one of its lane or one that runs behind it, does not run any more."""
        if event is lane.current:
            lane.ended_event = event
        elif event in (followers := self._followers_of(lane)):
            followers.remove(event)

    def _park_running(self, lane: Lane, event: DeliveredEvent, verdict: Verdict) -> None:
        partition = lane.partition
        row = partition.parked.park(event, verdict)
        row.keep_running()
        first = {key_of(event)}
        for follower in self._followers_of(lane):
            if (key := key_of(follower)) in first:
                partition.parked.hold(follower)
            else:  # of a line: it blocks its own key
                first.add(key)
                partition.parked.park(follower, verdict)
            follower.parked.keep_running()
        lane.parked_running = event
        if (key := key_of(event)) in partition.parked.chains:
            partition.parked.chains[key].blocked_by_slow = True
        lane.lane_behind(event).park_waiting()
        self._state.mark_dirty(partition)

    def _park_followers(self, lane: Lane, event: DeliveredEvent) -> None:
        """A parked event runs for long: what waits behind it, parked or new, does not wait in memory."""
        partition = lane.partition
        partition.payload_bytes.drop((event.id,))
        if event.parked.loaded and (key := key_of(event)) in partition.parked.chains:
            partition.parked.chains[key].blocked_by_slow = True
        if (rest := lane.lane_behind(event)).queue:
            rest.park_waiting()
            self._state.mark_dirty(partition)


def must_run_alone(event: DeliveredEvent) -> bool:
    """True if the event comes in a list of its own: it has failed before, or may have killed a process."""
    return event.attempt > 1 or (event.parked is not None and event.parked.charged)


def _is_undecided(partition: Partition, event: DeliveredEvent) -> bool:
    """True if nothing has become of it yet: others may have ended or parked it beside its handler."""
    if event.parked is not None:
        return event.parked.loaded and event.id not in partition.parked.deleting
    return not partition.progress.has_finished(event.id)


def _take_heads(lane: Lane, to: Destination, most: int) -> tuple[list[DeliveredEvent], list[Row] | None]:
    if isinstance(lane, SharedLane) and lane.claim is not None:
        rows = _take_rows(lane, to, most)
        return first_deliveries(rows, lane.claim), rows
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
    """Take at most `most` rows from the head of a line, all for this handler. Only its runner may call this."""
    queue = shared_lane.queue
    if len(queue) <= most:
        rows = [*queue]
        queue.clear()
    else:
        rows = [queue.popleft() for _ in range(most)]
    types = shared_lane.types.known
    at = len(rows) if types is not None and to.accepts_types(types) else to.count_leading(rows)
    if at == len(rows):
        return rows
    queue.extendleft(reversed(rows[at:]))
    return rows[:at]
