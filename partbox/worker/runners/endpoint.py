"""Call one handler with its interceptors, guard it with its circuit, and judge its outcome."""

import logging
import random
import sys
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from contextvars import Context, copy_context
from dataclasses import replace
from datetime import UTC, datetime
from enum import Enum
from functools import partial
from itertools import islice
from typing import Any, cast

from partbox.callables import Call
from partbox.errors import DownstreamUnavailable, NewerVersionError, UnrecoverableError
from partbox.events import DeliveredEvent
from partbox.handlers import Handler
from partbox.handlers.transactional import TransactionKind
from partbox.interceptors import wrap_call
from partbox.observe import Observers
from partbox.observe.logs.log_event import log_event
from partbox.outcomes import Advice, Dead, Done, Ignore, RetryAfter
from partbox.protocol.circuit import PROBE_LOST, Circuit, OpenCircuit, ValueCircuits
from partbox.protocol.limit_addresses import EventKeys, LimitAddress, LimitKind, describe_wait
from partbox.protocol.limit_values import format_limit_value
from partbox.protocol.outage import is_outage
from partbox.protocol.parking import RowState
from partbox.protocol.rows import IgnoredEvent
from partbox.protocol.verdict import FALLBACK_DELAY, Deferral, Verdict, build_outcome_error, describe, judge_result
from partbox.text.wording import format_count
from partbox.worker.engine.key import key_of
from partbox.worker.engine.limited_queue import CLOSED_SECONDS, NextProbe
from partbox.worker.reports.unroutable import NewerVersionWarning
from partbox.worker.runners.event_loop import begin_handler, run_in_context
from partbox.worker.runners.traceback import trace_of

log = logging.getLogger("partbox.worker")

