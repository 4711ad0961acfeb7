"""The event loop of `async def` handlers: one in a thread of its own, or the application's (`loop_hosts`).

A handler runs in the task that walks its lane, and may do with it what it likes: cancel the task, or raise SystemExit.
In a loop of its own it may do so with all of it: cancel all tasks, stop the loop, end one of its own by SystemExit.
Only `EventLoop.cancel` ends a lane's task, or the application that ends its loop; everything else is the error of the
handler that it meets.
"""

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

CLOSE_TIMEOUT = 2.0  # seconds for what a handler has open to be closed


@dataclass(slots=True, eq=False)
class Suspended:
    """A coroutine that has run up to its first wait, what it waits for, and the context that it runs in, which whoever
    began it adds."""

    coroutine: Any
    waiting: Any
    context: Context | None = None


def run_in_context(context: Context, function: Callable[..., object], *given: Any) -> object:
    """Run it in this context; so do the further steps of an async handler that it begins."""
    result = context.run(function, *given)
    if type(result) is Suspended:
        result.context = context
    return result


def begin_handler(handler: Callable[..., Any], *given: Any) -> object:
    """Run an async handler up to its first wait, in the task that walks its lane; `Suspended` if there is one.

    Else what it returned or raised: most that never wait end here, without a turn of the loop.
    """
    try:
        coroutine = handler(*given)
        if not isinstance(coroutine, CoroutineType):
            coroutine = _as_coroutine(coroutine)
        waiting = coroutine.send(None)
    except StopIteration as stop:
        task = current_run.task
        if not task.cancelling():
            return stop.value
        coroutine = _return_uncancelled(task, stop.value)
        waiting = coroutine.send(None)
    except BaseException as error:  # also SystemExit: a handler does not end the loop
        return pool_guard.add_remedy(error) if type(error) is RuntimeError else error
    return Suspended(coroutine, waiting)


