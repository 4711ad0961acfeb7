"""The event loops in which async handlers run: a loop with a thread of its own, or the application's.

In the application's loop a worker is a guest. It ends no task but its own, and never the loop. It takes the time of the
loop in slices: in each round all walkers together have one, and then whatever else is ready there has its turn.

Who cancels all tasks of that loop ends the application, as `asyncio.run` does at its end: the walkers end with it, and
charge no event. A task that only waits, and that nobody else knows, is how they know (`_loop_guard`). Only a handler
that cancels its own task, which any handler may, goes on as in a loop of its own.
"""

import asyncio
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from contextvars import copy_context
from types import FrameType
from typing import Any, Literal, TypeVar
from weakref import WeakKeyDictionary, WeakSet

from partbox import platform
from partbox.errors import PartboxError
from partbox.worker.fork_safety import exit_forked
from partbox.worker.runners import pool_guard

NewLoop = Callable[[], asyncio.AbstractEventLoop]
T = TypeVar("T")

ANSWER_TIMEOUT = 5.0  # seconds for the loop to answer
SLICE = 0.001  # seconds of each round of the application's loop, at most, for handlers that do not wait
FORKED_ERROR = RuntimeError("a process that an async handler forked cannot await anything")

ending_tasks: WeakSet[asyncio.Task[Any]] = WeakSet()
_loop_guards: WeakKeyDictionary[asyncio.Task[Any], asyncio.Task[None]] = WeakKeyDictionary()
"""The keeper of each walker in an application's loop, which is cancelled when all tasks of that loop are."""


def must_end(task: asyncio.Task[Any] | None) -> bool:
    """True if a walker was cancelled in order to end, and not by a handler."""
    if task in ending_tasks:
        return True
    loop_guard = None if task is None else _loop_guards.get(task)
    return loop_guard is not None and loop_guard.cancelling() > 0


def loop_factory(library: Literal["asyncio", "uvloop"]) -> NewLoop:
    """Return the function that makes event loops of this library. SettingsError, with the remedy, if it is missing."""
    if library == "asyncio":
        return asyncio.new_event_loop
    factory: NewLoop = platform.library(
        "uvloop", "uvloop", "event_loop = uvloop needs the library uvloop"
    ).new_event_loop
    return factory


