"""Wrap the call of a handler in the interceptors of its outbox, and check that an object can be an interceptor."""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, suppress
from functools import partial, update_wrapper
from typing import Any

from partbox.callables import Call, is_async, name_of, place_of, takes
from partbox.errors import RegistrationError
from partbox.log_rate_limit import LogRateLimiter
from partbox.text.printing import shorten_line, text_of

EXPECTED_FORMS = (
    "give an object with before(event) or after(event, outcome, error), "
    "or a function that takes the event and returns a context manager"
)

log = logging.getLogger("partbox.worker")

MAX_EVENTS_TEXT = 1_000  # characters of the events in a log line

log_rate_limiter = LogRateLimiter()

ARGUMENT_COUNTS = {"before": 1, "after": 3, "before_batch": 1, "after_batch": 3}

Step = Callable[[], Any]


def methods_of(interceptor: Any) -> dict[str, Any]:
    """Return the methods of an interceptor object that partbox calls, such as `before` and `after`, by name."""
    found = {name: getattr(interceptor, name, None) for name in ARGUMENT_COUNTS}
    return {name: method for name, method in found.items() if method is not None}


class InterceptorMethods:
    """The hooks of one interceptor that are called before and after each call of a handler.

    For a handler of batches, they are `before_batch` and `after_batch` if the interceptor has such methods."""

    def __init__(self, interceptor: Any, is_batch: bool) -> None:
        methods = methods_of(interceptor)
        self.name = name_of(interceptor)
        self._is_batch = is_batch
        self._takes_batch = {name: is_batch and f"{name}_batch" in methods for name in ("before", "after")}
        self._methods = {
            name: methods.get(f"{name}_batch" if takes_batch else name)
            for name, takes_batch in self._takes_batch.items()
        }

    def find_async_method(self) -> str | None:
        """Return the name of the interceptor's first method that is `async def`, or None."""
        # Only the methods in use are considered.
        names = (name for name, method in self._methods.items() if method is not None and is_async(method))
        return next((f"{name}_batch" if self._takes_batch[name] else name for name in names), None)

    def list_before_calls(self, given: Any) -> Iterator[tuple[list[Any], Step]]:
        """Yield the calls of the interceptor's `before` to make before the handler runs, each with its events."""
        # The batch methods are never called for handlers of single events.
        # Each comes with the events that it begins.
        events = given if self._is_batch else [given]
        before = self._methods["before"]
        if before is None:
            yield events, lambda: None
        elif self._takes_batch["before"]:
            yield events, partial(before, [*events])
        else:
            for event in events:
                yield [event], partial(before, event)

    def list_after_calls(
        self, begun_events: list[Any], outcome: Any, error: BaseException | None
    ) -> Iterator[tuple[list[Any], Step]]:
        """Yield the calls of the interceptor's `after` to make once the handler has ended, each with its events."""
        # A batch has one outcome per event: the list of the handler if its length fits (an exception in the list is the
        # `error` of that event's `after`), None for each event if the length is wrong, or the same outcome for each
        # event if the handler returned no list. Single events end in reverse order.
        # Each comes with the events that it ends.
        after = self._methods["after"]
        if after is None or not begun_events:
            return
        outcomes = self._split_outcomes(outcome, len(begun_events))
        if self._takes_batch["after"]:
            yield begun_events, partial(after, begun_events, outcomes, error)
        else:
            for event, each in zip(reversed(begun_events), reversed(outcomes), strict=True):
                # A list of outcomes may hold errors of single events.
                has_own_error = isinstance(each, BaseException)
                yield [event], partial(after, event, *((None, each) if has_own_error else (each, error)))

    def log_failure(self, events: list[Any]) -> None:
        """Log the exception that an interceptor's `after` method has just raised."""
        # The exception changes no outcome of an event.
        what = f"{len(events)} events from {text_of(events[0])}" if len(events) > 1 else text_of(events[0])
        level, more = log_rate_limiter.line(self.name, logging.ERROR)
        # The error may be an object whose own methods fail.
        with suppress(BaseException):
            log.log(
                level,
                "after() of the interceptor %s failed, which does not change the outcome of %s%s",
                self.name,
                shorten_line(what, MAX_EVENTS_TEXT),
                more,
                exc_info=True,
                extra={"event": "partbox.interceptor_failed", "interceptor": self.name},
            )

    def _split_outcomes(self, outcome: Any, events: int) -> list[Any]:
        if not self._is_batch or not isinstance(outcome, list | tuple):
            return [outcome] * events
        return [*outcome] if len(outcome) == events else [None] * events


