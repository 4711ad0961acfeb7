"""Inspection of handlers: the function to call, whether it is async, its signature, name, and place in the code."""

import inspect
import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from partbox.errors import RegistrationError

Call = Callable[..., Any]


def callable_of(handler: Any) -> Call:
    """Return the function to call for a handler: itself or its method `handle`. Raise RegistrationError if it is no
    handler."""
    # RegistrationError is raised for everything that cannot be called with an event.
    if inspect.isclass(handler):
        raise RegistrationError(f"{handler.__qualname__} is a class: register an instance, {handler.__qualname__}()")
    call = getattr(handler, "handle", handler)
    if not callable(call):
        raise RegistrationError(f"{handler!r} cannot handle events: give a function, or an object with handle(event)")
    if inspect.isgeneratorfunction(call) or inspect.isasyncgenfunction(call):
        described = f"{name_of(handler)} ({place_of(call)})"
        raise RegistrationError(f"{described} is a generator, and calling it would run nothing: drop `yield`")
    return call  # type: ignore[no-any-return]


def is_async(call: Call) -> bool:
    """Return True if calling the function returns an awaitable, as an `async def` function does."""
    return any(map(inspect.iscoroutinefunction, (call, type(call).__call__)))


def signature_of(call: Call) -> inspect.Signature:
    """Return a function's signature, perhaps with unresolved annotations. Raise ValueError if a builtin has none."""
    if sys.version_info >= (3, 14):
        from annotationlib import Format

        return inspect.signature(call, annotation_format=Format.FORWARDREF)
    return inspect.signature(call)


def takes(call: Call, arguments: int) -> bool:
    """Return True if the function accepts this number of positional arguments, or is a builtin without a signature."""
    try:
        return can_bind(signature_of(call), arguments)
    except ValueError:
        return True


def can_bind(signature: inspect.Signature, arguments: int) -> bool:
    """Return True if this signature accepts the given number of positional arguments."""
    try:
        signature.bind(*[None] * arguments)
    except TypeError:
        return False
    return True


def name_of(handler: Any) -> str:
    """Return the default name of a handler: its module and the qualified name of its function or class."""
    inner = innermost(handler)
    named = inner if hasattr(inner, "__qualname__") else type(inner)
    return f"{named.__module__}.{named.__qualname__}"


def place_of(call: Call) -> str:
    """Return the file and line where a function is written, or "built in" if it is not Python code."""
    inner = innermost(call)
    code = getattr(inner, "__code__", None) or getattr(type(inner).__call__, "__code__", None)
    return f"{short_path(code.co_filename)}:{code.co_firstlineno}" if code else "built in"


def describe_parameters(arguments: int) -> str:
    """Return the part of an error message that says which parameters a handler must take."""
    # The text follows the handler's name in error messages.
    return f"must take exactly {_PARAMETERS[arguments]}; or one more, if it asks for {_CLASS_AND_EVENT}"


_PARAMETERS = {
    1: "one positional argument, the event",
    2: "two positional arguments, the event and the connection or session, because it is transactional",
}
_CLASS_AND_EVENT = "the class and the event by its annotations, as in (order: OrderPlaced, event: DeliveredEvent)"


def innermost(call: Any) -> Any:
    """Return the function inside of any partials and decorators."""
    while isinstance(call, partial):
        call = call.func
    return inspect.unwrap(call) if callable(call) else call


def short_path(path: str) -> str:
    """Return a file's path relative to the current folder, or unchanged if it is elsewhere."""
    try:
        relative = os.path.relpath(path)
    # The current folder has been deleted.
    except FileNotFoundError:
        return path
    return path if relative.startswith(os.pardir) else relative
