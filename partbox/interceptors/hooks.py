"""Interceptors with `before` and `after`."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

from partbox.callables import Call, is_async, name_of
from partbox.log_rate_limit import Flood
from partbox.text.printing import printable_line, text_of

log = logging.getLogger("partbox.worker")

LONGEST = 1_000  # characters of the events in a line

flood = Flood()

ARGUMENTS = {"before": 1, "after": 3, "before_batch": 1, "after_batch": 3}

Step = Callable[[], Any]


def methods_of(interceptor: Any) -> dict[str, Any]:
    """Its methods that partbox calls, by name."""
    found = {name: getattr(interceptor, name, None) for name in ARGUMENTS}
    return {name: method for name, method in found.items() if method is not None}


class InterceptorMethods:
    """The methods of one interceptor, as handlers of events, or of batches, use them."""

    def __init__(self, interceptor: Any, is_batch: bool) -> None:
        methods = methods_of(interceptor)
        self.name = name_of(interceptor)
        self._is_batch = is_batch
        self._at_once = {name: is_batch and f"{name}_batch" in methods for name in ("before", "after")}
        self._used = {name: methods.get(f"{name}_batch" if once else name) for name, once in self._at_once.items()}

    def awaited(self) -> str | None:
        """The name of the first of the methods in use that is `async def`."""
        names = (name for name, method in self._used.items() if method is not None and is_async(method))
        return next((f"{name}_batch" if self._at_once[name] else name for name in names), None)

    def befores(self, given: Any) -> Iterator[tuple[list[Any], Step]]:
        """The calls to make before the handler, in order, each with the events that it begins."""
        events = given if self._is_batch else [given]
        before = self._used["before"]
        if before is None:
            yield events, lambda: None
        elif self._at_once["before"]:
            yield events, partial(before, [*events])
        else:
            for event in events:
                yield [event], partial(before, event)

    def afters(self, begun: list[Any], outcome: Any, error: BaseException | None) -> Iterator[tuple[list[Any], Step]]:
        """The calls to make after the handler, in order, each with the events that it ends."""
        after = self._used["after"]
        if after is None or not begun:
            return
        outcomes = self._outcomes(outcome, len(begun))
        if self._at_once["after"]:
            yield begun, partial(after, begun, outcomes, error)
        else:
            for event, each in zip(reversed(begun), reversed(outcomes), strict=True):
                reported = isinstance(each, BaseException)  # a list may hold the error of one of its events
                yield [event], partial(after, event, *((None, each) if reported else (each, error)))

    def failed(self, events: list[Any]) -> None:
        """Log the exception of an `after`."""
        what = f"{len(events)} events from {text_of(events[0])}" if len(events) > 1 else text_of(events[0])
        level, more = flood.line(self.name, logging.ERROR)
        with suppress(BaseException):  # an error that does not let itself be looked at
            log.log(
                level,
                "after of the interceptor %s failed, which changes nothing for %s%s",
                self.name,
                printable_line(what, LONGEST),
                more,
                exc_info=True,
                extra={"event": "partbox.interceptor_failed", "interceptor": self.name},
            )

    def _outcomes(self, outcome: Any, events: int) -> list[Any]:
        if not self._is_batch or not isinstance(outcome, list | tuple):
            return [outcome] * events
        return [*outcome] if len(outcome) == events else [None] * events


def hooked(call: Call, hooks: InterceptorMethods) -> Call:
    """The call with this interceptor around it."""

    def intercepted(given: Any, *more: Any) -> Any:
        begun: list[Any] = []
        try:
            for events, before in hooks.befores(given):
                before()
                begun += events
            outcome = call(given, *more)
        except BaseException as error:
            _end(hooks, begun, None, error)
            raise
        _end(hooks, begun, outcome, None)
        return outcome

    return intercepted


def hooked_async(call: Call, hooks: InterceptorMethods) -> Call:
    """`hooked` of an `async def`."""

    async def intercepted(given: Any, *more: Any) -> Any:
        begun: list[Any] = []
        try:
            for events, before in hooks.befores(given):
                await _awaited(before())
                begun += events
            outcome = await call(given, *more)
        except BaseException as error:
            await _end_async(hooks, begun, None, error)
            raise
        await _end_async(hooks, begun, outcome, None)
        return outcome

    return intercepted


def _end(hooks: InterceptorMethods, begun: list[Any], outcome: Any, error: BaseException | None) -> None:
    for events, after in hooks.afters(begun, outcome, error):
        try:
            after()
        except BaseException:  # SystemExit too: what is handled is handled
            hooks.failed(events)


async def _end_async(hooks: InterceptorMethods, begun: list[Any], outcome: Any, error: BaseException | None) -> None:
    for events, after in hooks.afters(begun, outcome, error):
        try:
            await _awaited(after())
        except GeneratorExit:
            raise
        except BaseException as its_own:
            task = asyncio.current_task()
            if isinstance(its_own, asyncio.CancelledError) and (task is None or task.cancelling() > 0):
                raise  # the whole task is being cancelled: not of its making
            hooks.failed(events)


async def _awaited(result: Any) -> None:
    """Await it if it can be awaited: methods around an `async def` may be plain."""
    if isinstance(result, Awaitable):
        await result
