"""Run `async def` handlers in an event loop, in a thread of its own or the application's (`loop_hosts`).

A handler runs in the task that runs its lane. Only `EventLoop.cancel`, or an application that ends its loop, ends that
task. Any other cancellation is an error of the handler in which it arrives."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from contextvars import Context
from dataclasses import dataclass
from functools import partial
from types import CoroutineType, TracebackType, coroutine
from typing import Any, TypeVar

from partbox.worker.runners import pool_guard
from partbox.worker.runners.loop_hosts import (
    ANSWER_TIMEOUT,
    ApplicationLoop,
    NewLoop,
    ThreadLoop,
    ending_tasks,
    must_end,
)

T = TypeVar("T")

CLOSE_TIMEOUT = 2.0  # seconds for the close of one client


@dataclass(slots=True, eq=False)
class SuspendedHandler:
    """An async handler that has run up to its first wait: its coroutine, and the future that it waits for."""

    # `context` is set by the function that ran the first step.

    coroutine: Any
    waiting: Any
    context: Context | None = None


def run_in_context(context: Context, function: Callable[..., object], *given: Any) -> object:
    """Run a function with the given context variables, and return its result."""
    # If it begins an async handler, the later steps of that handler run in this context too.
    result = context.run(function, *given)
    if type(result) is SuspendedHandler:
        result.context = context
    return result


def begin_handler(handler: Callable[..., Any], *given: Any) -> object:
    """Run an async handler until it first waits. Return the suspended handler, or the value or error if it never
    waits."""
    # The handler may cancel the task or raise SystemExit. In a loop of its own it may also cancel all tasks, stop the
    # loop, or end a task by SystemExit.
    # The handler runs in the task of its lane. Most handlers that do not wait end here, without a round of the event
    # loop.
    try:
        coroutine = handler(*given)
        if not isinstance(coroutine, CoroutineType):
            coroutine = _to_coroutine(coroutine)
        waiting = coroutine.send(None)
    except StopIteration as stop:
        task = current_run.task
        if not task.cancelling():
            return stop.value
        coroutine = _return_uncancelled(task, stop.value)
        waiting = coroutine.send(None)
    except BaseException as error:
        # SystemExit too: a handler must not end the loop.
        return pool_guard.add_remedy(error) if type(error) is RuntimeError else error
    return SuspendedHandler(coroutine, waiting)


async def _to_coroutine(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


async def _return_uncancelled(task: asyncio.Task[Any], result: object) -> object:
    await _uncancel(task)
    return result


@coroutine
def _run_rest(suspended: SuspendedHandler) -> Generator[Any, Any, Any]:
    assert suspended.context is not None
    coroutine, waiting, run = suspended.coroutine, suspended.waiting, suspended.context.run
    proceed = partial(coroutine.send, None)
    while True:
        try:
            yield waiting
        except BaseException as error:
            # The frames of partbox in the traceback say nothing.
            step = partial(coroutine.throw, error.with_traceback(None))
        else:
            step = proceed
        try:
            # In the context of the event, because the task runs many events.
            waiting = run(step)
        except StopIteration as stop:
            return stop.value


async def _run_rest_within(timeout: float, suspended: SuspendedHandler) -> object:  # noqa: ASYNC109  it bounds the handler
    # A suspended handler's coroutine runs to its end and is cancelled after `timeout` seconds. The traceback of the
    # TimeoutError then shows where the handler was.
    limit = asyncio.timeout(timeout)
    try:
        async with limit:
            return await _run_rest(suspended)
    except TimeoutError as error:
        if not limit.expired() or must_end(asyncio.current_task()):
            raise
        late = TimeoutError(f"the handler ran longer than its timeout of {timeout:g} s")
        return late.with_traceback(_find_cancel_traceback(error))


class _CurrentRun(threading.local):
    task: Any = None


current_run = _CurrentRun()
"""The task that runs a lane in the event loop of this thread.

