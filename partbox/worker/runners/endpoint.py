"""Call one handler with its interceptors, guard it with its circuit, and judge its outcome."""

import logging
import sys
import time
from collections.abc import Callable, Sequence
from contextvars import Context, copy_context
from dataclasses import replace
from enum import Enum
from functools import partial
from typing import Any, cast

from partbox.callables import Call
from partbox.errors import NewerVersionError, UnrecoverableError
from partbox.events import DeliveredEvent
from partbox.handlers import Handler
from partbox.handlers.transactional import TransactionKind
from partbox.interceptors import wrap_call
from partbox.observe import Observers
from partbox.observe.logs.log_event import log_event
from partbox.outcomes import Advice, Dead, Done, Ignore, RetryAfter
from partbox.protocol.outage import is_outage
from partbox.protocol.parking import RowState
from partbox.protocol.rows import IgnoredEvent
from partbox.protocol.verdict import FALLBACK_DELAY, Deferral, Verdict, build_outcome_error, describe, judge_result
from partbox.text.wording import format_count
from partbox.worker.reports.unroutable import NewerVersionWarning
from partbox.worker.runners.event_loop import begin_handler, run_in_context
from partbox.worker.runners.handler_circuit import HandlerCircuit
from partbox.worker.runners.traceback import trace_of

log = logging.getLogger("partbox.worker")

OWN_CONNECTIONS = (TransactionKind.PSYCOPG, TransactionKind.SQLALCHEMY)  # not on a connection of Django
OUTCOME_TYPES = (type(None), Done, RetryAfter, Dead, Deferral, BaseException)


class RunKind(Enum):
    """The ways to run a handler's events: in a thread, in the event loop, in lists, in a transaction, or under a
    limit."""

    # By the runner of the lane.
    SYNC = "sync"
    # In the event loop.
    ASYNC = "async"
    # Together with events of other lanes, by the runner or in the event loop.
    BATCH = "lists"
    # By the thread that has the connection for transactions.
    TRANSACTIONAL = "transactional"
    # One event for each permit, in any of the ways above.
    LIMITED = "limited"


