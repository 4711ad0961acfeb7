"""Calls that give handlers what they ask for."""

from collections.abc import Sequence
from dataclasses import replace
from functools import update_wrapper
from typing import Any

from partbox.callables import Call
from partbox.events import DeliveredEvent
from partbox.handlers.demand import Demand, EventPart
from partbox.handlers.needs import supplied


def met(call: Call, demand: Demand, *, is_async: bool, is_batch: bool) -> Call:
    """A call that takes events, or lists of them, and gives the handler what it asks for.

    Of a list, an event that cannot be read has its error as its outcome, and the handler does not see it.
    """
    kinds = {
        (False, False): _single,
        (True, False): _single_async,
        (False, True): _batch,
        (True, True): _batch_async,
    }
    inner = call
    if demand.needs is not None:  # whose event comes first
        inner = supplied(call, demand.needs, is_async=is_async, is_batch=is_batch)
        demand = replace(demand, parts=(EventPart.EVENT, *demand.parts))
    # Name and place stay the handler's; its attributes are not copied, they may be an object's whole state.
    return update_wrapper(kinds[is_async, is_batch](inner, demand), call, updated=())


def _single(call: Call, demand: Demand) -> Call:
    def typed(event: DeliveredEvent, *more: Any) -> Any:
        return call(*demand.of(event), *more)

    return typed


def _single_async(call: Call, demand: Demand) -> Call:
    async def typed(event: DeliveredEvent, *more: Any) -> Any:
        return await call(*demand.of(event), *more)

    return typed


def _batch(call: Call, demand: Demand) -> Call:
    def typed(events: Sequence[DeliveredEvent]) -> Any:
        read = _ReadBatch(events, demand)
        return read.outcomes(call(*read.columns)) if read.readable else read.errors

    return typed


def _batch_async(call: Call, demand: Demand) -> Call:
    async def typed(events: Sequence[DeliveredEvent]) -> Any:
        read = _ReadBatch(events, demand)
        return read.outcomes(await call(*read.columns)) if read.readable else read.errors

    return typed


class _ReadBatch:
    """A list of events, read. `columns`: a list for each parameter; `errors`: an error or None for each event."""

    def __init__(self, events: Sequence[DeliveredEvent], demand: Demand) -> None:
        self.columns: list[list[Any]] = [[] for _ in demand.parts]
        self.errors: list[Exception | None] = []
        for event in events:
            error = None
            try:
                for column, value in zip(self.columns, demand.of(event), strict=True):
                    column.append(value)
            except Exception as raised:
                error = raised
            self.errors.append(error)

    @property
    def readable(self) -> int:
        """The number of events that the handler sees."""
        return len(self.columns[0])

    def outcomes(self, result: Any) -> Any:
        """What the handler returned, with the errors in their places. ValueError if its list has another length."""
        if self.readable == len(self.errors):
            return result
        if not isinstance(result, list | tuple):
            return [result if error is None else error for error in self.errors]
        if len(result) != self.readable:
            raise ValueError(f"{len(result)} outcomes for {self.readable} events")
        given = iter(result)
        return [next(given) if error is None else error for error in self.errors]
