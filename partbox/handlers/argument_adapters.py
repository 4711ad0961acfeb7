"""Adapt a handler that asks for typed arguments to the call with an event or a list of events."""

from collections.abc import Sequence
from dataclasses import replace
from functools import update_wrapper
from typing import Any

from partbox.callables import Call
from partbox.events import DeliveredEvent
from partbox.handlers.argument_plan import ArgumentPlan, EventPart
from partbox.handlers.needs import supply_arguments


def adapt_call(call: Call, argument_plan: ArgumentPlan, *, is_async: bool, is_batch: bool) -> Call:
    """Wrap a handler with typed arguments into a function that takes an event or a list of events."""
    # The arguments are made by the plan. An event of a list that cannot be read is not passed to the handler; its
    # outcome is the error.
    kinds = {
        (False, False): _adapt_single,
        (True, False): _adapt_single_async,
        (False, True): _adapt_batch,
        (True, True): _adapt_batch_async,
    }
    inner = call
    if argument_plan.needs is not None:
        # The first argument of `inner` is the event.
        inner = supply_arguments(call, argument_plan.needs, is_async=is_async, is_batch=is_batch)
        argument_plan = replace(argument_plan, parts=(EventPart.EVENT, *argument_plan.parts))
    # Name and place stay the handler's. The attributes are not copied, because they may be the whole state of an
    # object.
    return update_wrapper(kinds[is_async, is_batch](inner, argument_plan), call, updated=())


def _adapt_single(call: Call, argument_plan: ArgumentPlan) -> Call:
    def typed(event: DeliveredEvent, *more: Any) -> Any:
        return call(*argument_plan.build_arguments(event), *more)

    return typed


def _adapt_single_async(call: Call, argument_plan: ArgumentPlan) -> Call:
    async def typed(event: DeliveredEvent, *more: Any) -> Any:
        return await call(*argument_plan.build_arguments(event), *more)

    return typed


def _adapt_batch(call: Call, argument_plan: ArgumentPlan) -> Call:
    def typed(events: Sequence[DeliveredEvent]) -> Any:
        batch = _DecodedBatch(events, argument_plan)
        return batch.merge_outcomes(call(*batch.columns)) if batch.readable_count else batch.errors

    return typed


def _adapt_batch_async(call: Call, argument_plan: ArgumentPlan) -> Call:
    async def typed(events: Sequence[DeliveredEvent]) -> Any:
        batch = _DecodedBatch(events, argument_plan)
        return batch.merge_outcomes(await call(*batch.columns)) if batch.readable_count else batch.errors

    return typed


class _DecodedBatch:
    """A list of events that is decoded into the arguments of a batch handler.

    `columns` has a list of values per parameter, `errors` an error or None per event."""

    def __init__(self, events: Sequence[DeliveredEvent], argument_plan: ArgumentPlan) -> None:
        self.columns: list[list[Any]] = [[] for _ in argument_plan.parts]
        self.errors: list[Exception | None] = []
        for event in events:
            error = None
            try:
                for column, value in zip(self.columns, argument_plan.build_arguments(event), strict=True):
                    column.append(value)
            except Exception as raised:
                error = raised
            self.errors.append(error)

    @property
    def readable_count(self) -> int:
        """The number of events in the list that could be decoded."""
        # Only they are passed to the batch handler.
        return len(self.columns[0])

    def merge_outcomes(self, result: Any) -> Any:
        """Combine a batch handler's outcomes with the decoding errors into one outcome per event."""
        # The errors are in the places of the unreadable events. ValueError is raised if the handler's list has another
        # length. If all events were readable, the result is returned as it is.
        if self.readable_count == len(self.errors):
            return result
        if not isinstance(result, list | tuple):
            return [result if error is None else error for error in self.errors]
        if len(result) != self.readable_count:
            raise ValueError(f"{len(result)} outcomes for {self.readable_count} events")
        given = iter(result)
        return [next(given) if error is None else error for error in self.errors]
