"""One event loop in a thread of its own, for `async def` handlers; it begins with the first of them.

A handler runs in the task that walks its lane, and may do with it and the loop what it likes: cancel the task, or all
of them, stop the loop, raise SystemExit in a task of its own. Only `EventLoop.stop` ends a lane's task; everything else
is the error of the handler that it meets.
"""

import asyncio
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import CoroutineType, FrameType, TracebackType, coroutine
from typing import Any, Literal, TypeVar
from weakref import WeakSet

from partbox import platform
from partbox.worker.fork_safety import leave
from partbox.worker.runners import two_loops

NewLoop = Callable[[], asyncio.AbstractEventLoop]
T = TypeVar("T")

PATIENCE = 5.0  # seconds for the loop to answer
CLOSING = 2.0  # seconds for what a handler has open to be closed
AWAITS = RuntimeError("a process that an async handler forked cannot await anything")


def loops_of(library: Literal["asyncio", "uvloop"]) -> NewLoop:
    """Return the function that makes event loops of this library. SettingsError, with the remedy, if it is missing."""
    if library == "asyncio":
        return asyncio.new_event_loop
    made: NewLoop = platform.library("uvloop", "uvloop", "event_loop = uvloop needs the library uvloop").new_event_loop
    return made


@dataclass(slots=True, eq=False)
class Suspended:
    """A coroutine that has run up to its first wait, and what it waits for."""

    coroutine: Any
    waiting: Any


def begin(handler: Callable[[Any], Any], given: Any) -> object:
    """Run an async handler up to its first wait, in the task that walks its lane; `Suspended` if there is one.

    Else what it returned or raised: most that never wait end here, without a turn of the loop.
    """
    try:
        coroutine = handler(given)
        if not isinstance(coroutine, CoroutineType):
            coroutine = _awaited(coroutine)
        waiting = coroutine.send(None)
    except StopIteration as stop:
        task = walking.task
        if not task.cancelling():
            return stop.value
        coroutine = _uncancelled(task, stop.value)
        waiting = coroutine.send(None)
    except BaseException as error:  # also SystemExit: a handler does not end the loop
        return two_loops.explained(error) if type(error) is RuntimeError else error
    return Suspended(coroutine, waiting)


