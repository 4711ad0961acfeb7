"""An endpoint: a handler with its interceptors, its circuit, and its word on errors.

`plain` is all that the way of an event asks when nothing is wrong: one sync call, nothing to note afterwards.
"""

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from enum import Enum
from typing import Any, cast

from partbox.errors import DownstreamUnavailable, UnrecoverableError
from partbox.events import DeliveredEvent
from partbox.handlers import Handler
from partbox.interceptors import wrap
from partbox.observe import Observers
from partbox.observe.logs.log_event import log_event
from partbox.outcomes import Advice, Dead, Done, Ignore, RetryAfter
from partbox.rules.circuit import PROBE_LOST, Circuit
from partbox.rules.parking import LAST_RESORT, Deferral, Verdict, judge, wrong_outcome
from partbox.rules.signature import Call
from partbox.rules.trace import trace_of
from partbox.worker.state.key import key_of

log = logging.getLogger("partbox.worker")

OUTCOMES = (type(None), Done, RetryAfter, Dead, Deferral, BaseException)


class Kind(Enum):
    """The way in which a handler is run."""

    SYNC = "sync"  # by the runner that walks the lane
    ASYNC = "async"  # in the event loop
    LISTS = "lists"  # with events of other lanes, by the runner or in the event loop
    TRANSACTIONAL = "transactional"  # by the thread that has the connection for it


