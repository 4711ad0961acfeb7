"""Runs batch handlers: gathers a list, calls the handler, and settles what became of each of its events.

A list is of what waits now, from as many lanes as it takes: nothing lingers for it to fill up. An event that has failed
before, or may have killed a process, comes in a list of its own: so the one that makes its list fail is found, and
takes no others with it.
"""

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
from partbox.worker.engine.outcomes import Slice, runs_alone
from partbox.worker.engine.partition import Lane
from partbox.worker.fork_safety import leave
from partbox.worker.runners.endpoint import Endpoint
from partbox.worker.runners.event_loop import EventLoop
from partbox.worker.runners.lane_runner import LaneRunner
from partbox.worker.runners.settlement import Settlement


class Batches:
    """Lists of one process; any runner thread, and the event loop. The caller ends the lanes that come back."""

    def __init__(self, engine: Engine, runner: LaneRunner, settlement: Settlement) -> None:
        self._engine = engine
        self._outcomes = engine.outcomes
        self._runner = runner
        self._settlement = settlement

    def run(self, lane: Lane, endpoint: Endpoint) -> list[Lane]:
        """Run one list by a sync handler in this thread; the lanes beside `lane` that took part."""
        slices, others = self._gather(lane, endpoint)
        if slices and not self._refused(slices, endpoint):
            try:
                result = endpoint.call(_events(slices))
            except BaseException as error:  # also SystemExit: a handler does not end the process
                result = error
            self._settle(slices, endpoint, result)
        return others

    async def run_async(self, lane: Lane, endpoint: Endpoint) -> list[Lane]:
        """Run one list by an async handler in the event loop; the lanes beside `lane` that took part."""
        slices, others = self._gather(lane, endpoint)
        if slices and not self._refused(slices, endpoint):
            result = await EventLoop.call(endpoint.call, _events(slices), endpoint.handler.timeout)
            self._settlement.pass_on(result)
            self._settle(slices, endpoint, result)
        return others

    def _gather(self, lane: Lane, endpoint: Endpoint) -> tuple[list[Slice], list[Lane]]:
        """A list that begins with this lane, and the lanes beside it that take part."""
        size = endpoint.handler.max_size or 1
        deep = endpoint.handler.per_key or size
        to = self._engine.limits.destination(lane, Destination(self._runner.routes, endpoint))
        slices: list[Slice] = []
        whole = lane.claim is not None or to.fits is not None
        if whole and self._runner.trusted():
            slices = self._outcomes.join([lane], to, deep, size)
        # An odd line gives one: whoever sorts it knows of one that it runs, and of a list when that has begun.
        slices = slices or self._take(lane, endpoint, 1 if whole else min(deep, size))
        if to.fits is not None and slices and not to.fits(slices[0].events[0]):
            self._outcomes.put_back(lane, slices[0].events[0])
            return [], []
        others = list[Lane]()
        if not slices or runs_alone(slices[0].events[0]):
            return slices, others
        left = size - len(slices[0].events)
        take = self._engine.runs.take
        while left and (more := take(to, deep, left, time.monotonic())):
            others.extend(more)
            joining = self._outcomes.join(more, to, deep, left) if self._runner.trusted() else []
            slices += joining
            left -= sum(len(each.events) for each in joining)
            if not joining:
                break
        return slices, others

    def _take(self, lane: Lane, endpoint: Endpoint, most: int) -> list[Slice]:
        """Take from the head of the lane what is for this endpoint."""
        taken: list[DeliveredEvent] = []
        walk = self._runner.begin(float("inf"))
        incarnation = lane.incarnation
        while len(taken) < most and (step := self._runner.step(lane, walk)) is not None:
            found, event = step
            alone = runs_alone(event)
            # Read anew since the first was taken, the lane has that one again (A9): it is not in one list twice.
            if found is not endpoint or (taken and (alone or lane.incarnation != incarnation)):
                self._outcomes.put_back(lane, event)
                break
            incarnation = lane.incarnation
            taken.append(event)
            if alone:
                break
        self._outcomes.start(lane, taken)
        return [Slice(lane, taken, incarnation)] if taken else []

    def _refused(self, slices: list[Slice], endpoint: Endpoint) -> bool:
        refusal = endpoint.refusal(slices[0].lane.started)
        if refusal is not None:
            self._fail(slices, endpoint, refusal)
        return refusal is not None

    def _settle(self, slices: list[Slice], endpoint: Endpoint, result: object) -> None:
        """Settle each event of the list, which has its share of the time that the list took."""
        if self._engine.forked:
            leave(result)
        count = sum(len(each.events) for each in slices)
        share = (time.monotonic() - slices[0].lane.started) / count
        if endpoint.calm and _all_done(result, count):
            self._finish(slices, endpoint, share)
            first, last = slices[0].events[0], slices[-1].events[-1]
        else:
            verdicts = self._verdicts(slices, endpoint, result, share)
            done = [event for event, verdict in zip(_events(slices), verdicts, strict=True) if verdict is None]
            if not done:
                return
            first, last, count = done[0], done[-1], len(done)
        self._settlement.reports.ran_together(endpoint, (first, last), count, share)

    def _finish(self, slices: list[Slice], endpoint: Endpoint, share: float) -> None:
        """All are done, and nobody hears of each: they are noted in one go, but for those with something odd."""
        for lane, event, incarnation in _members(self._outcomes.finish(slices)):
            self._judge(lane, event, incarnation, None, endpoint, share)

    def _verdicts(self, slices: list[Slice], endpoint: Endpoint, result: object, share: float) -> list[Verdict | None]:
        if issubclass(type(result), list | tuple):
            result = _plain(result)
        members = list(_members(slices))
        if type(result) is list and len(result) == len(members):  # isinstance might ask the application
            return [self._judge(*each, one, endpoint, share) for each, one in zip(members, result, strict=True)]
        if type(result) is list:
            wrong = ValueError(f"{len(result)} outcomes for {len(members)} events")
            return self._fail(slices, endpoint, wrong, share)
        if issubclass(type(result), BaseException):
            return self._fail(slices, endpoint, cast(BaseException, result), share)
        return [self._judge(*member, result, endpoint, share) for member in members]  # one outcome for all of them

    def _fail(
        self, slices: list[Slice], endpoint: Endpoint, result: BaseException | Deferral, share: float | None = None
    ) -> list[Verdict | None]:
        """All of the list failed: the first of each key is judged by it, the others wait behind it, uncharged.

        It is one failure, so only the first event of all can open the circuit.
        """
        verdicts: list[Verdict | None] = []
        judged: dict[tuple[Lane, Key], Verdict | None] = {}
        for lane, event, incarnation in _members(slices):
            place = lane, key_of(event)
            if place not in judged:
                counts = not judged
                judged[place] = self._judge(lane, event, incarnation, result, endpoint, share, counts=counts)
                verdicts.append(judged[place])
            else:
                verdict = judged[place]
                blocked = verdict is not None and verdict.blocks and event.aggregate_id is not None
                verdicts.append(
                    Verdict(RowState.HELD if blocked else RowState.READY, event.attempt - 1, None, True, None)
                )
                self._settlement.settle(lane, event, verdicts[-1], incarnation=incarnation)
        return verdicts

    def _judge(
        self,
        lane: Lane,
        event: DeliveredEvent,
        incarnation: int,
        result: object,
        endpoint: Endpoint,
        share: float | None,
        *,
        counts: bool = True,
    ) -> Verdict | None:
        verdict = endpoint.judge(event, result, lane.started, counts=counts)
        self._settlement.settle(lane, event, verdict, result, share, incarnation)
        return verdict


def _events(slices: Iterable[Slice]) -> list[DeliveredEvent]:
    return [*chain.from_iterable(each.events for each in slices)]


def _members(slices: Iterable[Slice]) -> Iterator[tuple[Lane, DeliveredEvent, int]]:
    return ((lane, event, incarnation) for lane, events, incarnation, _ in slices for event in events)


def _plain(result: Any) -> list[Any] | TypeError:
    """The outcomes as a list of our own; an error where a list of the application's own does not let itself be read."""
    try:
        return [*result]
    except BaseException as wrong:
        return TypeError(f"the list that the handler returned cannot be read ({type(wrong).__name__})")


def _all_done(result: object, count: int) -> bool:
    if type(result) is list:
        return len(result) == count and all(each is None for each in result)
    return result is None
