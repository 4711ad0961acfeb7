"""Tells the dead-letter hook, and the target of `--dead-to`, of each dead event, at least once.

A dead row that is owed to them has a due time; only when they have returned is it taken away. So they are called again
after a crash, and after an error of their own. The row stays, whatever they do.

They have a thread of their own, which makes one call at a time; an `async def` hook runs in the event loop of the
handlers, and the thread waits for it. A call has the time that the event's handler has, and has failed when that is
over. An async one is cancelled then; a sync one cannot be, and is left behind with its thread, beside which the next
call has a new one. At most `MOST_LEFT` are left so: then a worker process ends and is replaced, and in an application
no call is made until one of them returns.
"""

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
from partbox.protocol.outage import USUAL, says_away
from partbox.sinks.dead import letterbox_of
from partbox.text.printing import text_of
from partbox.text.secrets import masked_url
from partbox.worker.context import Context
from partbox.worker.engine.letters import Letter
from partbox.worker.fork_safety import leave
from partbox.worker.reports.process_notes import TrafficObserver
from partbox.worker.runners.event_loop import EventLoop

log = logging.getLogger("partbox.worker")

TIMEOUT = 30.0  # seconds, where the event's handler has none
SLOW = 3.0  # seconds after which a call that runs is logged
RESISTS = 5.0  # seconds that an async hook may take to end once it is cancelled
MOST_LEFT = 8  # calls that were left behind and have not returned


class Recipient(NamedTuple):
    """One that is told of dead events: the hook, or that of `--dead-to`; `who` names it."""

    who: str
    call: Callable[..., Any]


@dataclass(eq=False)
class _Call:
    """A call of one recipient by a thread; `ended`: it has returned, or was given up."""

    letter: Letter
    recipient: Recipient
    timeout: float
    thread: threading.Thread
    began: float
    future: "Future[BaseException | None] | None" = None  # of an async one
    said: bool = False
    ended: bool = False

    @property
    def sink(self) -> str:
        """The name of the recipient among the sinks of the process."""
        return DEAD_LETTERS + self.recipient.who


def recipients_of(handlers: Handlers, dead_to: str | None) -> list[Recipient]:
    """Return those that are told of each dead event: first the target of `--dead-to`, for the application's hook may
    fail for ever."""
    recipients = [] if dead_to is None else [Recipient(f"--dead-to {masked_url(dead_to)}", letterbox_of(dead_to))]
    if (hook := handlers.dead_letter) is not None:
        recipients.append(Recipient(f"{name_of(hook)} ({place_of(hook)})", hook))
    return recipients


