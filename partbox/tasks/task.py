"""Define tasks: functions that are published as events, and the handlers by which workers call them."""

import importlib
import inspect
import sys
from collections.abc import Callable
from enum import Enum
from functools import update_wrapper
from pathlib import Path
from typing import Annotated, Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, Unpack, cast, overload
from uuid import UUID

from partbox.db.statements import AnyAsync, AnySync
from partbox.errors import PublishError, RegistrationError
from partbox.events import DeliveredEvent, Event
from partbox.events.checks import TASK
from partbox.events.event import NOT_GIVEN, TaskFields
from partbox.handlers import ANY, Handlers
from partbox.handlers import Options as HandlerOptions
from partbox.handlers.argument_plan import UNKNOWN_STATE
from partbox.handlers.needs import PlannedCall
from partbox.outcomes import Outcome
from partbox.tasks.arguments import TaskArguments
from partbox.text.wording import format_hint

P = ParamSpec("P")
R = TypeVar("R")
# The parameters of a function behind its first one, which gets the event.
A = ParamSpec("A")

_MAIN_MODULES = ("__main__", "__mp_main__")


class EventPublisher(Protocol):
    """The parts of an outbox that a task uses to publish its events."""

    handlers: Handlers

    def publish(self, conn: AnySync, event: Event, /) -> UUID | None: ...

    async def publish_async(self, conn: AnyAsync, event: Event, /) -> UUID | None: ...

    def _explain_task(self, call: str, task: str, conn: Any, given: tuple[Any, ...]) -> None: ...


class TaskRunner(PlannedCall):
    """The event handler that calls a task's function with the arguments in the event.

    The returned value matters only if it is an outcome. The function is pickled by name if it can be imported, else by
    value. `state` is the class that the lifespan yields."""

    def __init__(self, function: Callable[..., Any], task: str, state: Any = UNKNOWN_STATE) -> None:
        self.function = function
        self.task_name = task
        self.state = state
        self.arguments = TaskArguments(function, task, state)

    def with_state(self, state: Any) -> "TaskRunner":
        """Return the handler of the same task for a lifespan that yields the class `state`."""
        return self if state is self.state else type(self)(self.function, self.task_name, state)

    def __call__(self, event: DeliveredEvent, /, **needs: Any) -> Any:
        return _to_outcome(self.function(**self.arguments.from_event(event), **needs))

    @property
    def __wrapped__(self) -> Callable[..., Any]:
        # Tools such as `inspect` find the code and place of the function by this attribute.
        return self.function

    @property
    def __signature__(self) -> inspect.Signature:
        # The handler takes the event, the state, and the parameters that dependency providers fill.
        dependencies = {name: Annotated[Any, each] for name, each in self.arguments.dependencies.items()}
        needs = (
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation)
            for name, annotation in {**self.arguments.states, **dependencies}.items()
        )
        return inspect.Signature([inspect.Parameter("event", inspect.Parameter.POSITIONAL_ONLY), *needs])

    def __reduce__(self) -> tuple[Any, ...]:
        module, name = self.function.__module__, self.function.__qualname__
        if hasattr(sys.modules.get(module), "__file__"):
            found = getattr(_find_attribute(module, name), "runner", None)
            if isinstance(found, TaskRunner) and found.function is self.function:
                return import_runner, (module, name, self.state)
        return type(self), (self.function, self.task_name, self.state)


class AsyncTaskRunner(TaskRunner):
    """The event handler that awaits a task's `async def` function with the arguments in the event."""

    async def __call__(self, event: DeliveredEvent, /, **needs: Any) -> Any:
        return _to_outcome(await self.function(**self.arguments.from_event(event), **needs))


def build_runner(function: Any, task: str) -> TaskRunner:
    """Return the event handler that calls a task's function. Raise RegistrationError if it cannot be a task."""
    if isinstance(function, str):
        raise RegistrationError(f"{function!r} cannot be a task: give its name as in @outbox.task(name={function!r})")
    if not inspect.isfunction(function):
        raise RegistrationError(f"{function!r} cannot be a task: decorate a function")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise RegistrationError(f"task {task!r} is a generator, and calling it would run nothing: drop `yield`")
    return (AsyncTaskRunner if inspect.iscoroutinefunction(function) else TaskRunner)(function, task)


def import_runner(module: str, name: str, state: Any) -> TaskRunner:
    """Import a task's module in this process and return the handler of the task `name`."""
    # Used to unpickle handlers in worker processes.
    found = getattr(_find_attribute(module, name), "runner", None)
    if isinstance(found, TaskRunner):
        return found.with_state(state)
    raise RegistrationError(
        f"there is no task {module}.{name} in a worker process: define it where importing the module defines it, "
        "not under `if __name__ == '__main__':`"
    )


def _find_attribute(module: str, name: str) -> Any:
    target: Any = sys.modules.get(module) or importlib.import_module(module)
    for part in name.split("."):
        target = getattr(target, part, None)
    return target


def _to_outcome(result: Any) -> Any:
    return result if isinstance(result, Outcome) or inspect.isawaitable(result) else None


