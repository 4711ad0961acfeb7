"""The circuit breaker of a handler, which stops calls to a downstream service that is away.

A *failure* here is an error that says that the downstream is away (`outage`). The circuit opens after failures on
`KEYS` different keys without a success in between, or after one `DownstreamUnavailable`. A single poison event never
opens the circuit, however often it fails. While the circuit is open, no handler starts except for one *probe* at a
time. The first probe starts after `FIRST_PROBE` seconds, and each failed probe doubles the pause, up to
`LONGEST_PAUSE`. The first success of any event closes the circuit and resets the breaker.

With `circuit_by` a handler has one circuit for each value, such as each customer (`ValueCircuits`). It opens after
`VALUE_FAILURES` failures without a success in between, of whatever events, because a value may have a single key.

Times are monotonic seconds. The caller holds a lock for every call, except to read `has_failures`."""

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

KEYS = 10  # different aggregate keys
VALUE_FAILURES = 3  # failures of a value, or probes of it that end with other errors
FIRST_PROBE = 1.0  # seconds from the opening to the first probe
LONGEST_PAUSE = 30.0  # seconds between a failed probe and the next probe, at most
VALUE_PAUSE = 300.0  # the same for a value: there may be thousands, and each probe takes the place of another event
MAX_VALUES = 4_096  # values of one handler whose failures are remembered
PROBE_LOST = 30.0  # seconds without a report after which a probe counts as lost
SOON = 0.05  # seconds: the shortest delay, used if a probe is due already


@dataclass(slots=True)
class Circuit:
    """A circuit breaker that stops calls to one handler in one process while its downstream service is away."""

    # `has_failures` is True while the circuit is open, or if there were failures since the last success. While
    # `has_failures` is False, callers need neither ask for admission nor report successes. `probe_lost` is the time in
    # seconds to wait for a probe (a trial call), for example the handler's timeout. `of_value` means that it is the
    # circuit of a single value. `opened_at` is the time at which it opened last.

    probe_lost: float = PROBE_LOST
    of_value: bool = False
    is_open: bool = False
    has_failures: bool = False
    opened_at: float = 0.0
    _failing_keys: set[Hashable] = field(default_factory=set)
    # Keys of probes that ended with other errors since the last probe that failed.
    _other_error_keys: set[Hashable] = field(default_factory=set)
    _probing_since: float | None = None
    _next_probe: float = 0.0
    _pause: float = FIRST_PROBE

    def note_failure(self, key: Hashable, now: float, *, unavailable: bool, started: float | None = None) -> bool:
        """Record a failure of the downstream service. Return True if this failure opened the circuit."""
        # While the circuit is open, only results of the probe change the schedule, because handlers that started
        # earlier report nothing new.
        # `key` is the aggregate of the event. `unavailable` means that the handler raised `DownstreamUnavailable`.
        # `started` is the time at which the handler was admitted. Without `started`, any failure during a probe (a
        # trial call) is attributed to the probe.
        if self.is_open:
            if self._is_probe(started):
                self._pause = min(2 * self._pause, VALUE_PAUSE if self.of_value else LONGEST_PAUSE)
                self._next_probe, self._probing_since = now + self._pause, None
                self._other_error_keys.clear()
            return False
        self.has_failures = True
        self._failing_keys.add(key)
        if not unavailable and len(self._failing_keys) < self._threshold:
            return False
        self.is_open, self.opened_at, self._next_probe = True, now, now + self._pause
        return True

    def note_success(self) -> bool:
        """Close the circuit because a call succeeded. Return True if the circuit was open."""
        # A call that started long ago closes the circuit, too.
        was_open = self.is_open
        self.is_open = self.has_failures = False
        self._failing_keys.clear()
        self._other_error_keys.clear()
        self._pause, self._probing_since = FIRST_PROBE, None
        return was_open

    def note_undecided(self, started: float | None = None) -> None:
        """Record a call that says nothing about the service: the handler did not start, or asked for a retry later."""
        # If the handler was the probe, the next probe is admitted at once.
        if self._is_probe(started):
            self._probing_since = None

    def note_other_error(self, key: Hashable, started: float | None = None) -> bool:
        """Record a handler error unrelated to the downstream service. Return True if this closed the circuit."""
        # A probe that ends with such an error says nothing about the downstream, so the next probe is admitted at once.
        # If probes of `KEYS` different keys end with such errors, without a failure in between, the circuit closes: the
        # events themselves are at fault.
        # The error of the admitted call does not say that the downstream is away.
        if self.is_open and self._is_probe(started):
            self._probing_since = None
            self._other_error_keys.add(key)
            if len(self._other_error_keys) >= self._threshold:
                return self.note_success()
        return False

    def try_admit(self, now: float) -> bool:
        """Return True if a handler may start now. While the circuit is open, only one trial call at a time may."""
        # A probe may never report back, for example because its partition was lost. Another probe is then admitted
        # after `probe_lost` seconds.
        # The trial call (probe) finds out whether the downstream service is back.
        if not self.is_open:
            return True
        if self.next_probe_at() > now:
            return False
        self.begin_probe(now)
        return True

    def begin_probe(self, now: float) -> None:
        """Record that a call starts at `now` to find out whether the downstream service is back."""
        self._probing_since = now

    def compute_delay(self, now: float) -> float:
        """Return the seconds, never 0, by which to delay an event while the circuit is open."""
        # The event was not admitted or failed while the circuit was open. The delay lasts until the next probe (trial
        # call). While a probe is in flight, the delay is as long as the last pause.
        if not self.is_open:
            return SOON
        if self._probing_since is not None:
            return min(self._pause, max(self.next_probe_at() - now, SOON))
        return max(self._next_probe - now, SOON)

    def next_probe_at(self) -> float:
        """Return the time at which the next trial call may start while the circuit is open."""
        if self._probing_since is None:
            return self._next_probe
        return self._probing_since + self.probe_lost

    @property
    def _threshold(self) -> int:
        return VALUE_FAILURES if self.of_value else KEYS

    def _is_probe(self, started: float | None) -> bool:
        return self._probing_since is not None and (started is None or started >= self._probing_since)