def wrap_methods(call: Call, hooks: InterceptorMethods) -> Call:
    """Return a function that calls the interceptor's `before`, then the handler, then the interceptor's `after`."""
    # The `before` methods run ahead of the call and the `after` methods when it has ended.

    def intercepted(given: Any, *more: Any) -> Any:
        begun_events: list[Any] = []
        try:
            for events, before in hooks.list_before_calls(given):
                before()
                begun_events += events
            outcome = call(given, *more)
        except BaseException as error:
            _call_afters(hooks, begun_events, None, error)
            raise
        _call_afters(hooks, begun_events, outcome, None)
        return outcome

    return intercepted


def wrap_methods_async(call: Call, hooks: InterceptorMethods) -> Call:
    """Return a coroutine function that calls the interceptor's `before`, then the handler, then the interceptor's
    `after`."""
    # The `before` methods run ahead of the call and the `after` methods when it has ended.

    async def intercepted(given: Any, *more: Any) -> Any:
        begun_events: list[Any] = []
        try:
            for events, before in hooks.list_before_calls(given):
                await _await_if_needed(before())
                begun_events += events
            outcome = await call(given, *more)
        except BaseException as error:
            await _call_afters_async(hooks, begun_events, None, error)
            raise
        await _call_afters_async(hooks, begun_events, outcome, None)
        return outcome

    return intercepted


def _call_afters(hooks: InterceptorMethods, begun_events: list[Any], outcome: Any, error: BaseException | None) -> None:
    for events, after in hooks.list_after_calls(begun_events, outcome, error):
        try:
            after()
        except BaseException:
            # SystemExit too: the event is handled already.
            hooks.log_failure(events)


async def _call_afters_async(
    hooks: InterceptorMethods, begun_events: list[Any], outcome: Any, error: BaseException | None
) -> None:
    for events, after in hooks.list_after_calls(begun_events, outcome, error):
        try:
            await _await_if_needed(after())
        except GeneratorExit:
            raise
        except BaseException as after_error:
            task = asyncio.current_task()
            if isinstance(after_error, asyncio.CancelledError) and (task is None or task.cancelling() > 0):
                # The whole task is being cancelled, and `after` is not the cause.
                raise
            hooks.log_failure(events)


async def _await_if_needed(result: Any) -> None:
    # Methods around an `async def` handler may be plain.
    if isinstance(result, Awaitable):
        await result


def wrap_call(call: Call, interceptors: Sequence[Any], *, is_async: bool, is_batch: bool) -> Call:
    """Wrap the call of a handler in all interceptors, the first outermost."""
    # Without interceptors, the call itself is returned. The result is a coroutine function if `is_async`. The first
    # argument of the call is the event, or the list if `is_batch`; other arguments are passed on. RegistrationError is
    # raised if an async interceptor meets a sync handler.
    wrapped = call
    for interceptor in reversed(interceptors):
        if not is_async and must_be_awaited(interceptor, is_batch=is_batch):
            method = InterceptorMethods(interceptor, is_batch).find_async_method() if methods_of(interceptor) else None
            part = f"{method} of " if method else ""
            raise RegistrationError(
                f"{part}the interceptor {name_of(interceptor)} is async, but the handler {name_of(call)} "
                f"({place_of(call)}) is not: make the interceptor sync, which serves both kinds of handlers, or make "
                "the handler `async def`"
            )
        if methods_of(interceptor):
            wrapped = (wrap_methods_async if is_async else wrap_methods)(
                wrapped, InterceptorMethods(interceptor, is_batch)
            )
        else:
            wrapped = (wrap_manager_async if is_async else wrap_manager)(wrapped, interceptor, is_batch)
    # Name and place stay the handler's. The attributes are not copied, because they may be the whole state of an
    # object.
    return wrapped if wrapped is call else update_wrapper(wrapped, call, updated=())


