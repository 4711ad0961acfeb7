"""Checks that an object can be an interceptor."""

import inspect
from typing import Any

from partbox.errors import RegistrationError
from partbox.interceptors.hooks import ARGUMENTS, methods_of
from partbox.interceptors.managers import AWAITED, ENTERED
from partbox.interceptors.signature import is_async, name_of, place_of, takes

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
        _check_method(f"{name} of the interceptor {name_of(interceptor)}", method, ARGUMENTS[name])


def _check_method(who: str, method: Any, arguments: int) -> None:
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
