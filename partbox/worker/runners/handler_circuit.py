"""Stop the calls of one handler while its downstream service is away, for all runners of a worker process."""

import logging
import random
import threading
import time
from collections.abc import Callable, Hashable
from datetime import UTC, datetime
from itertools import islice
from typing import cast

from partbox.errors import DownstreamUnavailable
from partbox.events import DeliveredEvent
from partbox.handlers import Handler
from partbox.observe import Observers
from partbox.observe.logs.log_event import log_event
from partbox.outcomes import RetryAfter
from partbox.protocol.circuit import PROBE_LOST, Circuit, OpenCircuit, ValueCircuits
from partbox.protocol.limit_addresses import EventKeys, LimitAddress, LimitKind, describe_wait
from partbox.protocol.limit_values import format_limit_value
from partbox.protocol.verdict import Deferral
from partbox.worker.engine.evicted_rows import CLOSED_SECONDS
from partbox.worker.engine.key import key_of
from partbox.worker.engine.limited_queue import NextProbe

log = logging.getLogger("partbox.worker")

WAIT_SPREAD = (1.0, 1.2)  # factors of the wait for a circuit


class HandlerCircuit:
    """The circuit breaker of one handler in one worker process, or its circuits of values with `circuit_by`. Any thread
    may use it."""

    # `lock` guards the circuits. `on_change` is called with the lock held each time that `has_failures` may have
    # changed, so that the endpoint changes its `is_plain` in the same step. `has_failures` is read without the lock.

    __slots__ = (
        "_changed",
        "_circuit",
        "_handler",
        "_last_outage",
        "_observers",
        "_on_change",
        "_value_circuits",
        "lock",
    )

    def __init__(self, handler: Handler, observers: Observers, on_change: Callable[[], None]) -> None:
        self._handler = handler
        self._observers = observers
        self._on_change = on_change
        probe_lost = max(PROBE_LOST, handler.timeout or 0.0)
        self._circuit = Circuit(probe_lost)
        # With `circuit_by`, in place of the circuit above.
        self._value_circuits = None if handler.circuit_by is None else ValueCircuits(probe_lost)
        # Circuits of values whose events may wait or go on now.
        self._changed: list[LimitAddress] = []
        # The last error that said that the downstream is away.
        self._last_outage = ""
        self.lock = threading.Lock()

    @property
    def has_failures(self) -> bool:
        """True if a circuit is open or has failed since its last success."""
        # Otherwise callers need neither ask for admission nor report successes.
        return bool(self._value_circuits) or self._circuit.has_failures

    @property
    def is_held_up(self) -> bool:
        """True if no event of the handler can be handled now, because its circuit is open."""
        return self._circuit.is_open

    def find_refusal(self, event: DeliveredEvent, now: float, *, is_probe: bool) -> Deferral | None:
        """Return None if the handler may be called, else a deferral of the event."""
        # See `Endpoint.find_refusal`, which need not ask while there are no failures.
        # Of several runners only one gets the probe.
        with self.lock:
            circuit = self._find_circuit(event)
            if circuit is None or not circuit.is_open:
                return None
            if self._value_circuits is None:
                if circuit.try_admit(now):
                    return None
                reason = f"{self._handler.name} waits for its downstream: {self._last_outage}"
                return Deferral(self._compute_wait(circuit, now), reason, is_wait=True)
            if is_probe:
                circuit.begin_probe(now)
                return None
        # The circuit opened when the event had its permit already. The event comes back for a probe, or when the
        # circuit closes.
        return Deferral(CLOSED_SECONDS, self._describe_wait(event), waits=True)

    def find_deferral(self, event: DeliveredEvent, error: str | None) -> Deferral | None:
        """Return the deferral of an event whose call failed in an outage, or None if the circuit is not open."""
        now = time.monotonic()
        # Other runners change the circuit meanwhile.
        with self.lock:
            circuit = self._find_circuit(event)
            if circuit is None or not circuit.is_open:
                return None
            wait = self._compute_wait(circuit, now)
        if self._value_circuits is None:
            return Deferral(wait, error or "")
        reason = f"{self._describe_wait(event)}; the last error was {error}"
        return Deferral(CLOSED_SECONDS, reason, waits=True)

    def take_changed(self) -> list[LimitAddress]:
        """Return the circuits of values that have changed, once, so that their events wait or go on."""
        if not self._changed:
            return []
        # Each change is taken once.
        with self.lock:
            changed, self._changed = self._changed, []
        return changed

    def find_next_probe(self, address: LimitAddress) -> NextProbe | None:
        """Return the next probe of the circuit of a value, or None if it is not open."""
        if self._value_circuits is None:
            return None
        # Runners add and remove circuits meanwhile.
        with self.lock:
            found = self._value_circuits.find_open(address.value)
        if found is None:
            return None
        since = datetime.fromtimestamp(time.time() - (time.monotonic() - found.opened_at), UTC)
        return NextProbe(found.probe_at, f"{since:%Y-%m-%d %H:%M:%S} UTC")

    def list_open(self) -> list[OpenCircuit]:
        """Return the open circuits of values, the one that failed the longest ago first."""
        if not self._value_circuits:
            return []
        # Runners add and remove circuits meanwhile.
        with self.lock:
            return [*self._value_circuits.list_open()]

    def note_failure(self, event: DeliveredEvent, error: BaseException, details: str, started: float | None) -> None:
        """Record a call that failed because the downstream service is away."""
        unavailable, now = issubclass(type(error), DownstreamUnavailable), time.monotonic()
        # The failure and the opening of the circuit are one step for other runners.
        with self.lock:
            self._last_outage = details
            if self._value_circuits is None:
                circuit, token = self._circuit, cast(Hashable, key_of(event))
            else:
                address = _circuit_of(event, self._handler)
                circuit, forgotten = self._value_circuits.ensure(address.value)
                # Each failure counts, also of one event.
                token = event.id, event.attempt
                self._changed += {address, address._replace(value=forgotten)}
            before = self._count_open()
            opened = circuit.note_failure(token, now, unavailable=unavailable, started=started)
            self._on_change()
        if opened:
            if not before:
                self._observers.circuit(self._handler.name, True)
            text = (
                "the circuit of %s%s is open: its events are deferred, and one is tried now and then until one "
                "succeeds; the last error was %s: %s"
            )
            self._log_circuit("circuit_open", text, self._describe_value(event), type(error).__name__, error)

    def note_outcome(self, event: DeliveredEvent, outcome: object, started: float | None) -> None:
        """Record a call that raised no error."""
        # RetryAfter counts neither as success nor as failure, because it may hide an error.
        if isinstance(outcome, RetryAfter):
            self.note_undecided(event, started)
        elif self.has_failures and not isinstance(outcome, Deferral):
            # A runner that sees the circuit closed must find the handler plain again.
            with self.lock:
                circuit = self._find_circuit(event)
                closed = circuit is not None and circuit.note_success()
                self._forget_failures(event)
            if closed:
                self._report_closed(event, "the circuit of %s%s is closed again")

    def note_event_fault(self, event: DeliveredEvent, started: float | None) -> None:
        """Record a call that failed because of the event itself, and not because of an outage."""
        # A probe that fails so says nothing about the downstream service.
        if not self.has_failures or started is None:
            return
        # As for a success: the circuit and `is_plain` change together.
        with self.lock:
            circuit = self._find_circuit(event)
            closed = circuit is not None and circuit.note_other_error(key_of(event), started)
            self._forget_failures(event)
        if closed:
            text = "the circuit of %s%s is closed again: events fail, but not because its downstream is unavailable"
            self._report_closed(event, text)

    def note_undecided(self, event: DeliveredEvent, started: float | None) -> None:
        """Record a call that ended without evidence of success or failure."""
        # The call did not show whether the handler's downstream service works.
        if self.has_failures and started is not None:
            # The probe is given back, and the next runner may take it.
            with self.lock:
                if (circuit := self._find_circuit(event)) is not None:
                    circuit.note_undecided(started)
                    self._forget_failures(event)

    def _find_circuit(self, event: DeliveredEvent) -> Circuit | None:
        # The caller holds the lock. None means that the value of the event has no failures.
        if self._value_circuits is None:
            return self._circuit
        return self._value_circuits.find(_circuit_of(event, self._handler).value)

    @staticmethod
    def _compute_wait(circuit: Circuit, now: float) -> float:
        """Return the seconds until a deferred event is tried again, spread at random. The caller holds the lock."""
        # If all events came back at once, the event with the lowest id would always be the probe, and an error of its
        # own would keep the circuit open forever.
        return circuit.compute_delay(now) * random.uniform(*WAIT_SPREAD)

    def _describe_wait(self, event: DeliveredEvent) -> str:
        # Only for a handler with a circuit for each value.
        address = _circuit_of(event, self._handler)
        probe = self.find_next_probe(address)
        return describe_wait((address, None), open_since=None if probe is None else probe.open_since)

    def _forget_failures(self, event: DeliveredEvent) -> None:
        # After a call that was no failure. The caller holds the lock.
        if self._value_circuits is not None:
            address = _circuit_of(event, self._handler)
            if self._value_circuits.find(address.value) is not None:
                self._changed.append(address)
                self._value_circuits.drop_healthy(address.value)
        self._on_change()

    def _count_open(self) -> int:
        # The caller holds the lock. One is enough.
        found = (
            (self._circuit.is_open,) if self._value_circuits is None else islice(self._value_circuits.list_open(), 1)
        )
        return sum(map(bool, found))

    def _report_closed(self, event: DeliveredEvent, text: str) -> None:
        # Runners open other circuits meanwhile.
        with self.lock:
            is_open = self._count_open() > 0
        if not is_open:
            self._observers.circuit(self._handler.name, False)
        self._log_circuit("circuit_closed", text, self._describe_value(event))

    def _describe_value(self, event: DeliveredEvent) -> str:
        if self._value_circuits is None:
            return ""
        return f" for the value {format_limit_value(_circuit_of(event, self._handler).value)!r}"

    def _log_circuit(self, name: str, text: str, *arguments: object) -> None:
        handler = self._handler
        log_event(log, name, text, handler.name, *arguments, subscription=handler.subscription, handler=handler.name)


def _circuit_of(event: DeliveredEvent, handler: Handler) -> LimitAddress:
    keys: EventKeys | None = getattr(event, "limit_keys", None)
    return LimitAddress(LimitKind.CIRCUIT, handler.name, None) if keys is None else keys.circuit
