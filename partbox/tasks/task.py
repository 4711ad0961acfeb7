"""A function that is published as an event, and called by workers."""

import sys
from collections.abc import Callable
from enum import Enum
from functools import update_wrapper
from pathlib import Path
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, Unpack, cast
from uuid import UUID

from partbox.db.statements import AnyAsync, AnySync
from partbox.errors import PublishError, RegistrationError
from partbox.events import Event
from partbox.events.event import TaskFields
from partbox.events.reserved import TASK
from partbox.handlers import ANY, Handlers
from partbox.handlers import Options as HandlerOptions
from partbox.tasks.runner import TaskRunner, runner
from partbox.text.suggestions import hint

P = ParamSpec("P")
R = TypeVar("R")

_MAIN = ("__main__", "__mp_main__")


class Publishes(Protocol):
    """The part of an outbox that a task needs."""

    def publish(self, conn: AnySync, event: Event, /) -> UUID | None: ...

    async def publish_async(self, conn: AnyAsync, event: Event, /) -> UUID | None: ...


class Task(Generic[P, R]):
    """Calls its function when called; `publish` has a worker call it, with the same arguments by name."""

    def __init__(
        self, outbox: Publishes, runner: TaskRunner, aggregate_type: str | Enum = TASK, fields: TaskFields | None = None
    ) -> None:
        self._outbox = outbox
        self._aggregate_type = aggregate_type
        self._fields: TaskFields = fields or {}
        self.runner = runner
        self.name = runner.task
        update_wrapper(self, runner.function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return cast(R, self.runner.function(*args, **kwargs))

    def publish(self, conn: AnySync, /, **arguments: Any) -> UUID | None:
        """Publish a call with these arguments in the transaction of `conn`; the event's id.

        Raises PublishError, before anything is written, if they are not those that the function takes.
        """
        return self._outbox.publish(conn, self.event(**arguments))

    async def publish_async(self, conn: AnyAsync, /, **arguments: Any) -> UUID | None:
        """`publish` on an asynchronous connection."""
        return await self._outbox.publish_async(conn, self.event(**arguments))

    def event(self, /, **arguments: Any) -> Event:
        """The event of such a call, for `publish_many`. Raises PublishError."""
        payload = self.runner.arguments.payload(arguments)
        return Event(self.name, payload, aggregate_type=self._aggregate_type, **self._fields)

    def options(self, **fields: Unpack[TaskFields]) -> "Task[P, R]":
        """The same task, whose events have these fields.

        Events of one aggregate type and `aggregate_id`, of whatever tasks, run one at a time and in order.
        """
        for field in fields.keys() - TaskFields.__annotations__.keys():
            meant = hint(field, TaskFields.__annotations__)
            raise PublishError(f"task {self.name!r} has no option {field!r}: {meant}")
        return Task(self._outbox, self.runner, self._aggregate_type, {**self._fields, **fields})

    def __repr__(self) -> str:
        return f"Task({self.name!r})"


def task(
    outbox: Publishes,
    handlers: Handlers,
    function: Callable[P, R],
    subscription: str,
    aggregate_type: str | Enum | None,
    options: HandlerOptions,
) -> Task[P, R]:
    """Register the function as the handler of its own events. RegistrationError if that cannot be.

    One that joins an aggregate type also takes what was published before it joined, so no other can have its name.
    """
    name = options.get("name", name_of(function))
    if not isinstance(name, str) or not name:
        raise RegistrationError(f"the name of a task must be a text, not {name!r}: leave it out, or name it")
    run = runner(function, name)
    if options.get("transactional"):
        raise RegistrationError(f"task {run.task!r} cannot be transactional: register a handler for that by outbox.on")
    joined = TASK if aggregate_type is None else aggregate_type
    if joined == ANY:
        raise RegistrationError(f"task {run.task!r} cannot join every aggregate type ('*'): name the one of its events")
    taken = dict.fromkeys((joined, TASK))
    handlers.register_for(run, run.task, taken, subscription, **(options | {"name": run.task}))
    return Task(outbox, run, joined)


def name_of(function: Any) -> str:
    """Module and qualified name, the same in the program that is run and where it is imported."""
    name = getattr(function, "__qualname__", repr(function)).replace("<locals>.", "")
    module = getattr(function, "__module__", None)
    return f"{_main_name(module) if module in _MAIN else module}.{name}"


def _main_name(module: str) -> str:
    main = sys.modules[module]
    if main.__spec__ is not None:  # python -m
        return main.__spec__.name.removesuffix(".__main__")
    file = getattr(main, "__file__", None)
    return Path(file).stem if file else module
