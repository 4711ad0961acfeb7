"""Runs batch handlers: gathers a list, calls the handler, and settles what became of each of its events.

A list is of what waits now, from as many lanes as it takes: nothing lingers for it to fill up. An event that has failed
before, or may have killed a process, comes in a list of its own: so the one that makes its list fail is found, and
takes no others with it.
"""

import time
from typing import Any, cast

from partbox.protocol.parking import RowState
from partbox.protocol.verdict import Deferral, Verdict
from partbox.worker.engine.engine import Engine
from partbox.worker.engine.outcomes import Destination, Member, runs_alone
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
        members, others = self._gather(lane, endpoint)
        if members and not self._refused(members, endpoint):
            try:
                result = endpoint.call([event for _, event, _ in members])
            except BaseException as error:  # also SystemExit: a handler does not end the process
                result = error
            self._settle(members, endpoint, result)
        return others

    async def run_async(self, lane: Lane, endpoint: Endpoint) -> list[Lane]:
        """Run one list by an async handler in the event loop; the lanes beside `lane` that took part."""
        members, others = self._gather(lane, endpoint)
        if members and not self._refused(members, endpoint):
            events = [event for _, event, _ in members]
            self._settle(members, endpoint, await EventLoop.call(endpoint.call, events, endpoint.handler.timeout))
        return others

    def _gather(self, lane: Lane, endpoint: Endpoint) -> tuple[list[Member], list[Lane]]:
        """A list that begins with this lane, and the lanes beside it that take part."""
        size = endpoint.handler.max_size or 1
        deep = endpoint.handler.per_key or size
        members = self._take(lane, endpoint, min(deep, size))
        others, to = list[Lane](), Destination(self._runner.routes, endpoint)
        if not members or runs_alone(members[0][1]):
            return members, others
        take = self._engine.runs.take
        while len(members) < size and (more := take(to, size - len(members), time.monotonic())):
            others.extend(more)
            joining = self._outcomes.join(more, to, deep, size - len(members)) if self._runner.trusted() else []
            members += joining
            if not joining:
                break
        return members, others

    def _take(self, lane: Lane, endpoint: Endpoint, most: int) -> list[Member]:
        """Take from the head of the lane what is for this endpoint."""
        taken: list[Member] = []
        walk = self._runner.begin(float("inf"))
        while len(taken) < most and (step := self._runner.step(lane, walk)) is not None:
            found, event = step
            alone = runs_alone(event)
            # Read anew since the first was taken, the lane has that one again (A9): it is not in one list twice.
            if found is not endpoint or (taken and (alone or lane.incarnation != taken[0][2])):
                self._outcomes.put_back(lane, event)
                break
            taken.append((lane, event, lane.incarnation))
            if alone:
                break
        self._outcomes.start(lane, taken)
        return taken

    def _refused(self, members: list[Member], endpoint: Endpoint) -> bool:
        refusal = endpoint.refusal(members[0][0].started)
        if refusal is not None:
            self._fail(members, endpoint, refusal)
        return refusal is not None

    def _settle(self, members: list[Member], endpoint: Endpoint, result: object) -> None:
        """Settle each event of the list, which has its share of the time that the list took."""
        if self._engine.forked:
            leave(result)
        share = (time.monotonic() - members[0][0].started) / len(members)
        if endpoint.calm and _all_done(result, members):
            verdicts: list[Verdict | None] = self._finish(members, endpoint, share)
        else:
            verdicts = self._verdicts(members, endpoint, result, share)
        tally = self._settlement.reports.tally()
        if tally is not None:
            for (_, event, _), verdict in zip(members, verdicts, strict=True):
                tally.ran(endpoint, event, share, done=verdict is None)
            self._settlement.reports.delivered(tally)

    def _finish(self, members: list[Member], endpoint: Endpoint, share: float) -> list[Verdict | None]:
        """All are done, and nobody hears of each: they are noted in one go, but for those with something odd."""
        for member in self._outcomes.finish(members):
            self._judge(member, None, endpoint, share)
        return [None] * len(members)

    def _verdicts(
        self, members: list[Member], endpoint: Endpoint, result: object, share: float
    ) -> list[Verdict | None]:
        if issubclass(type(result), list | tuple):
            result = _plain(result)
        if isinstance(result, list) and len(result) == len(members):
            return [self._judge(*each, endpoint, share) for each in zip(members, result, strict=True)]
        if isinstance(result, list):
            wrong = ValueError(f"{len(result)} outcomes for {len(members)} events")
            return self._fail(members, endpoint, wrong, share)
        if issubclass(type(result), BaseException):
            return self._fail(members, endpoint, cast(BaseException, result), share)
        return [self._judge(member, result, endpoint, share) for member in members]  # one outcome for all of them

    def _fail(
        self, members: list[Member], endpoint: Endpoint, result: BaseException | Deferral, share: float | None = None
    ) -> list[Verdict | None]:
        """All of the list failed: the first of each key is judged by it, the others wait behind it, uncharged.

        It is one failure, so only the first event of all can open the circuit.
        """
        verdicts: list[Verdict | None] = []
        judged: dict[Lane, Verdict | None] = {}
        for member in members:
            lane, event, incarnation = member
            if lane not in judged:
                judged[lane] = self._judge(member, result, endpoint, share, counts=not judged)
                verdicts.append(judged[lane])
            else:
                verdict = judged[lane]
                blocked = verdict is not None and verdict.blocks and lane.key[0] is not None
                verdicts.append(
                    Verdict(RowState.HELD if blocked else RowState.READY, event.attempt - 1, None, True, None)
                )
                self._settlement.settle(lane, event, verdicts[-1], incarnation=incarnation)
        return verdicts

    def _judge(
        self, member: Member, result: object, endpoint: Endpoint, share: float | None, *, counts: bool = True
    ) -> Verdict | None:
        lane, event, incarnation = member
        verdict = endpoint.judge(event, result, lane.started, counts=counts)
        self._settlement.settle(lane, event, verdict, result, share, incarnation)
        return verdict


def _plain(result: Any) -> list[Any] | TypeError:
    """The outcomes as a list of our own; an error where a list of the application's own does not let itself be read."""
    try:
        return [*result]
    except BaseException as wrong:
        return TypeError(f"the list that the handler returned cannot be read ({type(wrong).__name__})")


def _all_done(result: object, members: list[Member]) -> bool:
    if type(result) is list:
        return len(result) == len(members) and all(each is None for each in result)
    return result is None