class OpenCircuit(NamedTuple):
    """The circuit of a value that is open: since when, and the time of its next probe."""

    value: Hashable
    opened_at: float
    probe_at: float


class ValueCircuits:
    """The circuits of one handler in one process, one for each value, such as each customer. Each has failures.

    Beyond `MAX_VALUES` values the one that failed the longest ago is forgotten, a closed one if there is one. A
    forgotten circuit starts anew."""

    def __init__(self, probe_lost: float) -> None:
        self._probe_lost = probe_lost
        # The value that failed last is the last one.
        self._circuits: OrderedDict[Hashable, Circuit] = OrderedDict()

    def __len__(self) -> int:
        return len(self._circuits)

    def find(self, value: Hashable) -> Circuit | None:
        """Return the circuit of a value, or None if the value had no failure since its last success."""
        return self._circuits.get(value)

    def ensure(self, value: Hashable) -> tuple[Circuit, Hashable]:
        """Return the circuit of a value that fails, and the value whose open circuit was forgotten for it, if any."""
        # Without a forgotten open circuit the second value is that of the circuit itself.
        found, forgotten = self._circuits.get(value), value
        if found is None:
            if len(self._circuits) >= MAX_VALUES:
                closed = next((each for each, circuit in self._circuits.items() if not circuit.is_open), None)
                oldest = next(iter(self._circuits)) if closed is None else closed
                forgotten = oldest if self._circuits.pop(oldest).is_open else value
            found = self._circuits[value] = Circuit(self._probe_lost, of_value=True)
        self._circuits.move_to_end(value)
        return found, forgotten

    def drop_healthy(self, value: Hashable) -> None:
        """Forget the circuit of a value that has no failures any more."""
        if (found := self._circuits.get(value)) is not None and not found.has_failures:
            del self._circuits[value]

    def find_open(self, value: Hashable) -> OpenCircuit | None:
        """Return the circuit of a value if it is open, else None."""
        found = self._circuits.get(value)
        return (
            OpenCircuit(value, found.opened_at, found.next_probe_at()) if found is not None and found.is_open else None
        )

    def list_open(self) -> Iterator[OpenCircuit]:
        """Return the open circuits, the one that failed the longest ago first."""
        return (each for value in self._circuits if (each := self.find_open(value)) is not None)