class DeadLetters:
    """The calls of one process. The thread of its own makes them, the poller's looks after them."""

    def __init__(
        self, context: Context, recipients: Sequence[Recipient], loop: EventLoop, traffic: TrafficObserver
    ) -> None:
        self._engine = context.engine
        self._letters = context.engine.letters
        self._routes = context.routes
        self._signals = context.signals
        self._recipients = recipients
        self._loop = loop
        self._traffic = traffic
        self._calls = SimpleQueue[None]()
        self._ending = threading.Lock()
        self._call: _Call | None = None
        self._thread: threading.Thread | None = None
        self._left: set[threading.Thread] = set()
        self._stopped = False
        self._variables = Variables()

    @property
    def is_stuck(self) -> bool:
        """True if no call is made any more, for too many have not returned."""
        return len(self._left) >= MOST_LEFT

    def start(self) -> None:
        """Tell of dead events from now on, with the context variables that are set here."""
        self._variables = copy_context()
        self._engine.wakes.letter = self._wake

    def once(self, *, pauses: bool = True) -> bool:
        """Tell of one dead event in the caller's thread; False if there is none. A failure `pauses` the others too."""
        letter = self._letters.take(time.monotonic())
        if letter is None:
            return False
        call, failed = self._tell(letter)
        if failed is None:
            self._letters.told(letter)
        else:
            self._fail(call, failed, pauses=pauses)
        return True

    def look(self) -> None:
        """Log a call that is slow, and give up one that is over its time. By the poller's thread."""
        call = self._call
        if call is None or call.ended:
            return
        now = time.monotonic()
        self._letters.let_go(now)
        event, ran = call.letter.event, now - call.began
        if ran > SLOW and not call.said:
            call.said = True
            self._traffic.hangs(call.sink, f"it has not returned for {SLOW:g} s", call.began)
            text = "%s has been called for the dead %s for %.0f s: other dead events wait behind it, and nothing else"
            log_event(log, "slow_dead_letter", text, call.recipient.who, event, ran, about=event, seconds=round(ran, 1))
        if ran > call.timeout + RESISTS * is_async(call.recipient.call) and self._give_up(call):
            self._fail(call, _late(call.timeout))
            if self.is_stuck:
                text = "%d calls of %s have not returned: no dead event is told of here until one of them does"
                log_event(log, "dead_letters_stuck", text, len(self._left), call.recipient.who, calls=len(self._left))

    def stop(self, until: float) -> None:
        """Wait for the call that runs until then (monotonic seconds), and give it up: its event stays due."""
        self._stopped = True
        self._calls.put(None)
        thread = self._thread
        if thread is None:
            return
        thread.join(max(0.0, until - time.monotonic()))
        call = self._call
        if thread.is_alive() and call is not None and self._give_up(call):
            text = "stopped while %s was called for the dead %s, for which it is called again"
            log_event(log, "abandoned", text, call.recipient.who, call.letter.event, about=call.letter.event)
            thread.join(1.0 if call.future is not None else 0.0)

    def _wake(self) -> None:
        """A letter waits. With the engine's lock held or without."""
        self._calls.put(None)
        if self._thread is None and not self.is_stuck:
            self._thread = threading.Thread(target=self._run, name="partbox-dead-letters", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        me = threading.current_thread()
        try:
            while not self._stopped and me not in self._left:
                if not self.once():
                    self._calls.get()
        except BaseException as error:  # not of a hook, whose errors are noted
            self._signals.failed(error)
        if me in self._left:  # another has its place, or may have it now
            self._left.discard(me)
            self._wake()

    def _tell(self, letter: Letter) -> tuple[_Call, BaseException | None]:
        """Call the recipients one after the other; the last call, and the reason if it has failed."""
        timeout, me = self._routes[letter.event.route].handler.timeout or TIMEOUT, threading.current_thread()
        for recipient in self._recipients:
            self._call = call = _Call(letter, recipient, timeout, me, time.monotonic())
            self._traffic.sending(call.sink, 1)
            try:
                failed = self._variables.copy().run(self._made, call)
            except BaseException as error:  # also SystemExit: a hook does not end the process
                failed = error
            if self._engine.forked:
                leave(failed)
            if not self._end(call, failed) or failed is not None:
                break
        return call, failed

    def _made(self, call: _Call) -> BaseException | None:
        """Make a call; of an async hook the error that it raises."""
        hook, event, error = call.recipient.call, call.letter.event, call.letter.error
        make = partial(hook, event, error) if takes(hook, 2) else partial(hook, event)
        if is_async(hook):
            call.future = self._loop.submit(partial(_awaited, make, call.timeout))
            return call.future.result()
        make()
        return None

    def _end(self, call: _Call, failed: BaseException | None, *, leaves: bool = False) -> bool:
        """Note the end of a call, which `leaves` its thread behind if it is given up; False if it had ended before."""
        with self._ending:  # it returns, or is given up
            if call.ended:
                return False
            call.ended = True
            if leaves:
                self._left.add(call.thread)
                self._thread = None
        taken = int(failed is None)
        self._traffic.answered(call.sink, Answer(1, taken, 0, 1 - taken, time.monotonic() - call.began, failed))
        return True

    def _give_up(self, call: _Call) -> bool:
        """Go on without a call and its thread; cancel an async one, so that its thread ends. False if it has ended."""
        given_up = self._end(call, _late(call.timeout), leaves=True)
        if given_up and call.future is not None:
            call.future.cancel()
        return given_up

    def _fail(self, call: _Call, error: BaseException, *, pauses: bool = True) -> None:
        letter, who = call.letter, call.recipient.who
        away = says_away(error, USUAL.found())
        delays = self._letters.failed(letter, time.monotonic(), away=away, pauses=pauses)
        if delays is not None:
            text = "%s failed for the dead %s, for which it is called again in %.3g s, and for another in %.3g s: %s"
            said = who, letter.event, delays.event, delays.next, text_of(error)
            log_event(log, "dead_letter_failed", text, *said, about=letter.event, trace=error, delay=delays.event)


async def _awaited(make: Callable[[], Awaitable[object]], timeout: float) -> BaseException | None:  # noqa: ASYNC109  it bounds the hook
    """Run an async hook to its end; return the error that it raises, which is not to end the loop."""
    limit = asyncio.timeout(timeout)
    try:
        async with limit:
            await make()
    except (Exception, SystemExit, asyncio.CancelledError) as error:
        return _late(timeout) if limit.expired() else error
    return None


def _late(timeout: float) -> TimeoutError:
    return TimeoutError(f"it ran longer than {timeout:g} s")
