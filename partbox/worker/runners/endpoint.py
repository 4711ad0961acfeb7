"""An endpoint: a handler with its interceptors, its circuit, and its word on errors.

`is_plain` is all that the way of an event asks when nothing is wrong: one sync call, nothing to note afterwards.
"""

import logging
import random
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextvars import Context, copy_context
from dataclasses import replace
from enum import Enum
from functools import partial
from typing import Any, cast

from partbox.callables import Call
from partbox.errors import DownstreamUnavailable, NewerVersionError, UnrecoverableError
from partbox.events import DeliveredEvent
from partbox.handlers import Handler
from partbox.handlers.transactional import TransactionKind
from partbox.interceptors import wrap
from partbox.observe import Observers
from partbox.observe.logs.log_event import log_event
from partbox.outcomes import Advice, Dead, Done, Ignore, RetryAfter
from partbox.protocol.circuit import PROBE_LOST, Circuit
from partbox.protocol.outage import is_outage
from partbox.protocol.parking import RowState
from partbox.protocol.rows import IgnoredEvent
from partbox.protocol.verdict import FALLBACK_DELAY, Deferral, Verdict, describe, judge, wrong_outcome
from partbox.text.wording import counted
from partbox.worker.engine.key import key_of
from partbox.worker.reports.unroutable import NewerVersionWarning
from partbox.worker.runners.event_loop import begin_handler, run_in_context
from partbox.worker.runners.traceback import trace_of

log = logging.getLogger("partbox.worker")

WAIT_SPREAD = (1.0, 1.2)  # factors of a wait for a circuit
OWN_CONNECTIONS = (TransactionKind.PSYCOPG, TransactionKind.SQLALCHEMY)  # and not on a connection that Django has
OUTCOME_TYPES = (type(None), Done, RetryAfter, Dead, Deferral, BaseException)


class RunKind(Enum):
    """The way in which a handler is run."""

    SYNC = "sync"  # by the runner that walks the lane
    ASYNC = "async"  # in the event loop
    BATCH = "lists"  # with events of other lanes, by the runner or in the event loop
    TRANSACTIONAL = "transactional"  # by the thread that has the connection for it
    LIMITED = "limited"  # each in a turn of its own, in whichever way else


