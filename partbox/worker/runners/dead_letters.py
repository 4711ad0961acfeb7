"""Call the dead-letter hook and the target of `--dead-to` for each dead event, at least once.

The row of a dead event stays, and keeps a due time until all targets have returned. So they are called again after a
crash or an error. A thread of its own makes one call at a time, which may take as long as the handler of the event."""

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from contextvars import Context as Variables
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import Any, NamedTuple

from partbox.callables import is_async, name_of, place_of, takes
from partbox.db.delivery.traffic import DEAD_LETTERS
from partbox.handlers import Handlers
from partbox.observe import Answer
from partbox.observe.logs.log_event import log_event
from partbox.protocol.outage import DEFAULT_ERRORS, is_outage
from partbox.sinks.dead import build_dead_sender
from partbox.text.printing import text_of
from partbox.text.secrets import mask_url
from partbox.worker.context import Context
from partbox.worker.engine.dead_letters import DeadLetter
from partbox.worker.fork_safety import exit_forked
from partbox.worker.reports.process_notes import TrafficObserver
from partbox.worker.runners.event_loop import EventLoop

log = logging.getLogger("partbox.worker")

DEFAULT_TIMEOUT = 30.0  # seconds, for handlers without a timeout
SLOW = 3.0  # seconds until a call is logged as slow
CANCEL_GRACE = 5.0  # seconds that an async hook may take to end after cancellation
MAX_ABANDONED = 8  # calls that were given up and have not returned


class HookTarget(NamedTuple):
    """A function that the worker calls with each dead event (an event that is not tried again), and the name of that
    function in logs and metrics."""

    name: str
    call: Callable[..., Any]


@dataclass(eq=False)
class _HookCall:
    """One call of a hook for one dead event. `is_ended` is True once the call has returned or was given up."""

    dead_letter: DeadLetter
    target: HookTarget
    timeout: float
    thread: threading.Thread
    started_at: float
    future: "Future[BaseException | None] | None" = None  # of an async hook
    is_logged: bool = False
    is_ended: bool = False

    @property
    def sink_name(self) -> str:
        return DEAD_LETTERS + self.target.name


def list_hook_targets(handlers: Handlers, dead_to: str | None) -> list[HookTarget]:
    """Return the functions to call with each dead event, in call order."""
    # The target of `--dead-to` comes first and the application's hook last, because the hook may fail forever.
    targets = [] if dead_to is None else [HookTarget(f"--dead-to {mask_url(dead_to)}", build_dead_sender(dead_to))]
    if (hook := handlers.dead_letter_hook) is not None:
        targets.append(HookTarget(f"{name_of(hook)} ({place_of(hook)})", hook))
    return targets