async def _as_coroutine(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


async def _return_uncancelled(task: asyncio.Task[Any], result: object) -> object:
    await _uncancel(task)
    return result


@coroutine
def _run_rest(suspended: Suspended) -> Generator[Any, Any, Any]:
    """Wait for what the coroutine waits for, and run the rest of it."""
    assert suspended.context is not None
    coroutine, waiting, run = suspended.coroutine, suspended.waiting, suspended.context.run
    proceed = partial(coroutine.send, None)
    while True:
        try:
            yield waiting
        except BaseException as error:
            step = partial(coroutine.throw, error.with_traceback(None))  # our own frames say nothing
        else:
            step = proceed
        try:
            waiting = run(step)  # in the event's own context: the task is that of many events
        except StopIteration as stop:
            return stop.value


async def _run_rest_within(timeout: float, suspended: Suspended) -> object:  # noqa: ASYNC109  it bounds the handler
    """Run the rest of the handler. After `timeout` seconds it is cancelled, and a TimeoutError is returned."""
    limit = asyncio.timeout(timeout)
    try:
        async with limit:
            return await _run_rest(suspended)
    except TimeoutError as error:
        if not limit.expired() or must_end(asyncio.current_task()):
            raise
        late = TimeoutError(f"the handler ran longer than its timeout of {timeout:g} s")
        return late.with_traceback(_cancel_traceback(error))


class _CurrentRun(threading.local):
    task: Any = None  # that walks a lane in the event loop of this thread


current_run = _CurrentRun()
"""Set before each handler begins: to ask asyncio costs as much as all else of an event."""


class EventLoop:
    """Runs coroutines, in the loop of a host; errors of handlers come back as values."""

    def __init__(self, new_loop: NewLoop = asyncio.new_event_loop) -> None:
        self._host: ThreadLoop | ApplicationLoop = ThreadLoop(new_loop)
        self._tasks: set[asyncio.Task[None]] = set()
        self._blocked = False  # by a handler that does not end

    def adopt(self, loop: asyncio.AbstractEventLoop, ended: Callable[[], object]) -> None:
        """Run in this loop, which is the application's and the caller's, and not in one of its own.

        `ended` is called if the application cancels all tasks there, as it does before it ends the loop.
        """
        self._host = ApplicationLoop(loop, ended)

    @property
    def application_loop(self) -> asyncio.AbstractEventLoop | None:
        """The application's loop that runs the coroutines, if it is one."""
        return self._host.loop if isinstance(self._host, ApplicationLoop) else None

    @property
    def ended(self) -> bool:
        """True if the application has ended its loop, or cancelled all tasks there: what ran never ends."""
        return self._host.ended

    def prepare(self) -> None:
        """Get ready for async handlers, before the first of them."""
        self._host.prepare()

    def start(self, run_lanes: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run what it returns, which walks lanes; from any thread."""
        self._host.call(partial(self._start_task, run_lanes))

    def submit(self, function: Callable[[], Coroutine[Any, Any, T]]) -> "Future[T]":
        """Run what it returns in a task of its own, from any other thread; to cancel the future cancels the task.

        It is no handler: `cancel` leaves it alone.
        """
        return self._host.submit(function)

    def call_soon(self, callback: Callable[[], object]) -> None:
        """Call it in the loop; from any thread."""
        self._host.call(callback)

    def slice_bounds(self, began: float, seconds: float) -> tuple[float, float]:
        """When a walk of so many seconds ends that began then (monotonic seconds), and when if its handlers wait: 0.0
        if that is the same."""
        ends = self._host.until(began, seconds)
        return ends, began + seconds if self._host.is_shared else 0.0

    async def yield_to_others(self) -> None:
        """Let others have their turn, after a walk in which no handler waited."""
        if not await self.wait_for_slice():
            await await_undisturbed(asyncio.sleep(0))

    async def wait_for_slice(self) -> bool:
        """Wait until a walk may begin; True if that was not at once."""
        waited = False
        while (waiting := self._host.next_slice()) is not None:
            waited = True
            try:
                await await_undisturbed(waiting)
            finally:
                self._host.call_next()
        return waited

    @staticmethod
    async def call(begin_call: Callable[[Any], object], given: Any, timeout: float | None) -> object:  # noqa: ASYNC109  it bounds the handler
        """Return what a handler returns or raises that `begin_call` begins; a TimeoutError when it is cancelled after
        `timeout` seconds."""
        current_run.task = task = asyncio.current_task()
        result = begin_call(given)
        return await EventLoop.run_rest(result, timeout, task) if type(result) is Suspended else result

    @staticmethod
    @coroutine
    def run_rest(suspended: Suspended, timeout: float | None, task: Any) -> Generator[Any, Any, object]:
        """Return what the rest of the handler returns or raises; a TimeoutError when it is cancelled after `timeout`
        seconds. Most handlers have none, and one coroutine less to go through each time that they wait."""
        result: object
        try:
            result = (
                yield from _run_rest(suspended) if timeout is None else _run_rest_within(timeout, suspended).__await__()
            )
        except BaseException as error:  # also SystemExit: a handler does not end the loop
            if task is None or (isinstance(error, GeneratorExit) and _is_discarded(task)):
                raise
            if must_end(task):  # whatever the handler makes of it: a stop is no failure of it
                raise asyncio.CancelledError from error
            result = pool_guard.add_remedy(error) if type(error) is RuntimeError else error
        if task is not None and task.cancelling():
            yield from _uncancel(task).__await__()
        return result

    def cancel(self, patience: float = 0.0) -> bool:
        """Wait `patience` seconds for the handlers that run, then cancel them; whether there were any left.

        True as well if the loop is blocked or does not run. One that resists is left behind.
        """
        if not self._host.is_alive:
            return self._cancel_later()
        try:
            return self._run_and_wait(partial(self._cancel_tasks, patience), ANSWER_TIMEOUT + patience)
        except TimeoutError:
            return True

    def stop(self, closing: Iterable[Callable[[], Awaitable[None]]] = ()) -> None:
        """Close these, and end the loop, whose handlers have ended; the application's goes on."""
        if self._host.is_alive and not self._blocked:
            with suppress(TimeoutError):
                self._run_and_wait(partial(_close_all, closing), ANSWER_TIMEOUT)
        self._host.end(blocked=self._blocked)

    def _run_and_wait(self, function: Callable[[], Coroutine[Any, Any, T]], patience: float) -> T:
        """Run it, also if a handler cancels all tasks; TimeoutError if something blocks the loop, or it has ended."""
        until = time.monotonic() + patience
        while not self._host.ended:
            with suppress(CancelledError):
                try:
                    return self.submit(function).result(until - time.monotonic())
                except TimeoutError:
                    self._blocked = True
                    raise
        raise TimeoutError

    def _cancel_later(self) -> bool:
        """Tell what is left to end when the loop goes on, which does not run."""
        for task in (tasks := list(self._tasks)):
            ending_tasks.add(task)
            self._host.call(task.cancel)
        return bool(tasks)

    def disown(self) -> None:
        """In a forked process: if a handler in the loop forked it, end when it comes back to the loop."""
        self._host.disown()

    def _start_task(self, run_lanes: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if self._host.ended:
            return
        task = self._host.run_lanes(run_lanes())
        self._tasks.add(task)
        task.add_done_callback(lambda task: self._task_done(task, run_lanes))

    def _task_done(self, task: asyncio.Task[None], run_lanes: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # a Ctrl-C, which the loop has raised already
        elif not must_end(task):  # by a handler that cancels all, before it had begun
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
        with suppress(Exception):  # it ends with the process
            async with asyncio.timeout(CLOSE_TIMEOUT):
                await close()


async def await_undisturbed(wait: Awaitable[Any]) -> None:
    """Wait for it, or until some handler cancels the task, as all of the loop perhaps: nothing comes of that."""
    try:
        await wait
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or must_end(task):
            raise
        await _uncancel(task)


async def _uncancel(task: asyncio.Task[Any]) -> None:
    """A cancelling that the handler asked for ends with it: the next handler is not to meet it."""
    if must_end(task):
        return
    while task.cancelling():
        task.uncancel()
    try:
        await asyncio.sleep(0)  # one that was not delivered yet comes here
    except asyncio.CancelledError:
        if must_end(task):
            raise


def _cancel_traceback(error: TimeoutError) -> TracebackType | None:
    """The place in the handler's code at which its time was over."""
    cause = error.__cause__ if type(error) is TimeoutError else None
    return cause.__traceback__ if type(cause) is asyncio.CancelledError else None


def _is_discarded(task: asyncio.Task[Any]) -> bool:
    """True if the coroutine of the task is thrown away, and does not run in it any more."""
    try:
        return asyncio.current_task() is not task
    except RuntimeError:
        return True