WAIT_SPREAD = (1.0, 1.2)  # factors of the wait for a circuit
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
    # handler, or LIMITED while the handler has a limit. Runners read both without the lock, which guards the circuit.

    __slots__ = (
        "_changed_circuits",
        "_circuit",
        "_hears_each",
        "_last_outage",
        "_limit",
        "_lock",
        "_may_be_plain",
        "_newer_versions",
        "_observers",
        "_value_circuits",
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
        probe_lost = max(PROBE_LOST, handler.timeout or 0.0)
        self._circuit = Circuit(probe_lost)
        # With `circuit_by`, in place of the circuit above.
        self._value_circuits = None if handler.circuit_by is None else ValueCircuits(probe_lost)
        # Circuits of values whose events may wait or go on now.
        self._changed_circuits: list[LimitAddress] = []
        # The last error that said that the downstream is away.
        self._last_outage = ""
        self._lock = threading.Lock()
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
        with self._lock:
            self.run_kind = kind
            self._may_be_plain = kind in (RunKind.SYNC, RunKind.ASYNC) and not self._hears_each
            self.is_plain = self._may_be_plain and not self._has_failures

    @property
    def _has_failures(self) -> bool:
        return bool(self._value_circuits) or self._circuit.has_failures

    @property
    def is_uneventful(self) -> bool:
        """True if a success of the handler need not be recorded or reported."""
        # That is so if the circuit breaker has no failures, and no observer follows single events.
        return not (self._has_failures or self._hears_each)

    @property
    def is_held_up(self) -> bool:
        """True if no event of the handler can be handled now, because its circuit is open."""
        return self._circuit.is_open

    def find_refusal(self, event: DeliveredEvent, now: float, *, is_probe: bool = False) -> Deferral | None:
        """Return None if the circuit breaker lets the handler be called, else a deferral of the event."""
        # After None the caller must call the handler. An open circuit admits one probe now and then. `now` (monotonic
        # seconds) must be the `started` that `judge` gets later. `is_probe` means that the event has the permit for
        # the probe of its value.
        if not self._has_failures:
            return None
        # Of several runners only one gets the probe.
        with self._lock:
            circuit = self._find_circuit(event)
            if circuit is None or not circuit.is_open:
                return None
            if self._value_circuits is None:
                if circuit.try_admit(now):
                    return None
                reason = f"{self.handler.name} waits for its downstream: {self._last_outage}"
                return Deferral(self._compute_wait(circuit, now), reason, is_wait=True)
            if is_probe:
                circuit.begin_probe(now)
                return None
        # The circuit opened when the event had its permit already. The event comes back for a probe, or when the
        # circuit closes.
        return Deferral(CLOSED_SECONDS, self._describe_wait(event), waits=True)

    def _find_circuit(self, event: DeliveredEvent) -> Circuit | None:
        # The caller holds the lock. None means that the value of the event has no failures.
        if self._value_circuits is None:
            return self._circuit
        return self._value_circuits.find(_circuit_of(event, self.handler).value)

    def take_changed_circuits(self) -> list[LimitAddress]:
        """Return the circuits of values that have changed, once, so that their events wait or go on."""
        if not self._changed_circuits:
            return []
        with self._lock:
            changed, self._changed_circuits = self._changed_circuits, []
        return changed

    def find_next_probe(self, address: LimitAddress) -> NextProbe | None:
        """Return the next probe of the circuit of a value, or None if it is not open."""
        if self._value_circuits is None:
            return None
        with self._lock:
            found = self._value_circuits.find_open(address.value)
        if found is None:
            return None
        since = datetime.fromtimestamp(time.time() - (time.monotonic() - found.opened_at), UTC)
        return NextProbe(found.probe_at, f"{since:%Y-%m-%d %H:%M:%S} UTC")

    def list_open_circuits(self) -> list[OpenCircuit]:
        """Return the open circuits of values, the one that failed the longest ago first."""
        if not self._value_circuits:
            return []
        with self._lock:
            return [*self._value_circuits.list_open()]

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
            self._note_outcome(event, result, started)
            return judge_result(self.handler, attempts, result, self._limit)
        # Not a failure of the handler, so `on_error` and the policy are not asked.
        if issubclass(type(result), NewerVersionError):
            self.note_undecided(event, started)
            verdict = judge_result(self.handler, attempts, self.handler.newer(event, str(result)), self._limit)
            self._newer_versions.warn(event, result, self.handler.name, verdict)
            return verdict
        verdict, advice = self._judge_by_policy(event, result, text)
        if self.handler.circuit is None:
            return verdict
        if not is_outage(result, self.handler.circuit):
            # The circuit never spares such an event: its last attempt is the last.
            self._note_event_fault(event, started)
            return verdict
        if advice is not None or verdict is None or self._is_event_fault(result, verdict):
            self.note_undecided(event, started)
            return verdict
        if counts_failure:
            self._note_failure(event, result, verdict.error or "", started)
        now = time.monotonic()
        # Other runners change the circuit meanwhile.
        with self._lock:
            circuit = self._find_circuit(event)
            if circuit is None or not circuit.is_open:
                return verdict
            wait = self._compute_wait(circuit, now)
        if self._value_circuits is None:
            return self.build_deferral_verdict(event, Deferral(wait, verdict.error or ""))
        reason = f"{self._describe_wait(event)}; the last error was {verdict.error}"
        return self.build_deferral_verdict(event, Deferral(CLOSED_SECONDS, reason, waits=True))

    def _describe_wait(self, event: DeliveredEvent) -> str:
        # Only for a handler with a circuit for each value.
        address = _circuit_of(event, self.handler)
        probe = self.find_next_probe(address)
        return describe_wait((address, None), open_since=None if probe is None else probe.open_since)

    @staticmethod
    def _compute_wait(circuit: Circuit, now: float) -> float:
        """Return the seconds until a deferred event is tried again, spread at random. The caller holds the lock."""
        # If all events came back at once, the event with the lowest id would always be the probe, and an error of its
        # own would keep the circuit open forever.
        return circuit.compute_delay(now) * random.uniform(*WAIT_SPREAD)

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

    def _note_failure(self, event: DeliveredEvent, error: BaseException, details: str, started: float | None) -> None:
        unavailable, now = issubclass(type(error), DownstreamUnavailable), time.monotonic()
        # The failure and the opening of the circuit are one step for other runners.
        with self._lock:
            self._last_outage = details
            if self._value_circuits is None:
                circuit, token = self._circuit, cast(Hashable, key_of(event))
            else:
                address = _circuit_of(event, self.handler)
                circuit, forgotten = self._value_circuits.ensure(address.value)
                # Each failure counts, also of one event.
                token = event.id, event.attempt
                self._changed_circuits += {address, address._replace(value=forgotten)}
            before = self._count_open()
            opened = circuit.note_failure(token, now, unavailable=unavailable, started=started)
            self.is_plain = False
        if opened:
            if not before:
                self._observers.circuit(self.handler.name, True)
            text = (
                "the circuit of %s%s is open: its events are deferred, and one is tried now and then until one "
                "succeeds; the last error was %s: %s"
            )
            self._log_circuit("circuit_open", text, self._describe_value(event), type(error).__name__, error)

    def _note_outcome(self, event: DeliveredEvent, outcome: object, started: float | None) -> None:
        # RetryAfter counts neither as success nor as failure, because it may hide an error.
        if isinstance(outcome, RetryAfter):
            self.note_undecided(event, started)
        elif self._has_failures and not isinstance(outcome, Deferral):
            # A runner that sees the circuit closed must find the handler plain again.
            with self._lock:
                circuit = self._find_circuit(event)
                closed = circuit is not None and circuit.note_success()
                self._forget_failures(event)
            if closed:
                self._report_closed(event, "the circuit of %s%s is closed again")

    def _note_event_fault(self, event: DeliveredEvent, started: float | None) -> None:
        # The event itself has caused the failure, not an outage.
        # A probe that fails so says nothing about the downstream service.
        if not self._has_failures or started is None:
            return
        # As for a success: the circuit and `is_plain` change together.
        with self._lock:
            circuit = self._find_circuit(event)
            closed = circuit is not None and circuit.note_other_error(key_of(event), started)
            self._forget_failures(event)
        if closed:
            text = "the circuit of %s%s is closed again: events fail, but not because its downstream is unavailable"
            self._report_closed(event, text)

    def note_undecided(self, event: DeliveredEvent, started: float | None) -> None:
        """Tell the circuit breaker that a call has ended without evidence of success or failure."""
        # The call did not show whether the handler's downstream service works.
        if self._has_failures and started is not None:
            # The probe is given back, and the next runner may take it.
            with self._lock:
                if (circuit := self._find_circuit(event)) is not None:
                    circuit.note_undecided(started)
                    self._forget_failures(event)

    def _forget_failures(self, event: DeliveredEvent) -> None:
        # After a call that was no failure. The caller holds the lock.
        if self._value_circuits is not None:
            address = _circuit_of(event, self.handler)
            if self._value_circuits.find(address.value) is not None:
                self._changed_circuits.append(address)
                self._value_circuits.drop_healthy(address.value)
        self.is_plain = self._may_be_plain and not self._has_failures

    def _count_open(self) -> int:
        # The caller holds the lock. One is enough.
        found = (
            (self._circuit.is_open,) if self._value_circuits is None else islice(self._value_circuits.list_open(), 1)
        )
        return sum(map(bool, found))

    def _report_closed(self, event: DeliveredEvent, text: str) -> None:
        with self._lock:
            is_open = self._count_open() > 0
        if not is_open:
            self._observers.circuit(self.handler.name, False)
        self._log_circuit("circuit_closed", text, self._describe_value(event))

    def _describe_value(self, event: DeliveredEvent) -> str:
        if self._value_circuits is None:
            return ""
        return f" for the value {format_limit_value(_circuit_of(event, self.handler).value)!r}"

    def _log_circuit(self, name: str, text: str, *arguments: object) -> None:
        handler = self.handler
        log_event(log, name, text, handler.name, *arguments, subscription=handler.subscription, handler=handler.name)


def _circuit_of(event: DeliveredEvent, handler: Handler) -> LimitAddress:
    keys: EventKeys | None = getattr(event, "limit_keys", None)
    return LimitAddress(LimitKind.CIRCUIT, handler.name, None) if keys is None else keys.circuit


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