def must_be_awaited(interceptor: Any, *, is_batch: bool = False) -> bool:
    """Return True if the interceptor works only around `async def` handlers."""
    # It then has async methods or is an async context manager. `is_batch` chooses its methods for batch handlers.
    if methods_of(interceptor):
        return InterceptorMethods(interceptor, is_batch).find_async_method() is not None
    # Context managers of such a function or class support only `async with`.
    made = inspect.unwrap(interceptor)
    return inspect.isasyncgenfunction(made) or (hasattr(made, AENTER_METHOD) and not hasattr(made, ENTER_METHOD))


ENTER_METHOD, AENTER_METHOD = "__enter__", "__aenter__"


def wrap_manager(call: Call, manager: Call, is_batch: bool) -> Call:
    """Wrap a sync handler call in an interceptor's context manager, which is entered for each event."""

    def intercepted(given: Any, *more: Any) -> Any:
        with ExitStack() as stack:
            for event in given if is_batch else (given,):
                stack.enter_context(_build_context(manager, event, ENTER_METHOD))
            return call(given, *more)
        # A context manager has swallowed the exception.
        return None

    return intercepted


def wrap_manager_async(call: Call, manager: Call, is_batch: bool) -> Call:
    """Wrap an async handler call in an interceptor's context manager, which is entered for each event."""
    # The context manager is entered by `async with` if it can be.

    async def intercepted(given: Any, *more: Any) -> Any:
        async with AsyncExitStack() as stack:
            for event in given if is_batch else (given,):
                context = _build_context(manager, event, ENTER_METHOD, AENTER_METHOD)
                if hasattr(context, AENTER_METHOD):
                    await stack.enter_async_context(context)
                else:
                    stack.enter_context(context)
            return await call(given, *more)
        # A context manager has swallowed the exception.
        return None

    return intercepted


def _build_context(manager: Call, event: Any, *entered: str) -> Any:
    context = manager(event)
    if any(hasattr(context, name) for name in entered):
        return context
    is_other_kind = hasattr(context, AENTER_METHOD)
    fit = "an async context manager, which a sync handler cannot use" if is_other_kind else "no context manager"
    raise TypeError(
        f"the interceptor {name_of(manager)} ({place_of(manager)}) returned {type(context).__name__}, {fit}"
    )


def check_interceptor(interceptor: Any) -> None:
    """Raise RegistrationError if an object cannot be used as an interceptor."""
    # The reason is in its methods or their arguments.
    methods = methods_of(interceptor)
    if not methods:
        _check_manager(interceptor)
    elif inspect.isclass(interceptor):
        name = interceptor.__qualname__
        raise RegistrationError(f"{name} is a class: give an instance, {name}()")
    for name, method in methods.items():
        who, arguments = f"{name} of the interceptor {name_of(interceptor)}", ARGUMENT_COUNTS[name]
        if not callable(method) or not takes(method, arguments):
            raise RegistrationError(f"{who} does not take {arguments} positional arguments: {EXPECTED_FORMS}")
        if _is_generator(method):
            raise RegistrationError(f"{who} is a generator, and calling it would run nothing: drop `yield`")


def _check_manager(manager: Any) -> None:
    entered = hasattr(manager, ENTER_METHOD) or hasattr(manager, AENTER_METHOD)
    if inspect.isclass(manager) and not entered:
        raise RegistrationError(f"the class {manager.__qualname__} is not an interceptor: {EXPECTED_FORMS}")
    if entered and not inspect.isclass(manager):
        raise RegistrationError(
            f"{manager!r} is a context manager, which could be used for one event only: {EXPECTED_FORMS}"
        )
    if not callable(manager):
        raise RegistrationError(f"{manager!r} is not an interceptor: {EXPECTED_FORMS}")
    who = f"{name_of(manager)} ({place_of(manager)})"
    if _is_generator(manager):
        raise RegistrationError(f"the interceptor {who} is a generator: decorate it with contextlib.contextmanager")
    if is_async(manager) or not takes(manager, 1):
        raise RegistrationError(f"{who} is not an interceptor: {EXPECTED_FORMS}")


def _is_generator(call: Any) -> bool:
    return inspect.isgeneratorfunction(call) or inspect.isasyncgenfunction(call)
