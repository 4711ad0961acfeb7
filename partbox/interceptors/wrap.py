"""A handler's call with the interceptors of its outbox around it, and the check that an object can be one."""

import inspect
from collections.abc import Sequence
from contextlib import AsyncExitStack, ExitStack
from functools import update_wrapper
from typing import Any

from partbox.callables import Call, is_async, name_of, place_of, takes
from partbox.errors import RegistrationError
from partbox.interceptors.hooks import ARGUMENTS, InterceptorMethods, hooked, hooked_async, methods_of


def wrap(call: Call, interceptors: Sequence[Any], *, is_async: bool, is_batch: bool) -> Call:
    """The call with all interceptors around it, the first outermost; the call itself if there are none.

    A coroutine function if `is_async`. The first argument is the event, or the list of them if `is_batch`; others are
    passed on. Raises RegistrationError where an interceptor that must be awaited meets a plain handler.
    """
    wrapped = call
    for interceptor in reversed(interceptors):
        if not is_async and must_be_awaited(interceptor, is_batch=is_batch):
            method = InterceptorMethods(interceptor, is_batch).awaited() if methods_of(interceptor) else None
            part = f"{method} of " if method else ""
            raise RegistrationError(
                f"{part}the interceptor {name_of(interceptor)} is async, but the handler {name_of(call)} "
                f"({place_of(call)}) is not: make it plain, which serves both kinds, or the handler `async def`"
            )
        if methods_of(interceptor):
            wrapped = (hooked_async if is_async else hooked)(wrapped, InterceptorMethods(interceptor, is_batch))
        else:
            wrapped = (managed_async if is_async else managed)(wrapped, interceptor, is_batch)
    # Name and place stay the handler's; its attributes are not copied, they may be an object's whole state.
    return wrapped if wrapped is call else update_wrapper(wrapped, call, updated=())


def must_be_awaited(interceptor: Any, *, is_batch: bool = False) -> bool:
    """True if it can only go around `async def` handlers, of events or of batches."""
    if methods_of(interceptor):
        return InterceptorMethods(interceptor, is_batch).awaited() is not None
    made = inspect.unwrap(interceptor)  # its context managers are known to be for `async with` only
    return inspect.isasyncgenfunction(made) or (hasattr(made, AWAITED) and not hasattr(made, ENTERED))


ENTERED, AWAITED = "__enter__", "__aenter__"


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


MUST_BE = (
    "give an object with before(event) or after(event, outcome, error), "
    "or a function that takes the event and returns a context manager"
)


def check(interceptor: Any) -> None:
    """Raise RegistrationError for what is not an interceptor."""
    methods = methods_of(interceptor)
    if not methods:
        _check_manager(interceptor)
    elif inspect.isclass(interceptor):
        name = interceptor.__qualname__
        raise RegistrationError(f"{name} is a class: intercept by an instance, {name}()")
    for name, method in methods.items():
        who, arguments = f"{name} of the interceptor {name_of(interceptor)}", ARGUMENTS[name]
        if not callable(method) or not takes(method, arguments):
            raise RegistrationError(f"{who} does not take {arguments} positional arguments: {MUST_BE}")
        if _yields(method):
            raise RegistrationError(f"{who} is a generator, and calling it would run nothing: drop `yield`")


def _check_manager(manager: Any) -> None:
    entered = hasattr(manager, ENTERED) or hasattr(manager, AWAITED)
    if inspect.isclass(manager) and not entered:
        raise RegistrationError(f"the class {manager.__qualname__} makes no interceptor: {MUST_BE}")
    if entered and not inspect.isclass(manager):
        raise RegistrationError(f"{manager!r} is a context manager, and would serve one event: {MUST_BE}")
    if not callable(manager):
        raise RegistrationError(f"{manager!r} is not an interceptor: {MUST_BE}")
    who = f"{name_of(manager)} ({place_of(manager)})"
    if _yields(manager):
        raise RegistrationError(f"the interceptor {who} is a generator: decorate it with contextlib.contextmanager")
    if is_async(manager) or not takes(manager, 1):
        raise RegistrationError(f"{who} is not an interceptor: {MUST_BE}")


def _yields(call: Any) -> bool:
    return inspect.isgeneratorfunction(call) or inspect.isasyncgenfunction(call)
