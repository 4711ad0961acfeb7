"""Enter the lifespan of a process before its first handler, and leave it after its last.

An async lifespan runs in one task of the handlers' loop, a sync lifespan in one thread. So an object that is bound to
the task or thread that opened it (a task group, a connection of sqlite3) is closed there too."""

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

WAIT_LOG_INTERVAL = 10.0  # seconds between two log lines about a lifespan that has not yielded
MIN_LEAVE_TIME = 1.0  # seconds to leave it, even if handlers have used up the time of a stop
ANSWER_TIMEOUT = 1.0  # seconds for a loop to begin a call, and for a cancelled lifespan to end


class ProcessLifespan:
    """The runner of the application's startup and shutdown code in one worker process.

    The code is the lifespan, a generator that yields between its two parts. `state` receives the yielded value; `error`
    is the error that leaving the lifespan raised."""

    def __init__(self, lifespan: Lifespan | None, loop: EventLoop, state: ProcessState) -> None:
        self._lifespan = lifespan
        self._loop = loop
        self._state = state
        self._running_lifespan: _RunningLifespan | None = None
        self._is_given_up = False
        self.error: BaseException | None = None

    @property
    def exists(self) -> bool:
        return self._lifespan is not None

    def enter(self) -> None:
        """Run the application's startup code, before the first handler. Raise its error if it fails."""
        # The code is the lifespan up to its yield. After an error nothing of it is left running.
        if self._lifespan is None:
            return
        call: Callable[[], Any] = self._lifespan.call
        self._running_lifespan = running = (_TaskLifespan if self._lifespan.is_async else _ThreadLifespan)(
            call, self._loop
        )
        if self._is_given_up:
            running.give_up()
        try:
            self._state.value = running.enter(self._log_waiting)
        except BaseException:
            self._running_lifespan = None
            self._loop.stop()
            raise

    def give_up(self) -> None:
        """Cancel the application's asynchronous lifespan (its startup code), which makes `enter` return."""
        # Another thread than that of `enter` calls this, while the lifespan is still entered.
        self._is_given_up = True
        if self._running_lifespan is not None:
            self._running_lifespan.give_up()

    def leave(self, timeout: float) -> None:
        """Run the application's shutdown code within `timeout` seconds, but at least a second."""
        # The code is the lifespan after its yield. After the timeout an async lifespan is cancelled, and a sync
        # lifespan is left behind with its thread.
        running, self._running_lifespan = self._running_lifespan, None
        if running is None or self._lifespan is None:
            return
        try:
            in_time = running.leave(max(timeout, MIN_LEAVE_TIME))
        except BaseException as error:
            self.error = error
            return
        if not in_time:
            text = "the lifespan %s takes longer to end than a stop may take, and is given up"
            log_event(log, "lifespan_overdue", text, self._lifespan.label)

    def log_error(self, error: BaseException, consequence: str) -> None:
        """Log an error of the application's startup or shutdown code in one line."""
        # The line has the line number of the lifespan function that failed, and the consequence.
        assert self._lifespan is not None
        label, line = self._lifespan.label, self._line_of(error)
        text = "the lifespan %s failed in line %d, %s: %s: %s"
        log_event(log, "lifespan_failed", text, label, line, consequence, type(error).__name__, error)

    def _log_waiting(self, seconds: float, line: int | None) -> None:
        assert self._lifespan is not None
        where = "" if line is None else f", and is in line {line}"
        text = "the lifespan %s has not yielded for %.0f s%s: nothing is delivered by this process until it does"
        log_event(log, "lifespan_waits", text, self._lifespan.label, seconds, where, seconds=round(seconds, 1))

    def _line_of(self, error: BaseException) -> int:
        # The result is the number of the line in the lifespan function at which the error was raised.
        # If none of its lines raised the error, it is the function's first line.
        assert self._lifespan is not None
        code, trace = innermost(self._lifespan.call).__code__, error.__traceback__
        while trace is not None and trace.tb_frame.f_code is not code:
            trace = trace.tb_next
        return code.co_firstlineno if trace is None else trace.tb_lineno


