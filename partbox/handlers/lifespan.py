"""The lifespan of an outbox, which a process enters before the first handler and leaves after the last."""

import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any, get_args

from partbox.callables import can_bind, name_of, place_of, signature_of
from partbox.errors import RegistrationError
from partbox.handlers.annotations import Annotations
from partbox.handlers.argument_plan import UNKNOWN_STATE

LifespanFunction = Callable[[], Iterator[Any] | AsyncIterator[Any]]


@dataclass(frozen=True, slots=True)
class Lifespan:
    """The application's code that runs when a worker process starts and when it ends."""

    # The code is a generator function that opens the state of handlers, yields it once, and closes it. `state` is the
    # class that the function is annotated to yield.

    call: LifespanFunction
    is_async: bool
    state: Any

    @property
    def label(self) -> str:
        return f"{name_of(self.call)} ({place_of(self.call)})"


def lifespan_of(function: Any) -> Lifespan:
    """Wrap a generator function as startup and shutdown code. Raise RegistrationError if it cannot be used so."""
    # RegistrationError is raised for anything but a generator function without arguments.
    is_async = inspect.isasyncgenfunction(function)
    if not is_async and not inspect.isgeneratorfunction(function):
        named = f"{name_of(function)} ({place_of(function)})" if callable(function) else repr(function)
        raise RegistrationError(
            f"{named} is no generator function, so it cannot be the lifespan: write a def or an async def that yields "
            "the state once, and put no @contextmanager above it"
        )
    label = f"{name_of(function)} ({place_of(function)})"
    if not can_bind(signature_of(function), 0):
        raise RegistrationError(f"{label} takes arguments, and a lifespan is called with none: read settings inside")
    yielded = get_args(Annotations(function, None, label).result_type())
    state = yielded[0] if yielded else UNKNOWN_STATE
    return Lifespan(function, is_async, UNKNOWN_STATE if state in (None, type(None), Any, object) else state)