class Endpoint:
    """One handler of one process. Any thread."""

    __slots__ = (
        "_circuit",
        "_limit",
        "_lock",
        "_may_be_plain",
        "_observers",
        "_settles",
        "call",
        "handler",
        "kind",
        "plain",
    )

    def __init__(self, handler: Handler, interceptors: Sequence[Any], error_limit: int, observers: Observers) -> None:
        self.handler = handler
        self.kind = _kind(handler)
        self._observers = observers
        self._settles = observers.hears("settled")
        self._may_be_plain = self.kind is Kind.SYNC and not self._settles
        self.call = wrap(handler.call, interceptors, is_async=handler.is_async, is_batch=handler.max_size is not None)
        if observers.hears("handling"):
            self.call = _watched(self.call, handler, observers)
        self.plain = self._may_be_plain
        self._limit = error_limit
        self._circuit = Circuit(max(PROBE_LOST, handler.timeout or 0.0))
        self._lock = threading.Lock()

    @property
    def calm(self) -> bool:
        """True if a success is nothing to note: no failure before it, and nobody who hears of single events."""
        return not (self._circuit.troubled or self._settles)

    def refusal(self, now: float) -> Deferral | None:
        """Why no handler may be started now, if the circuit is open; else None, and the caller must start one.

        `now` (monotonic seconds) is what `judge` is told as the start.
        """
        if not self._circuit.troubled:
            return None
        with self._lock:
            if self._circuit.admits(now):
                return None
            return Deferral(self._circuit.wait(now), f"{self.handler.name} waits for its downstream")

    def deferred(self, event: DeliveredEvent, refusal: Deferral) -> Verdict:
        """The verdict on an event that was refused."""
        verdict = judge(self.handler, event.attempt - 1, refusal, self._limit)
        assert verdict is not None
        return verdict

    def perished(self, attempts: int) -> Verdict:
        """The verdict on an event whose process died at each of its attempts."""
        verdict = judge(
            self.handler, attempts - 1, Dead(f"its process died, {attempts} times that it ran"), self._limit
        )
        assert verdict is not None
        return verdict

    def judge(
        self, event: DeliveredEvent, result: object, started: float | None = None, *, counts: bool = True
    ) -> Verdict | None:
        """The verdict on the event, by what the handler returned or raised; None is done.

        `started` (monotonic seconds) is when the handler was. `counts` false: the failure was noted already, with
        another event of its list.
        """
        try:
            verdict = self._judge(event, result, started, counts=counts)
        except BaseException as wrong:  # an object of the application's own whose very questions fail
            error = TypeError(f"what the handler returned or raised cannot be looked at ({type(wrong).__name__})")
            verdict = judge(self.handler, event.attempt - 1, error, self._limit)
        if verdict is None or not issubclass(type(result), BaseException):
            return verdict
        return replace(verdict, trace=trace_of(cast(BaseException, result), self._limit))

    def _judge(self, event: DeliveredEvent, result: object, started: float | None, *, counts: bool) -> Verdict | None:
        attempts = event.attempt - 1
        if not issubclass(type(result), OUTCOMES):  # its __class__ may say anything, or fail
            result = wrong_outcome(result)
        if not isinstance(result, BaseException):
            self._note(result, started)
            return judge(self.handler, attempts, result, self._limit)
        advice = self._advice(event, result)
        verdict = judge(self.handler, attempts, result, self._limit, advice)
        if verdict is not None and verdict.fault is not None:
            self._tell_policy(event, verdict.fault)
        if advice is not None or verdict is None or self._is_own(result, verdict):
            self._note_undecided(started)
            return verdict
        if counts:
            self._note_failure(event, result, started)
        if not self._circuit.is_open:
            return verdict
        with self._lock:
            wait = self._circuit.wait(time.monotonic())
        return self.deferred(event, Deferral(wait, verdict.error or ""))

    def _advice(self, event: DeliveredEvent, error: BaseException) -> Advice:
        """The advice of the handler's `on_error`; None without one, or if it fails itself."""
        ask = self.handler.on_error
        if ask is None:
            return None
        try:
            advice = ask(event, error, event.attempt)
            if advice is not None and not isinstance(advice, Done | Ignore | RetryAfter | Dead):
                raise TypeError(f"on_error may return Done, Ignore, RetryAfter, Dead or None, not {advice!r}")
        except BaseException as wrong:
            if wrong.__context__ is None:
                wrong.__context__ = error
            text = "%s failed: %s; and on_error of %s failed too, so its policy decides: %s"
            name = self.handler.name
            log_event(log, "on_error_failed", text, event, error, name, wrong, about=event, trace=wrong, handler=name)
            return None
        if isinstance(advice, Ignore):
            text = "the error of %s is ignored, as on_error says: %s"
            log_event(log, "error_ignored", text, event, error, about=event, handler=self.handler.name)
        return advice

    def _is_own(self, error: BaseException, verdict: Verdict) -> bool:
        """True if something is wrong with this event alone, which tells nothing of others."""
        most = self.handler.max_attempts
        exhausted = most is not None and verdict.attempts >= most
        return isinstance(error, UnrecoverableError) or (verdict.state == "dead" and not exhausted)

    def _note_failure(self, event: DeliveredEvent, error: BaseException, started: float | None) -> None:
        with self._lock:
            unavailable = isinstance(error, DownstreamUnavailable)
            opened = self._circuit.failed(key_of(event), time.monotonic(), unavailable=unavailable, started=started)
            self.plain = False
        if opened:
            self._observers.circuit(self.handler.name, True)
            text = (
                "the circuit of %s is open: its events are deferred, and one is tried now and then until one succeeds; "
                "the last error was %s: %s"
            )
            self._tell_circuit("circuit_open", text, type(error).__name__, error)

    def _note(self, outcome: object, started: float | None) -> None:
        """A handler that asks for later may be hiding an error: that is neither success nor failure."""
        if isinstance(outcome, RetryAfter):
            self._note_undecided(started)
        elif self._circuit.troubled and not isinstance(outcome, Deferral):
            with self._lock:
                closed = self._circuit.succeeded()
                self.plain = self._may_be_plain
            if closed:
                self._observers.circuit(self.handler.name, False)
                self._tell_circuit("circuit_closed", "the circuit of %s is closed again")

    def _tell_policy(self, event: DeliveredEvent, fault: BaseException) -> None:
        text = "the retry policy of %s cannot be used, so its events are tried again after %g s: %s: %s"
        name, kind = self.handler.name, type(fault).__name__
        log_event(
            log, "retry_policy_failed", text, name, LAST_RESORT, kind, fault, about=event, trace=fault, handler=name
        )

    def _tell_circuit(self, name: str, text: str, *arguments: object) -> None:
        handler = self.handler
        log_event(log, name, text, handler.name, *arguments, subscription=handler.subscription, handler=handler.name)

    def _note_undecided(self, started: float | None) -> None:
        if self._circuit.is_open and started is not None:
            with self._lock:
                self._circuit.undecided(started)


def _watched(call: Call, handler: Handler, observers: Observers) -> Call:
    """The call with all observers around it."""
    is_list = handler.max_size is not None

    def watched(given: Any, *more: Any) -> Any:
        with observers.handling(given if is_list else (given,), handler.name):
            return call(given, *more)

    async def watched_async(given: Any) -> Any:
        with observers.handling(given if is_list else (given,), handler.name):
            return await call(given)

    return watched_async if handler.is_async else watched


def _kind(handler: Handler) -> Kind:
    if handler.transactional:
        return Kind.TRANSACTIONAL
    if handler.max_size is not None:
        return Kind.LISTS
    return Kind.ASYNC if handler.is_async else Kind.SYNC