class DeadLetters:
    """The part of a worker process that calls dead-letter hooks with dead events. One thread of the process calls the
    hooks. The poller's thread watches for calls that take too long."""

    def __init__(
        self, context: Context, targets: Sequence[HookTarget], loop: EventLoop, traffic: TrafficObserver
    ) -> None:
        self._engine = context.engine
        self._dead_letters = context.engine.dead_letters
        self._routes = context.routes
        self._signals = context.signals
        self._targets = targets
        self._loop = loop
        self._traffic = traffic
        self._wakeups = SimpleQueue[None]()
        self._end_lock = threading.Lock()
        self._current_call: _HookCall | None = None
        self._thread: threading.Thread | None = None
        self._abandoned_threads: set[threading.Thread] = set()
        self._is_stopped = False
        self._context_vars = Variables()

    @property
    def is_stuck(self) -> bool:
        """True if too many dead-letter hooks hang, so that no further hook thread is started."""
        # The limit is `MAX_ABANDONED` calls that were given up and have not returned.
        return len(self._abandoned_threads) >= MAX_ABANDONED

    def start(self) -> None:
        """Start to call the dead-letter hooks for dead events."""
        # The hooks see the context variables of the caller of `start`.
        self._context_vars = copy_context()
        self._engine.wakes.wake_dead_letters = self._wake

    def run_once(self, *, pauses: bool = True) -> bool:
        """Call the dead-letter hooks for the next dead event. Return False if no dead event waits."""
        # With `pauses`, a failure also delays the other dead events.
        dead_letter = self._dead_letters.take(time.monotonic())
        if dead_letter is None:
            return False
        call, failed = self._notify(dead_letter)
        if failed is None:
            self._dead_letters.note_delivered(dead_letter)
        else:
            self._note_failure(call, failed, pauses=pauses)
        return True

    def check_overdue(self) -> None:
        """Log a slow call of a dead-letter hook, and give the call up after its timeout."""
        # The call has failed then: an async hook is cancelled, a sync hook is abandoned with its thread, and a new
        # thread makes the next call. Once `MAX_ABANDONED` calls are abandoned, a worker process ends and is replaced.
        # An application makes no further call until one of them returns.
        # The poller's thread calls this.
        call = self._current_call
        if call is None or call.is_ended:
            return
        now = time.monotonic()
        self._dead_letters.abandon_slow(now)
        event, ran = call.dead_letter.event, now - call.started_at
        if ran > SLOW and not call.is_logged:
            call.is_logged = True
            self._traffic.note_hanging(call.sink_name, f"the call has not returned for {SLOW:g} s", call.started_at)
            text = "%s for the dead %s has been running for %.0f s: only other dead events wait for this call"
            log_event(log, "slow_dead_letter", text, call.target.name, event, ran, about=event, seconds=round(ran, 1))
        if ran > call.timeout + CANCEL_GRACE * is_async(call.target.call) and self._abandon(call):
            self._note_failure(call, _build_timeout_error(call.timeout))
            if self.is_stuck:
                text = "%d calls of %s have not returned: no dead-letter hook is called here until one of them returns"
                log_event(
                    log,
                    "dead_letters_stuck",
                    text,
                    len(self._abandoned_threads),
                    call.target.name,
                    calls=len(self._abandoned_threads),
                )

    def stop(self, until: float) -> None:
        """Stop calling dead-letter hooks. Give up the current call if it lasts beyond `until` (monotonic seconds)."""
        # The hooks are called again later for the event of a call that was given up.
        self._is_stopped = True
        self._wakeups.put(None)
        thread = self._thread
        if thread is None:
            return
        thread.join(max(0.0, until - time.monotonic()))
        call = self._current_call
        if thread.is_alive() and call is not None and self._abandon(call):
            text = "stopped while %s was running for the dead %s: the call will be repeated"
            log_event(log, "abandoned", text, call.target.name, call.dead_letter.event, about=call.dead_letter.event)
            thread.join(1.0 if call.future is not None else 0.0)

    def _wake(self) -> None:
        # This wakes or starts the thread that calls dead-letter hooks, with or without the engine's lock.
        self._wakeups.put(None)
        if self._thread is None and not self.is_stuck:
            self._thread = threading.Thread(target=self._run, name="partbox-dead-letters", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        me = threading.current_thread()
        try:
            while not self._is_stopped and me not in self._abandoned_threads:
                if not self.run_once():
                    self._wakeups.get()
        except BaseException as error:
            # Not an error of a hook, which `_notify` records.
            self._signals.report_failure(error)
        # The abandoned call has returned at last, so a thread may be started again.
        if me in self._abandoned_threads:
            self._abandoned_threads.discard(me)
            self._wake()

    def _notify(self, dead_letter: DeadLetter) -> tuple[_HookCall, BaseException | None]:
        timeout, me = (
            self._routes[dead_letter.event.route].handler.timeout or DEFAULT_TIMEOUT,
            threading.current_thread(),
        )
        for target in self._targets:
            self._current_call = call = _HookCall(dead_letter, target, timeout, me, time.monotonic())
            self._traffic.sending(call.sink_name, 1)
            try:
                failed = self._context_vars.copy().run(self._call_hook, call)
            except BaseException as error:
                # SystemExit too: a hook must not end the process.
                failed = error
            if self._engine.is_forked:
                exit_forked(failed)
            if not self._note_end(call, failed) or failed is not None:
                break
        return call, failed

    def _call_hook(self, call: _HookCall) -> BaseException | None:
        # An `async def` hook runs in the event loop of the handlers while this thread waits. The error of an async hook
        # is returned.
        # The hook also gets the text of the event's error if it takes two arguments.
        hook, event, error = call.target.call, call.dead_letter.event, call.dead_letter.error
        make = partial(hook, event, error) if takes(hook, 2) else partial(hook, event)
        if is_async(hook):
            call.future = self._loop.submit(partial(_await_hook, make, call.timeout))
            return call.future.result()
        make()
        return None

    def _note_end(self, call: _HookCall, failed: BaseException | None, *, leaves_thread: bool = False) -> bool:
        # The result is False if the end of the call is recorded already.
        # `leaves_thread`: the call was given up together with its thread.
        with self._end_lock:
            if call.is_ended:
                return False
            call.is_ended = True
            if leaves_thread:
                self._abandoned_threads.add(call.thread)
                self._thread = None
        taken = int(failed is None)
        self._traffic.answered(
            call.sink_name, Answer(1, taken, 0, 1 - taken, time.monotonic() - call.started_at, failed)
        )
        return True

    def _abandon(self, call: _HookCall) -> bool:
        # The result is False if the call has already ended.
        # The thread of the call is given up too. An async hook is cancelled.
        given_up = self._note_end(call, _build_timeout_error(call.timeout), leaves_thread=True)
        if given_up and call.future is not None:
            call.future.cancel()
        return given_up

    def _note_failure(self, call: _HookCall, error: BaseException, *, pauses: bool = True) -> None:
        dead_letter, name = call.dead_letter, call.target.name
        away = is_outage(error, DEFAULT_ERRORS.import_errors())
        delays = self._dead_letters.note_failed(dead_letter, time.monotonic(), away=away, pauses=pauses)
        if delays is not None:
            text = "%s failed for the dead %s; the next call for this event is in %.3g s, for another in %.3g s: %s"
            logged = name, dead_letter.event, delays.until_retry, delays.until_next, text_of(error)
            log_event(
                log, "dead_letter_failed", text, *logged, about=dead_letter.event, trace=error, delay=delays.until_retry
            )


async def _await_hook(make: Callable[[], Awaitable[object]], timeout: float) -> BaseException | None:  # noqa: ASYNC109  it bounds the hook
    # The hook may take at most `timeout` seconds. The result is its error or None.
    # The error is not raised, because it must not end the event loop.
    limit = asyncio.timeout(timeout)
    try:
        async with limit:
            await make()
    except (Exception, SystemExit, asyncio.CancelledError) as error:
        return _build_timeout_error(timeout) if limit.expired() else error
    return None


def _build_timeout_error(timeout: float) -> TimeoutError:
    return TimeoutError(f"the call ran longer than {timeout:g} s")