class Task(Generic[P, R]):
    """A function that can also be called later in a worker process, with arguments stored by name in an event."""

    # The overloads are for type checkers: a first parameter that gets the event is no argument of `publish`.

    def __init__(
        self,
        outbox: EventPublisher,
        runner: TaskRunner,
        aggregate_type: str | Enum = TASK,
        fields: TaskFields | None = None,
    ) -> None:
        self._outbox = outbox
        self._aggregate_type = aggregate_type
        self._fields: TaskFields = fields or {}
        self._runner = runner
        self.name = runner.task_name
        update_wrapper(self, runner.function)

    @property
    def runner(self) -> TaskRunner:
        """The handler of the task's events."""
        # The lifespan, which may be registered later, decides which parameter gets the state.
        self._runner = self._runner.with_state(self._outbox.handlers.state)
        return self._runner

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return cast(R, self._runner.function(*args, **kwargs))

    @overload
    def publish(
        self: "Task[Concatenate[DeliveredEvent[Any], A], Any]", conn: AnySync, /, *args: A.args, **arguments: A.kwargs
    ) -> UUID | None: ...

    @overload
    def publish(self, conn: AnySync, /, *args: P.args, **arguments: P.kwargs) -> UUID | None: ...

    def publish(self, conn: Any = NOT_GIVEN, /, *args: Any, **arguments: Any) -> UUID | None:
        """Publish a call of the task, for a worker to run, in the transaction of `conn`. Return the event's id.

        Raise PublishError before anything is written if the arguments do not fit the function."""
        return self._outbox.publish(conn, self._event_of("publish", conn, args, arguments))

    @overload
    async def publish_async(
        self: "Task[Concatenate[DeliveredEvent[Any], A], Any]", conn: AnyAsync, /, *args: A.args, **arguments: A.kwargs
    ) -> UUID | None: ...

    @overload
    async def publish_async(self, conn: AnyAsync, /, *args: P.args, **arguments: P.kwargs) -> UUID | None: ...

    async def publish_async(self, conn: Any = NOT_GIVEN, /, *args: Any, **arguments: Any) -> UUID | None:
        """Publish a call of the task in the transaction of an async connection, in the same way as `publish`."""
        return await self._outbox.publish_async(conn, self._event_of("publish_async", conn, args, arguments))

    @overload
    def event(
        self: "Task[Concatenate[DeliveredEvent[Any], A], Any]", /, *args: A.args, **arguments: A.kwargs
    ) -> Event: ...

    @overload
    def event(self, /, *args: P.args, **arguments: P.kwargs) -> Event: ...

    def event(self, /, *args: Any, **arguments: Any) -> Event:
        """Return an event for `publish_many` that represents a call of the task with these arguments. Raise
        PublishError if the arguments do not fit."""
        accepted = self.runner.arguments
        payload = accepted.build_payload(accepted.name_arguments(args, arguments))
        return Event(self.name, payload, aggregate_type=self._aggregate_type, **self._fields)

    def _event_of(self, call: str, conn: Any, args: tuple[Any, ...], arguments: dict[str, Any]) -> Event:
        if conn is NOT_GIVEN:
            self._outbox._explain_task(call, self.name, conn, args)
        try:
            return self.event(*args, **arguments)
        except PublishError:
            self._outbox._explain_task(call, self.name, conn, args)
            raise

    def options(self, **fields: Unpack[TaskFields]) -> "Task[P, R]":
        """Return a copy of the task whose events have these fields, such as `aggregate_id`.

        Events with the same aggregate type and `aggregate_id` run one at a time and in order, even if their tasks
        differ."""
        for field in fields.keys() - TaskFields.__annotations__.keys():
            meant = format_hint(field, TaskFields.__annotations__)
            raise PublishError(f"task {self.name!r} has no option {field!r}: {meant}")
        return Task(self._outbox, self._runner, self._aggregate_type, {**self._fields, **fields})

    def __repr__(self) -> str:
        return f"Task({self.name!r})"


def task(
    outbox: EventPublisher,
    function: Callable[P, R],
    subscription: str,
    aggregate_type: str | Enum | None,
    options: HandlerOptions,
) -> Task[P, R]:
    """Register a function as a task, so that workers can run the published calls of the task. Return the task."""
    # The function becomes the handler of the events that represent its calls. RegistrationError is raised if that is
    # impossible.
    # A task with an aggregate type also takes events that were published before it got the type, so no other task can
    # have its name.
    name = options.get("name", task_name_of(function))
    if not isinstance(name, str) or not name:
        raise RegistrationError(f"the name of a task must be a non-empty text, not {name!r}: give one, or leave it out")
    run = build_runner(function, name)
    if options.get("transactional"):
        raise RegistrationError(
            f"task {run.task_name!r} cannot be transactional: register a handler for that by outbox.on"
        )
    own_type = TASK if aggregate_type is None else aggregate_type
    if own_type == ANY:
        raise RegistrationError(
            f"task {run.task_name!r} cannot have every aggregate type ('*'): name the aggregate type of its events"
        )
    aggregate_types = dict.fromkeys((own_type, TASK))
    outbox.handlers.register_for(
        run, run.task_name, aggregate_types, subscription, **(options | {"name": run.task_name})
    )
    return Task(outbox, run, own_type)


def task_name_of(function: Any) -> str:
    """Return the default name of a task: the module and qualified name of its function."""
    # It is the same whether the module is run or imported.
    name = getattr(function, "__qualname__", repr(function)).replace("<locals>.", "")
    module = getattr(function, "__module__", None)
    return f"{_find_main_name(module) if module in _MAIN_MODULES else module}.{name}"


def _find_main_name(module: str) -> str:
    main = sys.modules[module]
    # Started by `python -m`.
    if main.__spec__ is not None:
        return main.__spec__.name.removesuffix(".__main__")
    file = getattr(main, "__file__", None)
    return Path(file).stem if file else module
