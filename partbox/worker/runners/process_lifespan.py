"""Enters the lifespan of a process before its first handler, and leaves it after its last.

An async one lives in one task of the handlers' loop, a sync one in one thread: what is bound to the task or the thread
that opened it (a task group, a connection of sqlite3) is closed there.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, wait
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any

from partbox.callables import innermost
from partbox.events.delivered import ProcessState
from partbox.handlers.lifespan import Lifespan
from partbox.observe.logs.log_event import log_event
from partbox.worker.runners.event_loop import EventLoop, await_undisturbed

log = logging.getLogger("partbox.worker")

WAIT_LOG_INTERVAL = 10.0  # seconds between two lines about one that has not yielded yet
MIN_LEAVE_TIME = 1.0  # seconds to leave it, if handlers have used up the time of a stop
ANSWER_TIMEOUT = 1.0  # seconds for a loop to begin with it, and for one that is cancelled to end


class ProcessLifespan:
    """The lifespan of one process; `state` gets what it yields. `error`: what was raised when it was left."""

    def __init__(self, lifespan: Lifespan | None, loop: EventLoop, state: ProcessState) -> None:
        self._lifespan = lifespan
        self._loop = loop
        self._state = state
        self._running: _RunningLifespan | None = None
        self._given_up = False
        self.error: BaseException | None = None

    @property
    def exists(self) -> bool:
        return self._lifespan is not None

    def enter(self) -> None:
        """Run it up to its yield. Raises what it raises, and nothing of it is left then."""
        if self._lifespan is None:
            return
        call: Callable[[], Any] = self._lifespan.call
        self._running = running = (_TaskLifespan if self._lifespan.is_async else _ThreadLifespan)(call, self._loop)
        if self._given_up:
            running.give_up()
        try:
            self._state.value = running.enter(self._log_waiting)
        except BaseException:
            self._running = None
            self._loop.stop()
            raise

    def give_up(self) -> None:
        """Cancel an async one while it is entered, so that `enter` ends; from any other thread."""
        self._given_up = True
        if self._running is not None:
            self._running.give_up()

    def leave(self, timeout: float) -> None:
        """Run the rest of it, if it was entered, for `timeout` seconds, but at least a second: then it is cancelled, or
        left behind with its thread."""
        running, self._running = self._running, None
        if running is None or self._lifespan is None:
            return
        try:
            in_time = running.leave(max(timeout, MIN_LEAVE_TIME))
        except BaseException as error:
            self.error = error
            return
        if not in_time:
            text = "the lifespan %s takes longer to end than a stop may, and is given up"
            log_event(log, "lifespan_overdue", text, self._lifespan.label)

    def report(self, error: BaseException, consequence: str) -> None:
        """Log in one line what it has raised, and the line of its function that did."""
        assert self._lifespan is not None
        label, line = self._lifespan.label, self._line_of(error)
        text = "the lifespan %s failed in line %d, %s: %s: %s"
        log_event(log, "lifespan_failed", text, label, line, consequence, type(error).__name__, error)

    def _log_waiting(self, seconds: float, line: int | None) -> None:
        """Log that it has not yielded for so long, and the line of its function that it is in."""
        assert self._lifespan is not None
        where = "" if line is None else f", and is in line {line}"
        text = "the lifespan %s has not yielded for %.0f s%s: nothing is delivered by this process until it does"
        log_event(log, "lifespan_waits", text, self._lifespan.label, seconds, where, seconds=round(seconds, 1))

    def _line_of(self, error: BaseException) -> int:
        """The line in the function itself; its first one, if nothing was raised in it."""
        assert self._lifespan is not None
        code, trace = innermost(self._lifespan.call).__code__, error.__traceback__
        while trace is not None and trace.tb_frame.f_code is not code:
            trace = trace.tb_next
        return code.co_firstlineno if trace is None else trace.tb_lineno


class _RunningLifespan:
    """A lifespan that is entered, and left, once."""

    def __init__(self, call: Callable[[], Any], loop: EventLoop) -> None:
        self._call = call
        self._loop = loop
        self._generator: Any = None
        self._entered: Future[Any] = Future()
        self._left: Future[None] = Future()

    def enter(self, report: Callable[[float, int | None], None]) -> Any:
        """Return what it yields, or raise what it raises. While it does neither `report` from time to time for how
        long, and the line that it is in."""
        raise NotImplementedError

    def give_up(self) -> None:
        """End it while it is entered, if that can be."""

    def leave(self, timeout: float) -> bool:
        """Run the rest, and raise what it raises; False if it takes longer."""
        raise NotImplementedError

    def _wait_for(self, entry: "Future[Any]", report: Callable[[float, int | None], None]) -> Any:
        began = time.monotonic()
        while True:
            try:
                return entry.result(WAIT_LOG_INTERVAL)
            except TimeoutError:
                if entry.done():
                    raise
                report(time.monotonic() - began, self._current_line())

    def _current_line(self) -> int | None:
        """Return the line that its generator is in; None if it has not begun, or has ended."""
        frame = getattr(self._generator, "gi_frame", None) or getattr(self._generator, "ag_frame", None)
        return None if frame is None else int(frame.f_lineno)

    def _set_error(self, error: BaseException) -> None:
        (self._left if self._entered.done() else self._entered).set_exception(error)

    def _check_left(self) -> bool:
        if self._left.done():
            self._left.result()
        return self._left.done()


class _ThreadLifespan(_RunningLifespan):
    """A sync lifespan, in a thread."""

    def enter(self, report: Callable[[float, int | None], None]) -> Any:
        self._leave_requested = threading.Event()
        try:
            threading.Thread(target=self._run_lifespan, name="partbox-lifespan", daemon=True).start()
            return self._wait_for(self._entered, report)
        except BaseException:  # Ctrl-C too: what it makes by and by is closed at once
            self._leave_requested.set()
            raise

    def leave(self, timeout: float) -> bool:
        self._leave_requested.set()
        wait([self._left], timeout)
        return self._check_left()

    def _run_lifespan(self) -> None:
        try:
            manager = contextmanager(self._call)()
            self._generator = manager.gen
            with manager as state:
                self._entered.set_result(state)
                self._leave_requested.wait()
        except BaseException as error:
            self._set_error(error)
        else:
            self._left.set_result(None)


class _TaskLifespan(_RunningLifespan):
    """An async lifespan, in a task of the loop that runs the handlers."""

    _entry: Future[None] | None = None
    _given_up = False

    def enter(self, report: Callable[[float, int | None], None]) -> Any:
        self._entry = self._loop.submit(self._enter)
        if self._given_up:
            self._entry.cancel()
        try:
            self._wait_for(self._entry, report)
        except CancelledError:
            wait([self._entered], ANSWER_TIMEOUT)  # until it has closed what it has opened
            if self._entered.done() and self._entered.exception() is None:
                self.leave(ANSWER_TIMEOUT)
            raise
        return self._entered.result()

    def give_up(self) -> None:
        self._given_up = True
        if self._entry is not None:
            self._entry.cancel()

    def leave(self, timeout: float) -> bool:
        if self._left.done():  # with the loop of the application
            return self._check_left()
        began = threading.Event()
        left = self._loop.submit(partial(self._leave, began, timeout))
        if not began.wait(ANSWER_TIMEOUT):  # a handler blocks the loop
            return False
        wait([left], timeout + 2 * ANSWER_TIMEOUT)  # by itself it takes less; the lifespan may block the loop, too
        return left.done() and left.result() and self._check_left()

    async def _enter(self) -> None:
        self._entry_ended, self._leave_requested = asyncio.Event(), asyncio.Event()
        self._task = asyncio.create_task(self._run_lifespan(), name="partbox-lifespan")
        try:
            await self._entry_ended.wait()
        except asyncio.CancelledError:
            self._task.cancel()
            raise

    async def _leave(self, began: threading.Event, timeout: float) -> bool:  # noqa: ASYNC109  it bounds the lifespan
        began.set()
        self._leave_requested.set()
        await asyncio.wait([self._task], timeout=timeout)
        in_time = self._task.done()
        if not in_time:
            self._task.cancel()
            await asyncio.wait([self._task], timeout=ANSWER_TIMEOUT)
        return in_time

    async def _run_lifespan(self) -> None:
        try:
            manager = asynccontextmanager(self._call)()
            self._generator = manager.gen
            async with manager as state:
                self._entered.set_result(state)
                self._entry_ended.set()
                await self._wait_until_left()
        except BaseException as error:
            if self._entered.done() and isinstance(error, asyncio.CancelledError):
                self._left.set_result(None)
            else:
                self._set_error(error)
        else:
            self._left.set_result(None)
        self._entry_ended.set()

    async def _wait_until_left(self) -> None:
        """Wait until it is to be left, whatever a handler cancels; but who cancels all tasks of the application's loop
        ends that, and with it this."""
        while not self._leave_requested.is_set():
            waiting = self._leave_requested.wait()
            await (await_undisturbed(waiting) if self._loop.application_loop is None else waiting)