class _RunningLifespan:
    def __init__(self, call: Callable[[], Any], loop: EventLoop) -> None:
        self._call = call
        self._loop = loop
        self._generator: Any = None
        self._entered_future: Future[Any] = Future()
        self._left_future: Future[None] = Future()

    def enter(self, report: Callable[[float, int | None], None]) -> Any:
        """Run the application's startup code, up to its yield. Return the yielded value or raise the error."""
        # The code is the first part of the lifespan.
        # Meanwhile `report` is called now and then, with the seconds so far and the current line.
        raise NotImplementedError

    def give_up(self) -> None:
        """Cancel the application's startup code if it is async. Sync code goes on, because it cannot be cancelled."""

    def leave(self, timeout: float) -> bool:
        """Run the application's shutdown code, and raise its error. Return False if the code takes over `timeout`
        seconds."""
        # The code is the lifespan after its yield.
        raise NotImplementedError

    def _wait_for_entry(self, entry: "Future[Any]", report: Callable[[float, int | None], None]) -> Any:
        began = time.monotonic()
        while True:
            try:
                return entry.result(WAIT_LOG_INTERVAL)
            except TimeoutError:
                if entry.done():
                    raise
                report(time.monotonic() - began, self._find_current_line())

    def _find_current_line(self) -> int | None:
        frame = getattr(self._generator, "gi_frame", None) or getattr(self._generator, "ag_frame", None)
        return None if frame is None else int(frame.f_lineno)

    def _set_error(self, error: BaseException) -> None:
        (self._left_future if self._entered_future.done() else self._entered_future).set_exception(error)

    def _check_left(self) -> bool:
        if self._left_future.done():
            self._left_future.result()
        return self._left_future.done()


class _ThreadLifespan(_RunningLifespan):
    def enter(self, report: Callable[[float, int | None], None]) -> Any:
        self._leave_requested = threading.Event()
        try:
            threading.Thread(target=self._run_lifespan, name="partbox-lifespan", daemon=True).start()
            return self._wait_for_entry(self._entered_future, report)
        except BaseException:
            # Ctrl-C too: everything that the lifespan still opens is closed at once.
            self._leave_requested.set()
            raise

    def leave(self, timeout: float) -> bool:
        self._leave_requested.set()
        wait([self._left_future], timeout)
        return self._check_left()

    def _run_lifespan(self) -> None:
        try:
            manager = contextmanager(self._call)()
            self._generator = manager.gen
            with manager as state:
                self._entered_future.set_result(state)
                self._leave_requested.wait()
        except BaseException as error:
            self._set_error(error)
        else:
            self._left_future.set_result(None)


class _TaskLifespan(_RunningLifespan):
    """An async lifespan, which runs in one task of the event loop that also runs the handlers."""

    _entry: Future[None] | None = None
    _is_given_up = False

    def enter(self, report: Callable[[float, int | None], None]) -> Any:
        self._entry = self._loop.submit(self._enter)
        if self._is_given_up:
            self._entry.cancel()
        try:
            self._wait_for_entry(self._entry, report)
        except CancelledError:
            # The lifespan may need a moment to close its resources.
            wait([self._entered_future], ANSWER_TIMEOUT)
            if self._entered_future.done() and self._entered_future.exception() is None:
                self.leave(ANSWER_TIMEOUT)
            raise
        return self._entered_future.result()

    def give_up(self) -> None:
        self._is_given_up = True
        if self._entry is not None:
            self._entry.cancel()

    def leave(self, timeout: float) -> bool:
        # The lifespan ended together with the application's loop.
        if self._left_future.done():
            return self._check_left()
        began = threading.Event()
        left = self._loop.submit(partial(self._leave, began, timeout))
        # A handler blocks the loop.
        if not began.wait(ANSWER_TIMEOUT):
            return False
        # `_leave` takes less than that, unless the lifespan blocks the loop.
        wait([left], timeout + 2 * ANSWER_TIMEOUT)
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
                self._entered_future.set_result(state)
                self._entry_ended.set()
                await self._wait_until_left()
        except BaseException as error:
            if self._entered_future.done() and isinstance(error, asyncio.CancelledError):
                self._left_future.set_result(None)
            else:
                self._set_error(error)
        else:
            self._left_future.set_result(None)
        self._entry_ended.set()

    async def _wait_until_left(self) -> None:
        # The lifespan waits at its yield until the worker asks to leave it. Only a cancellation of all tasks of the
        # application's event loop ends the wait earlier.
        while not self._leave_requested.is_set():
            waiting = self._leave_requested.wait()
            await (await_undisturbed(waiting) if self._loop.application_loop is None else waiting)