class ThreadLoop:
    """A loop of its own in a thread of its own; it begins when something is to run in it. Any thread."""

    is_shared = False
    """Others than handlers run in the loop, too."""
    ended = False
    """Whoever the loop belongs to has ended it, or all its tasks."""

    def __init__(self, new_loop: NewLoop) -> None:
        self._new_loop = new_loop
        self._other_loop = asyncio._get_running_loop()  # the application's
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._start_lock = threading.Lock()
        self._is_stopping = False

    @property
    def is_alive(self) -> bool:
        """True if the loop runs."""
        return self._thread is not None and self._thread.is_alive()

    def prepare(self) -> None:
        """Get ready, before the first handler."""
        pool_guard.guard_pools(self._other_loop)

    def call(self, callback: Callable[[], object]) -> None:
        """Call it in the loop, soon."""
        self._started_loop().call_soon_threadsafe(callback)

    def submit(self, function: Callable[[], Coroutine[Any, Any, T]]) -> "Future[T]":
        """Run what it returns in a task of the loop."""
        return asyncio.run_coroutine_threadsafe(function(), self._started_loop())

    def run_lanes(self, run_lanes: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Make a walker's task, in the loop."""
        return self._started_loop().create_task(run_lanes)

    def until(self, began: float, seconds: float) -> float:
        """When a walk of `seconds` seconds that begins now ends (monotonic seconds). In the loop."""
        return began + seconds

    def next_slice(self) -> "asyncio.Future[None] | None":
        """Return the future that a walker awaits before it walks on, if others have their turn first. In the loop."""
        return None

    def call_next(self) -> None:
        """Let the walker behind have its turn, too: none waits here. In the loop, by one that has waited."""

    def end(self, *, blocked: bool) -> None:
        """End what was made here, after the walkers; `blocked`: the loop does not answer."""
        loop, thread = self._loop, self._thread
        if blocked or loop is None or thread is None or not thread.is_alive():
            return
        self._is_stopping = True
        loop.call_soon_threadsafe(loop.stop)
        thread.join(ANSWER_TIMEOUT)
        loop.close()

    def disown(self) -> None:
        """In a forked process: if a handler of the loop forked it, end it when it comes back to the loop.

        The handler's coroutine cannot go on there, and others' must not: their handlers go on in the parent. Nor can
        the loop: it shares with the parent what it waits by.
        """
        if self._loop is not None and self._thread is not None and self._thread.ident == threading.get_ident():
            _exit_with_loop(self._loop, _outermost_frame)

    def _started_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            with self._start_lock:
                if self._loop is None:
                    self._start_loop()
        assert self._loop is not None
        return self._loop

    def _start_loop(self) -> None:
        loop = self._new_loop()
        pool_guard.handler_loops.add(loop)
        pool_guard.guard_pools()  # what was imported meanwhile
        self._thread = threading.Thread(target=self._serve, args=(loop,), name="partbox-async", daemon=True)
        self._thread.start()
        self._loop = loop

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        while not self._is_stopping and not loop.is_closed():
            with suppress(BaseException):  # of a task that a handler has made: asyncio has told whoever awaits it
                loop.run_forever()


class ApplicationLoop:
    """The application's loop, which runs now, in this thread. Handlers have the context variables that are set here.

    Its methods are those of `ThreadLoop`.
    """

    is_shared = True

    def __init__(self, loop: asyncio.AbstractEventLoop, on_all_cancelled: Callable[[], object]) -> None:
        self.loop = loop
        self._on_all_cancelled = on_all_cancelled
        self._context = copy_context()
        self._loop_guard: asyncio.Task[None] | None = None
        self._closed = False
        self._slice_end = 0.0  # the end of the last slice, monotonic seconds
        self._round_passed = True  # the loop has made a round since that began
        self._waiting: deque[asyncio.Future[None]] = deque()
        pool_guard.shared_loops.add(loop)

    @property
    def is_alive(self) -> bool:
        return self.loop.is_running() and not self.ended

    @property
    def ended(self) -> bool:
        loop_guard = self._loop_guard
        return self._closed or (loop_guard is not None and (loop_guard.cancelling() > 0 or self.loop.is_closed()))

    def prepare(self) -> None:
        """Nothing to do: what the application uses, handlers may use."""

    def call(self, callback: Callable[[], object]) -> None:
        try:
            self.loop.call_soon_threadsafe(callback, context=self._context)
        except RuntimeError:  # it is closed
            self._closed = True

    def submit(self, function: Callable[[], Coroutine[Any, Any, T]]) -> "Future[T]":
        self.call(self._start_guard)  # what handlers get from it ends with all tasks
        coroutine = function()
        try:
            return self._context.copy().run(asyncio.run_coroutine_threadsafe, coroutine, self.loop)
        except RuntimeError:  # it is closed
            self._closed = True
            coroutine.close()
            failed = Future[T]()
            failed.set_exception(PartboxError("the application has closed the event loop that runs its handlers"))
            return failed

    def run_lanes(self, run_lanes: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        loop_guard = self._start_guard()
        task = self.loop.create_task(run_lanes, name="partbox-handlers")
        _loop_guards[task] = loop_guard
        return task

    def until(self, began: float, seconds: float) -> float:
        """The end of the slice that all walkers share. Past it each of them handles one event at most, of a lane."""
        if self._round_passed and began > self._slice_end:
            self._slice_end = began + min(seconds, SLICE)
            self._round_passed = False
            self.loop.call_soon(self._note_round)
        return self._slice_end

    def next_slice(self) -> "asyncio.Future[None] | None":
        """Walkers wait in a queue, of which the first is called when a slice may begin. It has the next one called,
        which walks if the first waits in a handler before the slice is over."""
        if not self._is_slice_over():
            return None
        self._waiting.append(waiting := self.loop.create_future())
        return waiting

    def call_next(self) -> None:
        self.loop.call_soon(self._call_next)

    def end(self, *, blocked: bool) -> None:
        if self._loop_guard is not None:
            self.call(self._loop_guard.cancel)

    def disown(self) -> None:
        """An application may fork, too: its child is no business of the worker's."""
        task = asyncio.current_task(self.loop)
        if task in _loop_guards:
            _exit_with_loop(self.loop, lambda: task.get_coro().cr_frame)  # type: ignore[union-attr]

    def _is_slice_over(self) -> bool:
        return not self._round_passed and time.monotonic() > self._slice_end

    def _note_round(self) -> None:
        self._round_passed = True
        if time.monotonic() > self._slice_end:  # else whoever was called last goes on to call
            self._call_next()

    def _call_next(self) -> None:
        while self._waiting and not self._is_slice_over():
            waiting = self._waiting.popleft()
            if not waiting.done():  # by a handler that cancels all tasks
                waiting.set_result(None)
                return

    def _start_guard(self) -> asyncio.Task[None]:
        if self._loop_guard is None:
            self._loop_guard = self.loop.create_task(self._guard_loop(), name="partbox-keeper")
        return self._loop_guard

    async def _guard_loop(self) -> None:
        with suppress(asyncio.CancelledError):
            await self.loop.create_future()
        self._on_all_cancelled()


def _exit_with_loop(loop: asyncio.AbstractEventLoop, outermost_frame: Callable[[], FrameType]) -> None:
    """End this process when it comes back to this loop; `outermost_frame`: the frame that the loop has called.

    What uvloop has in hand is out of reach, and cannot be taken from it as from a loop in Python: there the process
    ends when that frame ends or waits.
    """
    ready = getattr(loop, "_ready", None)  # of every loop of asyncio's own
    if ready is not None:
        ready.clear()
        loop.call_soon(exit_forked, FORKED_ERROR)
        return
    last = outermost_frame()

    def watch(frame: FrameType, what: str, _: object) -> None:
        if what == "return" and frame is last:
            exit_forked(FORKED_ERROR)

    sys.setprofile(watch)


def _outermost_frame() -> FrameType:
    """The frame that the event loop of this thread has called, and that comes back to it."""
    last = frame = sys._getframe()
    while frame.f_back is not None and frame.f_code is not ThreadLoop._serve.__code__:
        last, frame = frame, frame.f_back
    return last
