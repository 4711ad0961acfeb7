"""The handler of a task, as it is registered and sent to worker processes."""

import importlib
import inspect
import sys
from collections.abc import Callable
from typing import Any

from partbox.errors import RegistrationError
from partbox.events import DeliveredEvent
from partbox.outcomes import Outcome
from partbox.tasks.arguments import Arguments


class TaskRunner:
    """Calls the function of a task with the arguments that an event brings.

    The return value matters only if it is an outcome. The function is sent by name if it can be imported, else by
    value.
    """

    def __init__(self, function: Callable[..., Any], task: str) -> None:
        self.function = function
        self.task = task
        self.arguments = Arguments(function, task)

    def __call__(self, event: DeliveredEvent) -> Any:
        return _outcome(self.function(**self.arguments.of(event)))

    @property
    def __wrapped__(self) -> Callable[..., Any]:
        """The function: inspection finds its code and place."""
        return self.function

    @property
    def __signature__(self) -> inspect.Signature:
        """A handler's, not the function's."""
        return inspect.Signature([inspect.Parameter("event", inspect.Parameter.POSITIONAL_ONLY)])

    def __reduce__(self) -> tuple[Any, ...]:
        module, name = self.function.__module__, self.function.__qualname__
        if hasattr(sys.modules.get(module), "__file__") and getattr(_found(module, name), "runner", None) is self:
            return imported, (module, name)
        return type(self), (self.function, self.task)


class AsyncTaskRunner(TaskRunner):
    """The same for an `async def`."""

    async def __call__(self, event: DeliveredEvent) -> Any:
        return _outcome(await self.function(**self.arguments.of(event)))


def runner(function: Any, task: str) -> TaskRunner:
    """The handler of a function. RegistrationError if it cannot be a task."""
    if not inspect.isfunction(function):
        raise RegistrationError(f"{function!r} cannot be a task: decorate a function")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise RegistrationError(f"task {task!r} is a generator, and calling it would run nothing: drop `yield`")
    return (AsyncTaskRunner if inspect.iscoroutinefunction(function) else TaskRunner)(function, task)


def imported(module: str, name: str) -> TaskRunner:
    """The runner of the task of that name, in a process that imports its module."""
    found = getattr(_found(module, name), "runner", None)
    if isinstance(found, TaskRunner):
        return found
    raise RegistrationError(
        f"there is no task {module}.{name} in a worker process: define it where importing the module defines it, "
        "not under `if __name__ == '__main__':`"
    )


def _found(module: str, name: str) -> Any:
    place: Any = sys.modules.get(module) or importlib.import_module(module)
    for part in name.split("."):
        place = getattr(place, part, None)
    return place


def _outcome(result: Any) -> Any:
    return result if isinstance(result, Outcome) or inspect.isawaitable(result) else None