async def _awaited(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


async def _uncancelled(task: asyncio.Task[Any], result: object) -> object:
    await _uncancel(task)
    return result


@coroutine
def _rest(suspended: Suspended) -> Generator[Any, Any, Any]:
    """Wait for what the coroutine waits for, and run the rest of it."""
    coroutine, waiting = suspended.coroutine, suspended.waiting
    while True:
        try:
            yield waiting
        except BaseException as error:
            try:
                waiting = coroutine.throw(error.with_traceback(None))  # our own frames say nothing
            except StopIteration as stop:
                return stop.value
        else:
            return (yield from coroutine)


async def _within(timeout: float, suspended: Suspended) -> object:  # noqa: ASYNC109  it bounds the handler
    """Run the rest of the handler. After `timeout` seconds it is cancelled, and a TimeoutError is returned."""
    limit = asyncio.timeout(timeout)
    try:
        async with limit:
            return await _rest(suspended)
    except TimeoutError as error:
        if not limit.expired() or asyncio.current_task() in _told_to_end:
            raise
        late = TimeoutError(f"the handler ran longer than its timeout of {timeout:g} s")
        return late.with_traceback(_cancelled_at(error))


class _Walking(threading.local):
    task: Any = None  # that walks a lane in the event loop of this thread


walking = _Walking()
"""Set before each handler begins: to ask asyncio costs as much as all else of an event."""


_told_to_end: WeakSet[asyncio.Task[Any]] = WeakSet()


class EventLoop:
    """Runs coroutines; errors of handlers come back as values."""

    def __init__(self, new_loop: NewLoop = asyncio.new_event_loop) -> None:
        self._new_loop = new_loop
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._starting = threading.Lock()
        self._ended = False
        self._blocked = False  # by a handler that does not end

    def start(self, walk: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run what it returns, which walks lanes; from any thread."""
        self._running().call_soon_threadsafe(self._begin, walk)

    def submit(self, function: Callable[[], Coroutine[Any, Any, T]]) -> "Future[T]":
        """Run what it returns in a task of its own, from any other thread; to cancel the future cancels the task.

        It is no handler: `cancel` leaves it alone.
        """
        return asyncio.run_coroutine_threadsafe(function(), self._running())

    def soon(self, callback: Callable[[], object]) -> None:
        """Call it in the loop, which has been started; from any thread."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(callback)

    @staticmethod
    async def call(begun: Callable[[Any], object], given: Any, timeout: float | None) -> object:  # noqa: ASYNC109  it bounds the handler
        """Return what a handler returns or raises that `begun` begins; a TimeoutError when it is cancelled after
        `timeout` seconds."""
        walking.task = task = asyncio.current_task()
        result = begun(given)
        return await EventLoop.rest(result, timeout, task) if type(result) is Suspended else result

    @staticmethod
    @coroutine
    def rest(suspended: Suspended, timeout: float | None, task: Any) -> Generator[Any, Any, object]:
        """Return what the rest of the handler returns or raises; a TimeoutError when it is cancelled after `timeout`
        seconds. Most handlers have none, and one coroutine less to go through each time that they wait."""
        result: object
        try:
            result = yield from _rest(suspended) if timeout is None else _within(timeout, suspended).__await__()
        except BaseException as error:  # also SystemExit: a handler does not end the loop
            if task is None or (isinstance(error, GeneratorExit) and _is_closing(task)):
                raise
            if task in _told_to_end:  # whatever the handler makes of it: a stop is no failure of it
                raise asyncio.CancelledError from error
            result = two_loops.explained(error) if type(error) is RuntimeError else error
        if task is not None and task.cancelling():
            yield from _uncancel(task).__await__()
        return result

    def cancel(self, patience: float = 0.0) -> bool:
        """Wait `patience` seconds for the handlers that run, then cancel them; whether there were any left.

        True as well if one blocks the loop. One that resists is left behind.
        """
        if not self._lives:
            return False
        try:
            return self.submit(partial(self._cancel, patience)).result(PATIENCE + patience)
        except TimeoutError:  # a handler blocks the loop
            self._blocked = True
            return True

    def stop(self, closing: Iterable[Callable[[], Awaitable[None]]] = ()) -> None:
        """Close these, and end the loop, whose handlers have ended."""
        if self._blocked or not self._lives:
            return
        with suppress(TimeoutError):  # a handler blocks the loop
            self.submit(partial(_close, closing)).result(PATIENCE)
            self._end()

    def _end(self) -> None:
        assert self._loop is not None
        assert self._thread is not None
        self._ended = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)
        self._loop.close()

    def disown(self) -> None:
        """In a forked process: if it is the loop's own thread that goes on, end when it comes back to the loop.

        The handler's coroutine cannot go on there, and others' must not: their handlers go on in the parent. Nor can
        the loop: it shares with the parent what it waits by.
        """
        if self._loop is None or self._thread is None or self._thread.ident != threading.get_ident():
            return
        ready = getattr(self._loop, "_ready", None)  # of every loop of asyncio's own
        if ready is not None:
            ready.clear()
            self._loop.call_soon(leave, AWAITS)
        else:
            _leave_with(_outermost())

    @property
    def _lives(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._starting:
            if self._loop is None:
                self._loop = self._new_loop()
                two_loops.handling.add(self._loop)
                two_loops.watch()  # what was imported meanwhile
                self._thread = threading.Thread(
                    target=self._serve, args=(self._loop,), name="partbox-async", daemon=True
                )
                self._thread.start()
        return self._loop

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        while not self._ended and not loop.is_closed():
            with suppress(BaseException):  # of a task that a handler has made: asyncio has told whoever awaits it
                loop.run_forever()

    def _begin(self, walk: Callable[[], Coroutine[Any, Any, None]]) -> None:
        assert self._loop is not None
        task = self._loop.create_task(walk())
        self._tasks.add(task)
        task.add_done_callback(lambda task: self._done(task, walk))

    def _done(self, task: asyncio.Task[None], walk: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._tasks.discard(task)
        if task.cancelled() and task not in _told_to_end:  # by a handler that cancels all, before it had begun
            self._begin(walk)

    async def _cancel(self, patience: float) -> bool:
        if patience and self._tasks:
            await asyncio.wait(list(self._tasks), timeout=patience)
        tasks = list(self._tasks)
        _told_to_end.update(tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=1)
        return bool(tasks)


async def _close(closing: Iterable[Callable[[], Awaitable[None]]]) -> None:
    for close in closing:
        with suppress(Exception):  # it ends with the process
            async with asyncio.timeout(CLOSING):
                await close()


async def undisturbed(wait: Awaitable[Any]) -> None:
    """Wait for it, or until some handler cancels the task, as all of the loop perhaps: nothing comes of that."""
    try:
        await wait
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task in _told_to_end:
            raise
        await _uncancel(task)


async def _uncancel(task: asyncio.Task[Any]) -> None:
    """A cancelling that the handler asked for ends with it: the next handler is not to meet it."""
    while task.cancelling():
        task.uncancel()
    try:
        await asyncio.sleep(0)  # one that was not delivered yet comes here
    except asyncio.CancelledError:
        if task in _told_to_end:
            raise


def _cancelled_at(error: TimeoutError) -> TracebackType | None:
    """The place in the handler's code at which its time was over."""
    cause = error.__cause__ if type(error) is TimeoutError else None
    return cause.__traceback__ if type(cause) is asyncio.CancelledError else None


def _outermost() -> FrameType:
    """The frame that the event loop of this thread has called, and that comes back to it."""
    last = frame = sys._getframe()
    while frame.f_back is not None and frame.f_code is not EventLoop._serve.__code__:
        last, frame = frame, frame.f_back
    return last


def _leave_with(last: FrameType) -> None:
    """End this process when this frame of its thread ends or waits: no loop may go on after it.

    What uvloop has in hand is out of reach, and cannot be taken from it as from a loop in Python.
    """

    def watch(frame: FrameType, what: str, _: object) -> None:
        if what == "return" and frame is last:
            leave(AWAITS)

    sys.setprofile(watch)


def _is_closing(task: asyncio.Task[Any]) -> bool:
    """True if the coroutine of the task is thrown away, and does not run in it any more."""
    try:
        return asyncio.current_task() is not task
    except RuntimeError:
        return True
