"""Run batch handlers: gather waiting events of any number of lanes into one list, call the handler once, settle each
event. Nothing waits for a list to fill up."""

import time
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, cast

from partbox.events import DeliveredEvent
from partbox.protocol.parking import RowState
from partbox.protocol.verdict import Deferral, Verdict
from partbox.worker.engine.destination import Destination
from partbox.worker.engine.engine import Engine
from partbox.worker.engine.key import Key, key_of
from partbox.worker.engine.outcomes import ListPart, must_run_alone
from partbox.worker.engine.partition import Lane
from partbox.worker.fork_safety import exit_forked
from partbox.worker.runners.endpoint import Endpoint
from partbox.worker.runners.event_loop import EventLoop
from partbox.worker.runners.lane_runner import LaneRunner
from partbox.worker.runners.settlement import Settlement


class BatchRunner:
    """The part of a worker process that calls batch handlers. Runner threads and the event loop share one object."""

    def __init__(self, engine: Engine, runner: LaneRunner, settlement: Settlement) -> None:
        self._engine = engine
        self._outcomes = engine.outcomes
        self._runner = runner
        self._settlement = settlement

    def run(self, lane: Lane, endpoint: Endpoint) -> list[Lane]:
        """Call a sync batch handler with a list of waiting events. Return the other event queues that the list was
        filled from."""
        # The handler runs in this thread. The events come from `lane` (the queue of events of one key) and other lanes.
        # The caller must end the returned lanes together with `lane`.
        slices, others = self._gather_batch(lane, endpoint)
        if slices and not self._refuse_batch(slices, endpoint):
            try:
                result = endpoint.call_handler(_events_of(slices))
            except BaseException as error:
                # SystemExit too: a handler must not end the process.
                result = error
            self._settle_batch(slices, endpoint, result)
        return others

    async def run_async(self, lane: Lane, endpoint: Endpoint) -> list[Lane]:
        """Call an async batch handler with a list of waiting events. Return the other event queues that the list was
        filled from."""
        # The handler runs in the event loop, within its timeout. The events come from `lane` and other lanes. The
        # caller must end the returned lanes together with `lane`.
        slices, others = self._gather_batch(lane, endpoint)
        if slices and not self._refuse_batch(slices, endpoint):
            result = await EventLoop.run_handler(endpoint.call_handler, _events_of(slices), endpoint.handler.timeout)
            self._settlement.raise_interrupt(result)
            self._settle_batch(slices, endpoint, result)
        return others

    def _gather_batch(self, lane: Lane, endpoint: Endpoint) -> tuple[list[ListPart], list[Lane]]:
        # An event that failed before, or that may have killed a process, runs in a list of its own. So the event that
        # makes its list fail is found without taking others with it.
        # The events come from the head of `lane`, then from other lanes. The result is the parts of the list (none if
        # the first event may not run now) and the other lanes that gave events.
        size = endpoint.handler.max_size or 1
        per_lane = endpoint.handler.per_key or size
        destination = self._engine.limits.restrict_destination(lane, Destination(self._runner.routes, endpoint))
        slices: list[ListPart] = []
        joins_lane = lane.claim is not None or destination.fits is not None
        if joins_lane and self._runner.may_start():
            slices = self._outcomes.join_lanes([lane], destination, per_lane, size)
        # `join_lanes` skips a shared lane that stops, was read anew or has remembered events. Such a lane gives one
        # event only: a thread that splits the lane knows of one running event, and of a list only once the list has
        # begun.
        slices = slices or self._take_from_head(lane, endpoint, 1 if joins_lane else min(per_lane, size))
        if destination.fits is not None and slices and not destination.fits(slices[0].events[0]):
            self._outcomes.put_back(lane, slices[0].events[0])
            return [], []
        others = list[Lane]()
        if not slices or must_run_alone(slices[0].events[0]):
            return slices, others
        space_left = size - len(slices[0].events)
        take = self._engine.scheduler.take_joining
        while space_left and (more := take(destination, per_lane, space_left, time.monotonic())):
            others.extend(more)
            joined = (
                self._outcomes.join_lanes(more, destination, per_lane, space_left) if self._runner.may_start() else []
            )
            slices += joined
            space_left -= sum(len(each.events) for each in joined)
            if not joined:
                break
        return slices, others

    def _take_from_head(self, lane: Lane, endpoint: Endpoint, most: int) -> list[ListPart]:
        # At most `most` events of the handler are taken.
        # Each event gets the checks of a single event. The part ends before an event of another handler, before an
        # event that must run alone unless it is the first, and before an event that was read after the partition was
        # read anew (another incarnation).
        taken: list[DeliveredEvent] = []
        run = self._runner.begin_run(float("inf"))
        incarnation = lane.incarnation
        while len(taken) < most and (next_event := self._runner.take_next_event(lane, run)) is not None:
            found, event = next_event
            alone = must_run_alone(event)
            # A partition that was read anew since the first event was taken delivers that event again. The
            # incarnation keeps the event from being in one list twice.
            if found is not endpoint or (taken and (alone or lane.incarnation != incarnation)):
                self._outcomes.put_back(lane, event)
                break
            incarnation = lane.incarnation
            taken.append(event)
            if alone:
                break
        self._outcomes.start_list(lane, taken)
        return [ListPart(lane, taken, incarnation)] if taken else []

    def _refuse_batch(self, slices: list[ListPart], endpoint: Endpoint) -> bool:
        lane, event = slices[0].lane, slices[0].events[0]
        is_probe = endpoint.handler.circuit_by is not None and self._engine.limits.is_probe(lane)
        refusal = endpoint.find_refusal(event, lane.started_at, is_probe=is_probe)
        if refusal is not None:
            self._fail_batch(slices, endpoint, refusal)
        return refusal is not None

    def _settle_batch(self, slices: list[ListPart], endpoint: Endpoint, result: object) -> None:
        # The outcome of each event is recorded with an equal share of the duration. The list as a whole is reported
        # too.
        if self._engine.is_forked:
            exit_forked(result)
        count = sum(len(each.events) for each in slices)
        seconds_each = (time.monotonic() - slices[0].lane.started_at) / count
        if endpoint.is_uneventful and _are_all_done(result, count):
            self._finish_batch(slices, endpoint, seconds_each)
            first, last = slices[0].events[0], slices[-1].events[-1]
        else:
            verdicts = self._judge_batch(slices, endpoint, result, seconds_each)
            done = [event for event, verdict in zip(_events_of(slices), verdicts, strict=True) if verdict is None]
            if not done:
                return
            first, last, count = done[0], done[-1], len(done)
        self._settlement.reports.report_list(endpoint, (first, last), count, seconds_each)

    def _finish_batch(self, slices: list[ListPart], endpoint: Endpoint, seconds_each: float) -> None:
        for lane, event, incarnation in _pair_with_lanes(self._outcomes.finish_list(slices)):
            self._settle_event(lane, event, incarnation, None, endpoint, seconds_each)

    def _judge_batch(
        self, slices: list[ListPart], endpoint: Endpoint, result: object, seconds_each: float
    ) -> list[Verdict | None]:
        if issubclass(type(result), list | tuple):
            result = _to_plain_list(result)
        members = list(_pair_with_lanes(slices))
        # isinstance() might run code of the application.
        if type(result) is list and len(result) == len(members):
            return [
                self._settle_event(*each, one, endpoint, seconds_each)
                for each, one in zip(members, result, strict=True)
            ]
        if type(result) is list:
            wrong = ValueError(f"{len(result)} outcomes for {len(members)} events")
            return self._fail_batch(slices, endpoint, wrong, seconds_each)
        if issubclass(type(result), BaseException):
            return self._fail_batch(slices, endpoint, cast(BaseException, result), seconds_each)
        return [
            # One outcome for all events.
            self._settle_event(*member, result, endpoint, seconds_each)
            for member in members
        ]

    def _fail_batch(
        self,
        slices: list[ListPart],
        endpoint: Endpoint,
        result: BaseException | Deferral,
        seconds_each: float | None = None,
    ) -> list[Verdict | None]:
        # The result has the decision for each event.
        # The first event of each key is judged by `result`. For later events of the key no attempt is counted: they are
        # held if the first event blocks its key, otherwise ready again. The circuit breaker counts one failure for the
        # list, that of its first event.
        verdicts: list[Verdict | None] = []
        first_verdicts: dict[tuple[Lane, Key], Verdict | None] = {}
        for lane, event, incarnation in _pair_with_lanes(slices):
            lane_key = lane, key_of(event)
            if lane_key not in first_verdicts:
                counts_failure = not first_verdicts
                first_verdicts[lane_key] = self._settle_event(
                    lane, event, incarnation, result, endpoint, seconds_each, counts_failure=counts_failure
                )
                verdicts.append(first_verdicts[lane_key])
            else:
                verdict = first_verdicts[lane_key]
                blocked = verdict is not None and verdict.blocks and event.aggregate_id is not None
                verdicts.append(
                    Verdict(RowState.HELD if blocked else RowState.READY, event.attempt - 1, None, True, None)
                )
                self._settlement.settle(lane, event, verdicts[-1], incarnation=incarnation)
        return verdicts

    def _settle_event(
        self,
        lane: Lane,
        event: DeliveredEvent,
        incarnation: int,
        result: object,
        endpoint: Endpoint,
        seconds_each: float | None,
        *,
        counts_failure: bool = True,
    ) -> Verdict | None:
        verdict = endpoint.judge(event, result, lane.started_at, counts_failure=counts_failure)
        self._settlement.update_circuits(endpoint)
        self._settlement.settle(lane, event, verdict, result, seconds_each, incarnation)
        return verdict


def _events_of(slices: Iterable[ListPart]) -> list[DeliveredEvent]:
    return [*chain.from_iterable(each.events for each in slices)]


def _pair_with_lanes(slices: Iterable[ListPart]) -> Iterator[tuple[Lane, DeliveredEvent, int]]:
    return ((lane, event, incarnation) for lane, events, incarnation, _ in slices for event in events)


def _to_plain_list(result: Any) -> list[Any] | TypeError:
    try:
        return [*result]
    except BaseException as wrong:
        return TypeError(f"the list that the handler returned cannot be read ({type(wrong).__name__})")


def _are_all_done(result: object, count: int) -> bool:
    if type(result) is list:
        return len(result) == count and all(each is None for each in result)
    return result is None
