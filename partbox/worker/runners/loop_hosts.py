"""Hosts of the event loop for async handlers: a loop in its own thread, or the loop of the application.

The worker is a guest in the application's loop: a worker cancels only its own tasks and never stops the loop. All
runner tasks together get one time slice in each round of the loop, then the other tasks have their turn."""

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
SLICE = 0.001  # seconds at most of each round of the application's loop for handlers that do not wait
FORKED_ERROR = RuntimeError("a process that an async handler forked cannot await anything")

ending_tasks: WeakSet[asyncio.Task[Any]] = WeakSet()
_loop_guards: WeakKeyDictionary[asyncio.Task[Any], asyncio.Task[None]] = WeakKeyDictionary()
"""The guard task of each runner task in an application's loop, cancelled when all tasks of that loop are cancelled."""


def must_end(task: asyncio.Task[Any] | None) -> bool:
    """Return True if the task was cancelled by the worker or the application, and not by a handler."""
    # An application that cancels all tasks of its loop is ending, as `asyncio.run` does at its end. The runner tasks
    # end too then, and charge no event. A guard task, which only waits and is unknown to others, shows that this has
    # happened (`_loop_guards`). A task that a handler cancels, which any handler can do to its own task, goes on.
    # Then the task must end. The application cancels all tasks of the event loop.
    if task in ending_tasks:
        return True
    loop_guard = None if task is None else _loop_guards.get(task)
    return loop_guard is not None and loop_guard.cancelling() > 0


def find_loop_factory(library: Literal["asyncio", "uvloop"]) -> NewLoop:
    """Return the function that creates event loops of a library. Raise SettingsError if it is missing."""
    # The error names the remedy.
    if library == "asyncio":
        return asyncio.new_event_loop
    factory: NewLoop = platform.library(
        "uvloop", "uvloop", "event_loop = uvloop needs the library uvloop"
    ).new_event_loop
    return factory


