"""The event loops in which async handlers run: a loop with a thread of its own, or the application's.

In the application's loop a worker is a guest. It ends no task but its own, and never the loop. It takes the time of the
loop in slices: in each round all walkers together have one, and then whatever else is ready there has its turn.

Who cancels all tasks of that loop ends the application, as `asyncio.run` does at its end: the walkers end with it, and
charge no event. A task that only waits, and that nobody else knows, is how they know (`_keeper`). Only a handler that
cancels its own task, which any handler may, goes on as in a loop of its own.
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
from partbox.worker.fork_safety import leave
from partbox.worker.runners import two_loops

NewLoop = Callable[[], asyncio.AbstractEventLoop]
T = TypeVar("T")

PATIENCE = 5.0  # seconds for the loop to answer
SLICE = 0.001  # seconds of each round of the application's loop, at most, for handlers that do not wait
AWAITS = RuntimeError("a process that an async handler forked cannot await anything")

told_to_end: WeakSet[asyncio.Task[Any]] = WeakSet()
_keepers: WeakKeyDictionary[asyncio.Task[Any], asyncio.Task[None]] = WeakKeyDictionary()
"""The keeper of each walker in an application's loop, which is cancelled when all tasks of that loop are."""


def must_end(task: asyncio.Task[Any] | None) -> bool:
    """True if a walker was cancelled in order to end, and not by a handler."""
    if task in told_to_end:
        return True
    keeper = None if task is None else _keepers.get(task)
    return keeper is not None and keeper.cancelling() > 0


def loops_of(library: Literal["asyncio", "uvloop"]) -> NewLoop:
    """Return the function that makes event loops of this library. SettingsError, with the remedy, if it is missing."""
    if library == "asyncio":
        return asyncio.new_event_loop
    made: NewLoop = platform.library("uvloop", "uvloop", "event_loop = uvloop needs the library uvloop").new_event_loop
    return made