class Endpoint:
    """One handler of one process. Any thread. `run_kind`: its kind for a walk over a lane, LIMITED while it has a
    limit."""

    __slots__ = (
        "_circuit",
        "_hears_each",
        "_last_outage",
        "_limit",
        "_lock",
        "_may_be_plain",
        "_newer_versions",
        "_observers",
        "context",
        "first_step",
        "handler",
        "is_plain",
        "kind",
        "run_kind",
        "transaction",
        "wrapped_call",
    )

    def __init__(
        self,
        handler: Handler,
        interceptors: Sequence[Any],
        error_limit: int,
        observers: Observers,
        newer: NewerVersionWarning | None = None,
    ) -> None:
        self.handler = handler
        self._newer_versions = newer or NewerVersionWarning()
        self.kind = _kind_of(handler)
        self.transaction = handler.transaction
        self._observers = observers
        self._hears_each = observers.has_hook("settled")
        self.wrapped_call: Call = wrap(
            handler.call, interceptors, is_async=handler.is_async, is_batch=handler.max_size is not None
        )
        if self.transaction in OWN_CONNECTIONS:
            self.wrapped_call = guard_other_writes(self.wrapped_call)
        if observers.has_hook("handling"):
            self.wrapped_call = _observed_call(self.wrapped_call, handler, observers)
        self.first_step: Call = partial(begin_handler, self.wrapped_call) if handler.is_async else self.wrapped_call
        self.enter(copy_context())
        self._limit = error_limit
        self._circuit = Circuit(max(PROBE_LOST, handler.timeout or 0.0))
        self._last_outage = ""  # the last error that said that the downstream is away
        self._lock = threading.Lock()
        self.set_run_kind(self.kind)

    def enter(self, context: Context) -> None:
        """Have each event run in a copy of this context: of the variables that an event sets, others see none.

        `context` makes the copy, in which `first_step` is run; the transactor runs `wrapped_call` there, in a
        savepoint.
        """
        self.context: Callable[[], Context] = context.copy

    def call(self, given: Any) -> object:
        """Call the handler in a context of its own; an async one up to its first wait."""
        return run_in_context(self.context(), self.first_step, given)

    def set_run_kind(self, kind: RunKind) -> None:
        """Have it run in walks of this kind from now on: LIMITED, or its own."""
        with self._lock:  # the circuit has a word in what is plain
            self.run_kind = kind
            self._may_be_plain = kind in (RunKind.SYNC, RunKind.ASYNC) and not self._hears_each
            self.is_plain = self._may_be_plain and not self._circuit.has_failures

    @property
    def is_uneventful(self) -> bool:
        """True if a success is nothing to note: no failure before it, and nobody who hears of single events."""
        return not (self._circuit.has_failures or self._hears_each)

    def refusal(self, now: float) -> Deferral | None:
        """Why no handler may be started now, if the circuit is open; else None, and the caller must start one.

        `now` (monotonic seconds) is what `judge` is told as the start.
        """
        if not self._circuit.has_failures:
            return None
        with self._lock:  # the circuit admits one probe
            if self._circuit.try_admit(now):
                return None
            reason = f"{self.handler.name} waits for its downstream: {self._last_outage}"
            return Deferral(self._wait(now), reason, is_wait=True)

    def deferral_verdict(self, event: DeliveredEvent, refusal: Deferral) -> Verdict:
        """The verdict on an event that was refused."""
        return self._judge_certain(event.attempt - 1, refusal)

    def crash_verdict(self, attempts: int) -> Verdict:
        """The verdict on an event whose process died at each of its attempts."""
        return self._judge_certain(attempts - 1, Dead(f"its process died, {counted(attempts, 'time')} that it ran"))

    def _judge_certain(self, attempts: int, result: Deferral | Dead) -> Verdict:
        verdict = judge(self.handler, attempts, result, self._limit)
        assert verdict is not None
        return verdict

    def judge(
        self, event: DeliveredEvent, result: object, started: float | None = None, *, counts_failure: bool = True
    ) -> Verdict | None:
        """The verdict on the event, by what the handler returned or raised; None is done.

        `started` (monotonic seconds) is when the handler was. `counts_failure` false: the failure was noted already,
        with another event of its list.
        """
        return self._judge_traced(
            event, result, started, partial(self._judge_result, event, result, started, counts_failure=counts_failure)
        )

    def timeout_verdict(self, event: DeliveredEvent, error: TimeoutError, started: float) -> Verdict | None:
        """The verdict on an event whose handler is given up, and its process with it: the circuit, too, ends then."""
        return self._judge_traced(event, error, started, lambda: self._judge_by_policy(event, error)[0])

    def _judge_traced(
        self, event: DeliveredEvent, result: object, started: float | None, ask: Callable[[], Verdict | None]
    ) -> Verdict | None:
        """The verdict, with what else is told of a failure."""
        try:
            verdict = ask()
        except BaseException as wrong:  # an object of the application's own whose very questions fail
            error = TypeError(f"what the handler returned or raised cannot be looked at ({type(wrong).__name__})")
            verdict = judge(self.handler, event.attempt - 1, error, self._limit)
        seconds = None if started is None else time.monotonic() - started
        if not issubclass(type(result), BaseException):
            failed = verdict is not None and verdict.state is not RowState.DEFERRED
            return replace(verdict, seconds=seconds) if verdict is not None and failed else verdict
        raised = cast(BaseException, result)
        if verdict is not None and issubclass(type(raised), NewerVersionError):  # its handler has not run
            return verdict
        if verdict is not None:
            return replace(verdict, trace=trace_of(raised, self._limit), seconds=seconds)
        if getattr(event, "ignored", False):
            event.ignored = IgnoredEvent(event.id, event.attempt, describe(raised, self._limit), seconds)
        return None

    def _judge_result(
        self, event: DeliveredEvent, result: object, started: float | None, *, counts_failure: bool
    ) -> Verdict | None:
        attempts = event.attempt - 1
        if not issubclass(type(result), OUTCOME_TYPES):  # its __class__ may say anything, or fail
            result = wrong_outcome(result)
        if not isinstance(result, BaseException):
            self._note_outcome(result, started)
            return judge(self.handler, attempts, result, self._limit)
        if issubclass(type(result), NewerVersionError):  # no failure of the handler, which is not asked about it
            self.note_undecided(started)
            verdict = judge(self.handler, attempts, self.handler.newer(event, str(result)), self._limit)
            self._newer_versions.warn(event, result, self.handler.name, verdict)
            return verdict
        verdict, advice = self._judge_by_policy(event, result)
        if self.handler.circuit is None:
            return verdict
        if not is_outage(result, self.handler.circuit):
            self._note_event_fault(event, started)  # the circuit never spares it: a last attempt is the last
            return verdict
        if advice is not None or verdict is None or self._is_event_fault(result, verdict):
            self.note_undecided(started)
            return verdict
        if counts_failure:
            self._note_failure(event, result, verdict.error or "", started)
        if not self._circuit.is_open:
            return verdict
        with self._lock:  # guards the circuit
            wait = self._wait(time.monotonic())
        return self.deferral_verdict(event, Deferral(wait, verdict.error or ""))

    def _wait(self, now: float) -> float:
        """Seconds to defer an event. If all came back at once, the one with the lowest id would be the probe each time,
        and an error of its own would keep the circuit open for ever. The lock of the circuit is taken by who asks."""
        return self._circuit.wait(now) * random.uniform(*WAIT_SPREAD)

    def _judge_by_policy(self, event: DeliveredEvent, error: BaseException) -> tuple[Verdict | None, Advice]:
        """The verdict without regard to the circuit, and what `on_error` advised."""
        advice = self._ask_on_error(event, error)
        verdict = judge(self.handler, event.attempt - 1, error, self._limit, advice)
        if verdict is not None and (policy_error := verdict.policy_error) is not None:
            text = "the retry policy of %s cannot be used, so its events are tried again after %g s: %s: %s"
            name, details = self.handler.name, (FALLBACK_DELAY, type(policy_error).__name__, policy_error)
            log_event(log, "retry_policy_failed", text, name, *details, about=event, trace=policy_error, handler=name)
        return verdict, advice

    def _ask_on_error(self, event: DeliveredEvent, error: BaseException) -> Advice:
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
            event.ignored = True
        return advice

    def _is_event_fault(self, error: BaseException, verdict: Verdict) -> bool:
        """True if something is wrong with this event alone, which tells nothing of others."""
        most = self.handler.max_attempts
        exhausted = most is not None and verdict.attempts >= most
        return isinstance(error, UnrecoverableError) or (verdict.state is RowState.DEAD and not exhausted)

    def _note_failure(self, event: DeliveredEvent, error: BaseException, details: str, started: float | None) -> None:
        unavailable = issubclass(type(error), DownstreamUnavailable)
        with self._lock:  # a failure and the opening of the circuit are one
            self._last_outage = details
            opened = self._circuit.failed(key_of(event), time.monotonic(), unavailable=unavailable, started=started)
            self.is_plain = False
        if opened:
            self._observers.circuit(self.handler.name, True)
            text = (
                "the circuit of %s is open: its events are deferred, and one is tried now and then until one succeeds; "
                "the last error was %s: %s"
            )
            self._log_circuit("circuit_open", text, type(error).__name__, error)

    def _note_outcome(self, outcome: object, started: float | None) -> None:
        """A handler that asks for later may be hiding an error: that is neither success nor failure."""
        if isinstance(outcome, RetryAfter):
            self.note_undecided(started)
        elif self._circuit.has_failures and not isinstance(outcome, Deferral):
            with self._lock:  # guards the circuit
                closed = self._circuit.note_success()
                self.is_plain = self._may_be_plain
            if closed:
                self._report_closed("the circuit of %s is closed again")

    def _note_event_fault(self, event: DeliveredEvent, started: float | None) -> None:
        """The event failed by itself; a probe that does says nothing of the downstream."""
        if not self._circuit.is_open or started is None:
            return
        with self._lock:  # guards the circuit
            closed = self._circuit.note_other_error(key_of(event), started)
            self.is_plain = self._may_be_plain and not self._circuit.has_failures
        if closed:
            self._report_closed(
                "the circuit of %s is closed again: events fail, but not because its downstream is away"
            )

    def _report_closed(self, text: str) -> None:
        self._observers.circuit(self.handler.name, False)
        self._log_circuit("circuit_closed", text)

    def _log_circuit(self, name: str, text: str, *arguments: object) -> None:
        handler = self.handler
        log_event(log, name, text, handler.name, *arguments, subscription=handler.subscription, handler=handler.name)

    def note_undecided(self, started: float | None) -> None:
        """Note that a handler has ended which tells nothing of its downstream."""
        if self._circuit.is_open and started is not None:
            with self._lock:  # guards the circuit
                self._circuit.note_undecided(started)


def guard_other_writes(call: Call) -> Call:
    """The call of a handler in a transaction; what Django would write on another connection is its error."""

    def guarded(event: Any, conn: Any) -> Any:
        if "django.db" not in sys.modules:  # asked each time: a handler's module may import it late
            return call(event, conn)
        from partbox.publish.integrations.django import refuse_foreign_writes

        with refuse_foreign_writes(conn):
            return call(event, conn)

    return guarded


def _observed_call(call: Call, handler: Handler, observers: Observers) -> Call:
    """The call with all observers around it."""
    is_list = handler.max_size is not None

    def observed(given: Any, *more: Any) -> Any:
        with observers.handling(given if is_list else (given,), handler.name):
            return call(given, *more)

    async def observed_async(given: Any, *more: Any) -> Any:
        with observers.handling(given if is_list else (given,), handler.name):
            return await call(given, *more)

    return observed_async if handler.is_async else observed


def _kind_of(handler: Handler) -> RunKind:
    if handler.transactional:
        return RunKind.TRANSACTIONAL
    if handler.max_size is not None:
        return RunKind.BATCH
    return RunKind.ASYNC if handler.is_async else RunKind.SYNC