class Endpoint:
    """A registered handler as one worker process calls it, with its interceptors and its circuit breaker. Any thread
    may use it."""

    # `first_step` calls the handler, or runs an async handler up to its first suspension. `is_plain` is True if an
    # event whose handler returned None needs nothing more than to be recorded as done. `run_kind` is the kind of the
    # handler, or LIMITED while the handler has a limit. Runners read both without the lock of the circuit, under which
    # they change.

    __slots__ = (
        "_hears_each",
        "_limit",
        "_may_be_plain",
        "_newer_versions",
        "_observers",
        "circuit",
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
        self.wrapped_call: Call = wrap_call(
            handler.call, interceptors, is_async=handler.is_async, is_batch=handler.max_size is not None
        )
        if self.transaction in OWN_CONNECTIONS:
            self.wrapped_call = guard_other_writes(self.wrapped_call)
        if observers.has_hook("handling"):
            self.wrapped_call = _wrap_observed(self.wrapped_call, handler, observers)
        self.first_step: Call = partial(begin_handler, self.wrapped_call) if handler.is_async else self.wrapped_call
        self.set_context(copy_context())
        self._limit = error_limit
        self.circuit = HandlerCircuit(handler, observers, self._update_plain)
        self.set_run_kind(self.kind)

    def set_context(self, context: Context) -> None:
        """Set the context variables that the handler sees from now on."""
        # Each event gets a copy of its own, so that context variables set for one event are not seen by others.
        # `context` makes the copy, in which `first_step` is run. The transactor runs `wrapped_call` in the copy, within
        # a savepoint.
        self.context: Callable[[], Context] = context.copy

    def call_handler(self, given: Any) -> object:
        """Call the handler with an event or a list. An async handler runs only up to its first await that waits."""
        # The handler runs in a new copy of its context of context variables.
        return run_in_context(self.context(), self.first_step, given)

    def set_run_kind(self, kind: RunKind) -> None:
        """Set how the worker runs the events of this handler."""
        # `kind` is LIMITED while the handler has a rate or concurrency limit, else the handler's own kind.
        with self.circuit.lock:
            self.run_kind = kind
            self._may_be_plain = kind in (RunKind.SYNC, RunKind.ASYNC) and not self._hears_each
            self._update_plain()

    def _update_plain(self) -> None:
        # The caller holds the lock of the circuit.
        self.is_plain = self._may_be_plain and not self.circuit.has_failures

    @property
    def is_uneventful(self) -> bool:
        """True if a success of the handler need not be recorded or reported."""
        # That is so if the circuit breaker has no failures, and no observer follows single events.
        return not (self.circuit.has_failures or self._hears_each)

    def find_refusal(self, event: DeliveredEvent, now: float, *, is_probe: bool = False) -> Deferral | None:
        """Return None if the circuit breaker lets the handler be called, else a deferral of the event."""
        # After None the caller must call the handler. An open circuit admits one probe now and then. `now` (monotonic
        # seconds) must be the `started` that `judge` gets later. `is_probe` means that the event has the permit for
        # the probe of its value.
        if not self.circuit.has_failures:
            return None
        return self.circuit.find_refusal(event, now, is_probe=is_probe)

    def build_deferral_verdict(self, event: DeliveredEvent, refusal: Deferral) -> Verdict:
        """Return the decision to try an event later, because the circuit breaker refuses calls of its handler."""
        # The attempt is not counted.
        return self._judge_certain(event.attempt - 1, refusal)

    def build_crash_verdict(self, attempts: int) -> Verdict:
        """Return the decision to give up an event, because its process died at each attempt to handle it."""
        return self._judge_certain(
            attempts - 1, Dead(f"the process died {format_count(attempts, 'time')} handling the event")
        )

    def _judge_certain(self, attempts: int, result: Deferral | Dead) -> Verdict:
        verdict = judge_result(self.handler, attempts, result, self._limit)
        assert verdict is not None
        return verdict

    def judge(
        self, event: DeliveredEvent, result: object, started: float | None = None, *, counts_failure: bool = True
    ) -> Verdict | None:
        """Decide by the handler's result whether an event is retried, deferred or given up (dead). Return None if the
        event is done."""
        # `result` is the value that the handler returned, or the error that it raised. `started` is in monotonic
        # seconds. Nothing is raised, not even for a result whose own methods raise.
        # With `counts_failure` False the circuit does not count a failure, because another event of the list has
        # counted it.
        return self._judge_traced(
            event, result, started, partial(self._judge_result, event, result, started, counts_failure=counts_failure)
        )

    def judge_timeout(self, event: DeliveredEvent, error: TimeoutError, started: float) -> Verdict | None:
        """Decide the next state of an event whose handler ran over its timeout."""
        # The handler is given up. The circuit breaker is not asked, because it ends with the process.
        return self._judge_traced(event, error, started, lambda text: self._judge_by_policy(event, error, text)[0])

    def _judge_traced(
        self, event: DeliveredEvent, result: object, started: float | None, ask: Callable[[str | None], Verdict | None]
    ) -> Verdict | None:
        raised = cast(BaseException, result) if issubclass(type(result), BaseException) else None
        text: str | None = None
        try:
            # An error is described once, for the verdict and the traceback.
            text = None if raised is None else describe(raised, self._limit)
            verdict = ask(text)
        except BaseException as wrong:
            # The result is an object of the application whose own methods fail.
            error = TypeError(f"the handler's result or error cannot be inspected ({type(wrong).__name__})")
            verdict = judge_result(self.handler, event.attempt - 1, error, self._limit)
        seconds = None if started is None else time.monotonic() - started
        if raised is None:
            failed = verdict is not None and verdict.state is not RowState.DEFERRED
            return replace(verdict, seconds=seconds) if verdict is not None and failed else verdict
        # The handler has not run, so there is neither traceback nor duration.
        if verdict is not None and issubclass(type(raised), NewerVersionError):
            return verdict
        if verdict is not None:
            return replace(verdict, trace=trace_of(raised, self._limit, text), seconds=seconds)
        if getattr(event, "ignored", False):
            event.ignored = IgnoredEvent(event.id, event.attempt, text or "", seconds)
        return None

    def _judge_result(
        self, event: DeliveredEvent, result: object, started: float | None, text: str | None, *, counts_failure: bool
    ) -> Verdict | None:
        attempts = event.attempt - 1
        # Ask type(result), because `__class__` of the application's object may return anything or fail.
        if not issubclass(type(result), OUTCOME_TYPES):
            result = build_outcome_error(result)
        if not isinstance(result, BaseException):
            self.circuit.note_outcome(event, result, started)
            return judge_result(self.handler, attempts, result, self._limit)
        # Not a failure of the handler, so `on_error` and the policy are not asked.
        if issubclass(type(result), NewerVersionError):
            self.circuit.note_undecided(event, started)
            verdict = judge_result(self.handler, attempts, self.handler.newer(event, str(result)), self._limit)
            self._newer_versions.warn(event, result, self.handler.name, verdict)
            return verdict
        verdict, advice = self._judge_by_policy(event, result, text)
        if self.handler.circuit is None:
            return verdict
        if not is_outage(result, self.handler.circuit):
            # The circuit never spares such an event: its last attempt is the last.
            self.circuit.note_event_fault(event, started)
            return verdict
        if advice is not None or verdict is None or self._is_event_fault(result, verdict):
            self.circuit.note_undecided(event, started)
            return verdict
        if counts_failure:
            self.circuit.note_failure(event, result, verdict.error or "", started)
        deferral = self.circuit.find_deferral(event, verdict.error)
        return verdict if deferral is None else self.build_deferral_verdict(event, deferral)

    def _judge_by_policy(
        self, event: DeliveredEvent, error: BaseException, text: str | None
    ) -> tuple[Verdict | None, Advice]:
        # The circuit breaker is not asked. The advice of `on_error` is returned too. `text` describes the error, if it
        # is there already.
        advice = self._ask_on_error(event, error)
        verdict = judge_result(self.handler, event.attempt - 1, error, self._limit, advice, text)
        if verdict is not None and (policy_error := verdict.policy_error) is not None:
            text = "the retry policy of %s cannot be used, so its events are tried again after %g s: %s: %s"
            name, details = self.handler.name, (FALLBACK_DELAY, type(policy_error).__name__, policy_error)
            log_event(log, "retry_policy_failed", text, name, *details, about=event, trace=policy_error, handler=name)
        return verdict, advice

    def _ask_on_error(self, event: DeliveredEvent, error: BaseException) -> Advice:
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
            text = "%s failed: %s; and on_error of %s failed too, so the retry policy decides: %s"
            name = self.handler.name
            log_event(log, "on_error_failed", text, event, error, name, wrong, about=event, trace=wrong, handler=name)
            return None
        if isinstance(advice, Ignore):
            text = "the error of %s is ignored, as on_error says: %s"
            log_event(log, "error_ignored", text, event, error, about=event, handler=self.handler.name)
            event.ignored = True
        return advice

    def _is_event_fault(self, error: BaseException, verdict: Verdict) -> bool:
        # The result is True if the error is caused by this event alone, and not by an outage.
        # Then it says nothing about the handling of other events.
        most = self.handler.max_attempts
        exhausted = most is not None and verdict.attempts >= most
        return isinstance(error, UnrecoverableError) or (verdict.state is RowState.DEAD and not exhausted)


def guard_other_writes(call: Call) -> Call:
    """Wrap a transactional handler so that a write through a Django connection raises an error."""
    # The write would be in another transaction.

    def guarded(event: Any, conn: Any) -> Any:
        # Check at each call, because the module of a handler may import Django late.
        if "django.db" not in sys.modules:
            return call(event, conn)
        from partbox.publish.integrations.django import refuse_foreign_writes

        with refuse_foreign_writes(conn):
            return call(event, conn)

    return guarded


def _wrap_observed(call: Call, handler: Handler, observers: Observers) -> Call:
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