class OwnThread:
    """A loop of its own in a thread of its own; it begins when something is to run in it. Any thread."""

    is_shared = False
    """Others than handlers run in the loop, too."""
    ended = False
    """Whoever the loop belongs to has ended it, or all its tasks."""

    def __init__(self, new_loop: NewLoop) -> None:
        self._new_loop = new_loop
        self._beside = asyncio._get_running_loop()  # the application's
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._stops = False

    @property
    def lives(self) -> bool:
        """True if the loop runs."""
        return self._thread is not None and self._thread.is_alive()

    def prepare(self) -> None:
        """Get ready, before the first handler."""
        two_loops.watch(self._beside)

    def call(self, callback: Callable[[], object]) -> None:
        """Call it in the loop, soon."""
        self._begun().call_soon_threadsafe(callback)

    def submit(self, function: Callable[[], Coroutine[Any, Any, T]]) -> "Future[T]":
        """Run what it returns in a task of the loop."""
        return asyncio.run_coroutine_threadsafe(function(), self._begun())

    def walk(self, walk: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Make a walker's task, in the loop."""
        return self._begun().create_task(walk)

    def until(self, began: float, turn: float) -> float:
        """When a walk of `turn` seconds that begins now ends (monotonic seconds). In the loop."""
        return began + turn

    def waits(self) -> "asyncio.Future[None] | None":
        """Return the future that a walker awaits before it walks on, if others have their turn first. In the loop."""
        return None

    def go_on(self) -> None:
        """Let the walker behind have its turn, too: none waits here. In the loop, by one that has waited."""

    def end(self, *, blocked: bool) -> None:
        """End what was made here, after the walkers; `blocked`: the loop does not answer."""
        loop, thread = self._loop, self._thread
        if blocked or loop is None or thread is None or not thread.is_alive():
            return
        self._stops = True
        loop.call_soon_threadsafe(loop.stop)
        thread.join(PATIENCE)
        loop.close()

    def disown(self) -> None:
        """In a forked process: if a handler of the loop forked it, end it when it comes back to the loop.

        The handler's coroutine cannot go on there, and others' must not: their handlers go on in the parent. Nor can
        the loop: it shares with the parent what it waits by.
        """
        if self._loop is not None and self._thread is not None and self._thread.ident == threading.get_ident():
            _leave_with(self._loop, _outermost)

    def _begun(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            with self._starting:
                if self._loop is None:
                    self._begin()
        assert self._loop is not None
        return self._loop

    def _begin(self) -> None:
        loop = self._new_loop()
        two_loops.handling.add(loop)
        two_loops.watch()  # what was imported meanwhile
        self._thread = threading.Thread(target=self._serve, args=(loop,), name="partbox-async", daemon=True)
        self._thread.start()
        self._loop = loop

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        while not self._stops and not loop.is_closed():
            with suppress(BaseException):  # of a task that a handler has made: asyncio has told whoever awaits it
                loop.run_forever()


class ApplicationLoop:
    """The application's loop, which runs now, in this thread. Handlers have the context variables that are set here.

    Its methods are those of `OwnThread`.
    """

    is_shared = True

    def __init__(self, loop: asyncio.AbstractEventLoop, all_cancelled: Callable[[], object]) -> None:
        self.loop = loop
        self._all_cancelled = all_cancelled
        self._context = copy_context()
        self._keeper: asyncio.Task[None] | None = None
        self._closed = False
        self._until = 0.0  # the end of the last slice, monotonic seconds
        self._passed = True  # the loop has made a round since that began
        self._waiting: deque[asyncio.Future[None]] = deque()
        two_loops.shared.add(loop)

    @property
    def lives(self) -> bool:
        return self.loop.is_running() and not self.ended

    @property
    def ended(self) -> bool:
        keeper = self._keeper
        return self._closed or (keeper is not None and (keeper.cancelling() > 0 or self.loop.is_closed()))

    def prepare(self) -> None:
        """Nothing to do: what the application uses, handlers may use."""

    def call(self, callback: Callable[[], object]) -> None:
        try:
            self.loop.call_soon_threadsafe(callback, context=self._context)
        except RuntimeError:  # it is closed
            self._closed = True

    def submit(self, function: Callable[[], Coroutine[Any, Any, T]]) -> "Future[T]":
        self.call(self._watch)  # what handlers get from it ends with all tasks
        coroutine = function()
        try:
            return self._context.copy().run(asyncio.run_coroutine_threadsafe, coroutine, self.loop)
        except RuntimeError:  # it is closed
            self._closed = True
            coroutine.close()
            failed = Future[T]()
            failed.set_exception(PartboxError("the application has closed the event loop that runs its handlers"))
            return failed

    def walk(self, walk: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        keeper = self._watch()
        task = self.loop.create_task(walk, name="partbox-handlers")
        _keepers[task] = keeper
        return task

    def until(self, began: float, turn: float) -> float:
        """The end of the slice that all walkers share. Past it each of them handles one event at most, of a lane."""
        if self._passed and began > self._until:
            self._until = began + min(turn, SLICE)
            self._passed = False
            self.loop.call_soon(self._pass)
        return self._until

    def waits(self) -> "asyncio.Future[None] | None":
        """Walkers wait in a queue, of which the first is called when a slice may begin. It has the next one called,
        which walks if the first waits in a handler before the slice is over."""
        if not self._is_spent():
            return None
        self._waiting.append(waiting := self.loop.create_future())
        return waiting

    def go_on(self) -> None:
        self.loop.call_soon(self._call_next)

    def end(self, *, blocked: bool) -> None:
        if self._keeper is not None:
            self.call(self._keeper.cancel)

    def disown(self) -> None:
        """An application may fork, too: its child is no business of the worker's."""
        task = asyncio.current_task(self.loop)
        if task in _keepers:
            _leave_with(self.loop, lambda: task.get_coro().cr_frame)  # type: ignore[union-attr]

    def _is_spent(self) -> bool:
        return not self._passed and time.monotonic() > self._until

    def _pass(self) -> None:
        self._passed = True
        if time.monotonic() > self._until:  # else whoever was called last goes on to call
            self._call_next()

    def _call_next(self) -> None:
        while self._waiting and not self._is_spent():
            waiting = self._waiting.popleft()
            if not waiting.done():  # by a handler that cancels all tasks
                waiting.set_result(None)
                return

    def _watch(self) -> asyncio.Task[None]:
        if self._keeper is None:
            self._keeper = self.loop.create_task(self._keep(), name="partbox-keeper")
        return self._keeper

    async def _keep(self) -> None:
        with suppress(asyncio.CancelledError):
            await self.loop.create_future()
        self._all_cancelled()


def _leave_with(loop: asyncio.AbstractEventLoop, outermost: Callable[[], FrameType]) -> None:
    """End this process when it comes back to this loop; `outermost`: the frame that the loop has called.

    What uvloop has in hand is out of reach, and cannot be taken from it as from a loop in Python: there the process
    ends when that frame ends or waits.
    """
    ready = getattr(loop, "_ready", None)  # of every loop of asyncio's own
    if ready is not None:
        ready.clear()
        loop.call_soon(leave, AWAITS)
        return
    last = outermost()

    def watch(frame: FrameType, what: str, _: object) -> None:
        if what == "return" and frame is last:
            leave(AWAITS)

    sys.setprofile(watch)


def _outermost() -> FrameType:
    """The frame that the event loop of this thread has called, and that comes back to it."""
    last = frame = sys._getframe()
    while frame.f_back is not None and frame.f_code is not OwnThread._serve.__code__:
        last, frame = frame, frame.f_back
    return last