Set before each handler begins, because `asyncio.current_task` costs as much as everything else of an event.
"""


class EventLoop:
    """The event loop in which a worker process runs its async handlers: a loop in a thread of its own, or the loop lent
    by the application. Errors of handlers are returned as values."""

    def __init__(self, new_loop: NewLoop = asyncio.new_event_loop) -> None:
        self._host: ThreadLoop | ApplicationLoop = ThreadLoop(new_loop)
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_blocked = False

    def adopt_loop(self, loop: asyncio.AbstractEventLoop, ended: Callable[[], object]) -> None:
        """Run async handlers in the application's event loop, which is also the caller's."""
        # `ended` is called if the application cancels all tasks of the loop, as it does before it ends the loop.
        self._host = ApplicationLoop(loop, ended)

    @property
    def application_loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop that the application lent for async handlers, or None for the worker's own loop."""
        return self._host.loop if isinstance(self._host, ApplicationLoop) else None

    @property
    def has_ended(self) -> bool:
        """True if the application has ended its event loop or cancelled all tasks in it."""
        # Handlers that ran at that time never end.
        return self._host.has_ended

    def guard_pools(self) -> None:
        """Make async connection pools refuse use from two event loops, if handlers run in a loop of their own."""
        # Call this before the first async handler runs.
        self._host.guard_pools()

    def start_runner(self, run_lanes: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start a task in the event loop that runs events. Any thread may call this."""
        # `run_lanes` is the coroutine function of the task.
        self._host.call_soon(partial(self._start_task, run_lanes))

    def submit(self, function: Callable[[], Coroutine[Any, Any, T]]) -> "Future[T]":
        """Run a coroutine in the event loop, and return a future on which another thread can wait."""
        # The coroutine is not a handler. Cancelling the future cancels its task, but `cancel_handlers` of the loop does
        # not.
        return self._host.submit(function)

    def call_soon(self, callback: Callable[[], object]) -> None:
        """Schedule a callback to run in the event loop of the handlers. Any thread may call this."""
        self._host.call_soon(callback)

    def compute_slice_bounds(self, began: float, seconds: float) -> tuple[float, float]:
        """Return the normal and the latest end of a time slice, in monotonic seconds."""
        # The slice of `seconds` began at `began`. The latest end applies if its handlers wait. It is 0.0 in an event
        # loop where slices are not extended.
        ends = self._host.find_slice_end(began, seconds)
        return ends, began + seconds if self._host.is_shared else 0.0

    async def yield_to_others(self) -> None:
        """Let other tasks of the event loop run, after a time slice in which no handler waited."""
        if not await self.wait_for_slice():
            await await_undisturbed(asyncio.sleep(0))

    async def wait_for_slice(self) -> bool:
        """Wait until the calling task may begin its next time slice. Return True if it had to wait."""
        waited = False
        while (waiting := self._host.request_slice()) is not None:
            waited = True
            try:
                await await_undisturbed(waiting)
            finally:
                self._host.wake_next()
        return waited

    @staticmethod
    async def run_handler(begin_call: Callable[[Any], object], given: Any, timeout: float | None) -> object:  # noqa: ASYNC109  it bounds the handler
        """Run a handler to its end. Return its value or its error, which is a TimeoutError after `timeout` seconds."""
        # `begin_call` runs its first step.
        current_run.task = task = asyncio.current_task()
        result = begin_call(given)
        return await EventLoop.run_rest(result, timeout, task) if type(result) is SuspendedHandler else result

    @staticmethod
    @coroutine
    def run_rest(suspended: SuspendedHandler, timeout: float | None, task: Any) -> Generator[Any, Any, object]:
        """Resume a waiting handler until it ends. Return its value or its error, which is a TimeoutError after
        `timeout` seconds."""
        # An error is raised only if the task must end.
        # Most handlers have no timeout, so this is a generator: each wait then goes through one coroutine less.
        result: object
        try:
            result = (
                yield from _run_rest(suspended) if timeout is None else _run_rest_within(timeout, suspended).__await__()
            )
        except BaseException as error:
            # SystemExit too: a handler must not end the loop.
            if task is None or (isinstance(error, GeneratorExit) and _is_discarded(task)):
                raise
            # A stop is not a failure of the handler, even if the handler turns the cancellation into another error.
            if must_end(task):
                raise asyncio.CancelledError from error
            result = pool_guard.add_remedy(error) if type(error) is RuntimeError else error
        if task is not None and task.cancelling():
            yield from _uncancel(task).__await__()
        return result

    def cancel_handlers(self, patience: float = 0.0) -> bool:
        """Wait `patience` seconds for async handlers to end, then cancel them. Return True if some had not ended."""
        # The result is also True if the event loop is blocked. If the loop does not run, the handlers are cancelled
        # once the loop goes on.
        # A handler that resists cancellation is left behind.
        if not self._host.is_alive:
            return self._cancel_later()
        try:
            return self._run_and_wait(partial(self._cancel_tasks, patience), ANSWER_TIMEOUT + patience)
        except TimeoutError:
            return True

    def stop(self, closing: Iterable[Callable[[], Awaitable[None]]] = ()) -> None:
        """Close the clients of handlers and end the event loop, once its handlers have ended."""
        # A loop of the application goes on.
        if self._host.is_alive and not self._is_blocked:
            with suppress(TimeoutError):
                self._run_and_wait(partial(_close_all, closing), ANSWER_TIMEOUT)
        self._host.end_loop(blocked=self._is_blocked)

    def _run_and_wait(self, function: Callable[[], Coroutine[Any, Any, T]], patience: float) -> T:
        # TimeoutError is raised if the loop is blocked.
        # A loop that has ended gives TimeoutError too. The coroutine is started again if a handler cancels all tasks.
        until = time.monotonic() + patience
        while not self._host.has_ended:
            with suppress(CancelledError):
                try:
                    return self.submit(function).result(until - time.monotonic())
                except TimeoutError:
                    # A handler does not return to the loop.
                    self._is_blocked = True
                    raise
        raise TimeoutError

    def _cancel_later(self) -> bool:
        # The event loop is stopped, so the tasks are cancelled when it goes on. The result is True if there are any.
        for task in (tasks := list(self._tasks)):
            ending_tasks.add(task)
            self._host.call_soon(task.cancel)
        return bool(tasks)

    def disown(self) -> None:
        """Make a forked child process end when the async handler that forked it returns to the event loop."""
        self._host.disown()

    def _start_task(self, run_lanes: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if self._host.has_ended:
            return
        task = self._host.run_lanes(run_lanes())
        self._tasks.add(task)
        task.add_done_callback(lambda task: self._handle_task_end(task, run_lanes))

    def _handle_task_end(self, task: asyncio.Task[None], run_lanes: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            # A Ctrl-C, which the loop has raised already. Retrieving it keeps asyncio from logging it.
            task.exception()
        elif not must_end(task):
            # A handler has cancelled all tasks before this task had begun.
            self._start_task(run_lanes)

    async def _cancel_tasks(self, patience: float) -> bool:
        if patience and self._tasks:
            await asyncio.wait(list(self._tasks), timeout=patience)
        tasks = list(self._tasks)
        ending_tasks.update(tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=1)
        return bool(tasks)


async def _close_all(closing: Iterable[Callable[[], Awaitable[None]]]) -> None:
    for close in closing:
        # A client that does not close ends with the process.
        with suppress(Exception):
            async with asyncio.timeout(CLOSE_TIMEOUT):
                await close()


async def await_undisturbed(wait: Awaitable[Any]) -> None:
    """Await `wait`, but return early if a handler cancels the current task."""
    # The handler may have cancelled all tasks of the event loop. Only a cancellation that ends the worker or the loop
    # is passed on.
    try:
        await wait
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or must_end(task):
            raise
        await _uncancel(task)


async def _uncancel(task: asyncio.Task[Any]) -> None:
    # A handler has cancelled its task. The next handler in the task must not receive the cancellation.
    if must_end(task):
        return
    while task.cancelling():
        task.uncancel()
    try:
        # A cancellation that was not delivered yet arrives here.
        await asyncio.sleep(0)
    except asyncio.CancelledError:
        if must_end(task):
            raise


def _find_cancel_traceback(error: TimeoutError) -> TracebackType | None:
    cause = error.__cause__ if type(error) is TimeoutError else None
    return cause.__traceback__ if type(cause) is asyncio.CancelledError else None


def _is_discarded(task: asyncio.Task[Any]) -> bool:
    # The task's coroutine is being thrown away (closed by the interpreter) instead of run.
    try:
        return asyncio.current_task() is not task
    except RuntimeError:
        return True