class ThreadLoop:
    """An event loop for async handlers in a thread of its own, which starts with the first call. Any thread may call
    its methods."""

    is_shared = False
    """True if the loop also runs tasks other than handlers."""
    has_ended = False
    """True if the owner of the loop has ended the loop, or cancelled all of its tasks."""

    def __init__(self, new_loop: NewLoop) -> None:
        self._new_loop = new_loop
        self._other_loop = asyncio._get_running_loop()  # the application's
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._start_lock = threading.Lock()
        self._is_stopping = False

    @property
    def is_alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def guard_pools(self) -> None:
        """Make async connection pools refuse use from both this event loop and another loop."""
        # Call this before the first handler runs.
        pool_guard.guard_pools(self._other_loop)

    def call_soon(self, callback: Callable[[], object]) -> None:
        """Schedule a callback to run in this event loop. Any thread may call this."""
        self._ensure_loop().call_soon_threadsafe(callback)

    def submit(self, function: Callable[[], Coroutine[Any, Any, T]]) -> "Future[T]":
        """Run a coroutine in a new task of this event loop. Return a future on which other threads can wait."""
        return asyncio.run_coroutine_threadsafe(function(), self._ensure_loop())

    def run_lanes(self, run_lanes: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Create the asyncio task that runs events in this event loop."""
        # `run_lanes` is the coroutine of a runner. Called in the event loop.
        return self._ensure_loop().create_task(run_lanes)

    def find_slice_end(self, began: float, seconds: float) -> float:
        """Return the end of a time slice of `seconds` that begins at `began`, in monotonic seconds."""
        # Called in the event loop by a runner.
        return began + seconds

    def request_slice(self) -> "asyncio.Future[None] | None":
        """Return the future to await before the next time slice, or None if the slice may begin at once."""
        # Called in the event loop by a runner.
        return None

    def wake_next(self) -> None:
        """Wake the next task that waits for a time slice. Called in the event loop by a runner that has waited."""

    def end_loop(self, *, blocked: bool) -> None:
        """Stop the event loop and end its thread, after all its handlers have ended."""
        # Nothing is done if the loop is `blocked` and does not answer.
        loop, thread = self._loop, self._thread
        if blocked or loop is None or thread is None or not thread.is_alive():
            return
        self._is_stopping = True
        loop.call_soon_threadsafe(loop.stop)
        thread.join(ANSWER_TIMEOUT)
        loop.close()

    def disown(self) -> None:
        """Make a forked child process end once the handler that forked it returns to the event loop."""
        # Called in the fork. The handler's coroutine cannot go on there. Other handlers must not, because they go on in
        # the parent. The loop cannot either, because it shares its selector with the parent.
        if self._loop is not None and self._thread is not None and self._thread.ident == threading.get_ident():
            _exit_with_loop(self._loop, _find_outermost_frame)

    def _ensure_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            # Several runners may need the loop at once, and only one starts it.
            with self._start_lock:
                if self._loop is None:
                    self._start_loop()
        assert self._loop is not None
        return self._loop

    def _start_loop(self) -> None:
        loop = self._new_loop()
        pool_guard.handler_loops.add(loop)
        # Libraries may have been imported since `guard_pools`.
        pool_guard.guard_pools()
        self._thread = threading.Thread(target=self._serve, args=(loop,), name="partbox-async", daemon=True)
        self._thread.start()
        self._loop = loop

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        while not self._is_stopping and not loop.is_closed():
            # An error of a task that a handler has created. Asyncio has reported it to the task that awaits it.
            with suppress(BaseException):
                loop.run_forever()


class ApplicationLoop:
    """The event loop of the application, in which async handlers run beside the application's own tasks."""

    # It has the methods of `ThreadLoop`. It runs in the thread that creates this object. Coroutines that are submitted
    # see the context variables of that moment. Each handler has a context of its own (`Endpoint.set_context`).

    is_shared = True

    def __init__(self, loop: asyncio.AbstractEventLoop, on_all_cancelled: Callable[[], object]) -> None:
        self.loop = loop
        self._on_all_cancelled = on_all_cancelled
        self._context = copy_context()
        self._loop_guard: asyncio.Task[None] | None = None
        self._is_closed = False
        self._slice_end = 0.0  # the end of the last slice, monotonic seconds
        self._has_round_passed = True  # the loop has made a round since the slice began
        self._waiting: deque[asyncio.Future[None]] = deque()
        pool_guard.shared_loops.add(loop)

    @property
    def is_alive(self) -> bool:
        return self.loop.is_running() and not self.has_ended

    @property
    def has_ended(self) -> bool:
        loop_guard = self._loop_guard
        return self._is_closed or (loop_guard is not None and (loop_guard.cancelling() > 0 or self.loop.is_closed()))

    def guard_pools(self) -> None:
        """Leave the application's connection pools as they are, because handlers in its event loop may share them."""

    def call_soon(self, callback: Callable[[], object]) -> None:
        try:
            self.loop.call_soon_threadsafe(callback)
        except RuntimeError:
            # The loop is closed.
            self._is_closed = True

    def submit(self, function: Callable[[], Coroutine[Any, Any, T]]) -> "Future[T]":
        # The guard shows when all tasks of the loop are cancelled, which ends this task (the lifespan) too.
        self.call_soon(self._start_guard)
        coroutine = function()
        try:
            return self._context.copy().run(asyncio.run_coroutine_threadsafe, coroutine, self.loop)
        except RuntimeError:
            # The loop is closed.
            self._is_closed = True
            coroutine.close()
            failed = Future[T]()
            failed.set_exception(PartboxError("the application has closed the event loop that runs its handlers"))
            return failed

    def run_lanes(self, run_lanes: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        loop_guard = self._start_guard()
        task = self.loop.create_task(run_lanes, name="partbox-handlers")
        _loop_guards[task] = loop_guard
        return task

    def find_slice_end(self, began: float, seconds: float) -> float:
        """Return the end of the time slice that all tasks with handlers share, in monotonic seconds."""
        # After it, each runner handles at most one more event of a lane.
        if self._has_round_passed and began > self._slice_end:
            self._slice_end = began + min(seconds, SLICE)
            self._has_round_passed = False
            self.loop.call_soon(self._note_round)
        return self._slice_end

    def request_slice(self) -> "asyncio.Future[None] | None":
        # Waiting runners are queued. The first runner is woken when a slice may begin. It wakes the next, which runs if
        # a handler of the first runner waits before the slice is over.
        if not self._is_slice_over():
            return None
        self._waiting.append(waiting := self.loop.create_future())
        return waiting

    def wake_next(self) -> None:
        self.loop.call_soon(self._wake_next)

    def end_loop(self, *, blocked: bool) -> None:
        if self._loop_guard is not None:
            self.call_soon(self._loop_guard.cancel)

    def disown(self) -> None:
        """End a forked child process once the async handler that forked it returns to the event loop."""
        # A process that the application's own tasks forked goes on. Python 3.15 forgets the current task in a fork, so
        # the task that runs is found by its frame.
        runners = {task.get_coro().cr_frame for task in _loop_guards if task.get_loop() is self.loop}  # type: ignore[union-attr]
        frame: FrameType | None = sys._getframe()
        while frame is not None and frame not in runners:
            frame = frame.f_back
        if frame is not None:
            _exit_with_loop(self.loop, lambda: frame)

    def _is_slice_over(self) -> bool:
        return not self._has_round_passed and time.monotonic() > self._slice_end

    def _note_round(self) -> None:
        self._has_round_passed = True
        # Otherwise the runner that was woken last wakes the next one.
        if time.monotonic() > self._slice_end:
            self._wake_next()

    def _wake_next(self) -> None:
        while self._waiting and not self._is_slice_over():
            waiting = self._waiting.popleft()
            # A handler that cancels all tasks has cancelled this wait.
            if not waiting.done():
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
    """End this forked child process when its async handler returns to the event loop."""
    # All loops of asyncio itself have it.
    # `outermost_frame` returns the frame that the loop called. The ready queue of a loop in Python can be cleared.
    # uvloop's cannot, so with uvloop the process ends when that frame returns or waits.
    ready = getattr(loop, "_ready", None)
    if ready is not None:
        ready.clear()
        loop.call_soon(exit_forked, FORKED_ERROR)
        return
    last = outermost_frame()

    def watch(frame: FrameType, what: str, _: object) -> None:
        if what == "return" and frame is last:
            exit_forked(FORKED_ERROR)

    sys.setprofile(watch)


def _find_outermost_frame() -> FrameType:
    # This is the stack frame that the event loop of this thread has called, and that will return to the loop.
    last = frame = sys._getframe()
    while frame.f_back is not None and frame.f_code is not ThreadLoop._serve.__code__:
        last, frame = frame, frame.f_back
    return last
