"""The one way from a handler's result to what is known of its event: refuse → call → judge → settle.

Sync, async, list and transactional handlers differ only in how they are called. Before the call the circuit may refuse;
after it the endpoint judges the result, and the verdict is settled: the event is done, or parked, and its key held if
it blocks. What is plainly done skips all that: its lane notes it, and `record` takes it over at the end of the turn.
"""

from collections.abc import Iterable
from itertools import groupby
from operator import attrgetter
from time import monotonic

from partbox.events import DeliveredEvent
from partbox.protocol.verdict import Verdict
from partbox.worker.engine.engine import Engine
from partbox.worker.engine.key import key_of
from partbox.worker.engine.partition import Lane
from partbox.worker.engine.phase import Phase
from partbox.worker.forks import leave
from partbox.worker.reports.delivery_counts import Tally
from partbox.worker.reports.outcomes import Reports
from partbox.worker.runners.endpoint import Endpoint

_partition = attrgetter("partition")


class Settlement:
    """Of one process; from any of its runner threads, its event loop, and the transactor's thread."""

    def __init__(self, engine: Engine, reports: Reports) -> None:
        self._engine = engine
        self.reports = reports
        self.followers: dict[Lane, list[DeliveredEvent]] = {}  # what runs with the current event of a lane, in a list

    def refused(self, lane: Lane, endpoint: Endpoint, event: DeliveredEvent) -> bool:
        """Defer the event if the circuit of its handler is open; True then."""
        refusal = endpoint.refusal(lane.started)
        if refusal is None:
            return False
        self.settle(lane, event, endpoint.deferred(event, refusal))
        return True

    def end(self, lane: Lane, endpoint: Endpoint, event: DeliveredEvent, result: object, tally: Tally | None) -> None:
        """The handler has ended, not as it mostly does: judge, and settle."""
        if self._engine.forked:
            leave(result)
        seconds = monotonic() - lane.started
        verdict = endpoint.judge(event, result, lane.started)
        if tally is not None:
            tally.ran(endpoint, event, seconds, done=verdict is None)
        self.settle(lane, event, verdict, result, seconds)

    def settle(
        self,
        lane: Lane,
        event: DeliveredEvent,
        verdict: Verdict | None,
        result: object = None,
        seconds: float | None = None,
        incarnation: int | None = None,
    ) -> None:
        """Note what became of one event, where it is not simply done; `incarnation`: that in which it was read."""
        with self._engine.lock:  # the partition may be lost or read anew between the look at it and the note
            partition, incarnation = lane.partition, lane.incarnation if incarnation is None else incarnation
            lane.unstuck = None if lane.unstuck is event else lane.unstuck
            self.ended(lane, event)
            self.record([lane])
            if partition.lost:
                return
            if partition.incarnation == incarnation:
                self.note(lane, event, verdict)
                if event.parked is not None:
                    self._engine.take_turns()
                self._engine.touch(partition)
            elif verdict is None:
                partition.resumption.remembered.add(event.identity)
            else:
                return
        self.reports.settled(event, verdict, result, seconds)

    def note(self, lane: Lane, event: DeliveredEvent, verdict: Verdict | None) -> None:
        """Park the event, and hold its lane if it blocks; or count it as done. Lock held."""
        partition = lane.partition
        if verdict is None:
            partition.settle_done(event)
        elif partition.parked.park(event, verdict).blocks:
            lane.behind(event).hold_rest()

    def record(self, lanes: Iterable[Lane]) -> None:
        """Take over what these have done since the last time; neighbours of one partition together. Lock held."""
        for partition, neighbours in groupby(lanes, _partition):
            done: list[tuple[int, bytes]] = []
            incarnation = None if partition.phase is Phase.LOST else partition.incarnation
            for lane in neighbours:
                if lane.incarnation == incarnation and lane.unstuck is None:
                    if lane.done:
                        done += lane.done
                        lane.done = []
                else:
                    self._record_odd(lane)
            if done:
                partition.finish(done)
                self._engine.touch(partition)

    def _record_odd(self, lane: Lane) -> None:
        """The same where the partition was read anew or lost meanwhile, or an event of the lane was parked."""
        partition, done = lane.partition, lane.done
        if partition.incarnation != lane.incarnation:  # read anew since the lane began: what is done will come again
            partition.resumption.remembered.update(done)
            lane.incarnation, lane.settled = partition.incarnation, lane.current
        elif done and not partition.lost:
            if lane.unstuck is not None and lane.unstuck.identity in done:  # parked while it ran, done all the same
                done.remove(lane.unstuck.identity)
                partition.parked.done(lane.unstuck)
            if done:
                partition.finish(done)
            self._engine.touch(partition)
        lane.unstuck = None
        lane.done = []

    def ended(self, lane: Lane, event: DeliveredEvent) -> None:
        """The event, the current one of its lane or one that runs behind it, does not run any more. Lock held."""
        if event is lane.current:
            lane.settled = event
        elif (followers := self.followers.get(lane)) and event in followers:
            followers.remove(event)

    def unstick(self, lane: Lane, verdict: Verdict | None = None) -> None:
        """Park the event that runs for long, though it goes on here, and its key behind it. Lock held.

        `ready`, unless a `verdict` says more: that it has run out of time.
        """
        partition, event = lane.partition, lane.current
        if event is None or lane.has_settled(event):  # it has ended, and its lane has not gone on yet
            return
        if partition.incarnation != lane.incarnation:  # read anew since: it comes again behind itself
            lane.behind(event).hold_rest()
            self._engine.touch(partition)
            return
        if verdict is None and event.parked is not None:
            self._hold_behind(lane, event)
            return
        if event.parked is not None and (not event.parked.loaded or event.id in partition.parked.deleting):
            return
        if event.parked is None and partition.progress.has_finished(event.id):
            return
        row = partition.parked.park(event, verdict or Verdict("ready", event.attempt - 1, None, True, None))
        row.loaded = True
        for follower in self.followers.get(lane, ()):
            partition.parked.hold(follower)
            follower.parked.loaded = True
        lane.unstuck = event
        if (key := key_of(event)) in partition.parked.chains:
            partition.parked.chains[key].stuck = True
        lane.behind(event).hold_rest()
        self._engine.touch(partition)

    def _hold_behind(self, lane: Lane, event: DeliveredEvent) -> None:
        """A parked event runs for long: what waits behind it, parked or new, does not wait in memory. Lock held."""
        partition = lane.partition
        partition.weight.drop((event.id,))
        if event.parked.loaded and (key := key_of(event)) in partition.parked.chains:
            partition.parked.chains[key].stuck = True
        if (rest := lane.behind(event)).queue:
            rest.hold_rest()
            self._engine.touch(partition)
