"""Interceptors that are context managers."""

import inspect
from contextlib import AsyncExitStack, ExitStack
from typing import Any

from partbox.interceptors.signature import Call, name_of, place_of

ENTERED, AWAITED = "__enter__", "__aenter__"


def only_async(manager: Call) -> bool:
    """True if its context managers are known to be for `async with` only."""
    made = inspect.unwrap(manager)
    return inspect.isasyncgenfunction(made) or (hasattr(made, AWAITED) and not hasattr(made, ENTERED))


def managed(call: Call, manager: Call, is_batch: bool) -> Call:
    """The call with this interceptor around it, entered for each event."""

    def intercepted(given: Any, *more: Any) -> Any:
        with ExitStack() as stack:
            for event in given if is_batch else (given,):
                stack.enter_context(_made(manager, event, ENTERED))
            return call(given, *more)
        return None  # it swallowed the exception

    return intercepted


def managed_async(call: Call, manager: Call, is_batch: bool) -> Call:
    """`managed` of an `async def`; what can do both is entered by `async with`."""

    async def intercepted(given: Any, *more: Any) -> Any:
        async with AsyncExitStack() as stack:
            for event in given if is_batch else (given,):
                context = _made(manager, event, ENTERED, AWAITED)
                if hasattr(context, AWAITED):
                    await stack.enter_async_context(context)
                else:
                    stack.enter_context(context)
            return await call(given, *more)
        return None  # it swallowed the exception

    return intercepted


def _made(manager: Call, event: Any, *entered: str) -> Any:
    """The context manager of this event."""
    context = manager(event)
    if any(hasattr(context, name) for name in entered):
        return context
    fit = "an async one, which a plain handler cannot use" if hasattr(context, AWAITED) else "no context manager"
    raise TypeError(
        f"the interceptor {name_of(manager)} ({place_of(manager)}) returned {type(context).__name__}, {fit}"
    )
