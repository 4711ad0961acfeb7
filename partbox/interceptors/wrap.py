"""A handler's call with the interceptors of its outbox around it."""

from collections.abc import Sequence
from functools import update_wrapper
from typing import Any, NoReturn

from partbox.errors import RegistrationError
from partbox.interceptors.hooks import InterceptorMethods, hooked, hooked_async, methods_of
from partbox.interceptors.managers import managed, managed_async, only_async
from partbox.interceptors.signature import Call, name_of, place_of


def wrap(call: Call, interceptors: Sequence[Any], *, is_async: bool, is_batch: bool) -> Call:
    """The call with all interceptors around it, the first outermost; the call itself if there are none.

    A coroutine function if `is_async`. The first argument is the event, or the list of them if `is_batch`; others are
    passed on. Raises RegistrationError where an interceptor that must be awaited meets a plain handler.
    """
    wrapped = call
    for interceptor in reversed(interceptors):
        if not is_async and must_be_awaited(interceptor, is_batch=is_batch):
            _refuse(interceptor, call, is_batch)
        wrapped = _around(wrapped, interceptor, is_async, is_batch)
    # Name and place stay the handler's; its attributes are not copied, they may be an object's whole state.
    return wrapped if wrapped is call else update_wrapper(wrapped, call, updated=())


def must_be_awaited(interceptor: Any, *, is_batch: bool = False) -> bool:
    """True if it can only go around `async def` handlers, of events or of batches."""
    if methods_of(interceptor):
        return InterceptorMethods(interceptor, is_batch).awaited() is not None
    return only_async(interceptor)


def _around(call: Call, interceptor: Any, is_async: bool, is_batch: bool) -> Call:
    if methods_of(interceptor):
        return (hooked_async if is_async else hooked)(call, InterceptorMethods(interceptor, is_batch))
    return (managed_async if is_async else managed)(call, interceptor, is_batch)


def _refuse(interceptor: Any, call: Call, is_batch: bool) -> NoReturn:
    method = InterceptorMethods(interceptor, is_batch).awaited() if methods_of(interceptor) else None
    part = f"{method} of " if method else ""
    raise RegistrationError(
        f"{part}the interceptor {name_of(interceptor)} is async, but the handler {name_of(call)} ({place_of(call)}) is "
        "not: make it plain, which serves both kinds, or the handler `async def`"
    )
