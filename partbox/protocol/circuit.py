"""The circuit breaker of a handler whose downstream is away: it opens, probes, and closes.

A *failure* here is an error that says that the downstream is away (`outage`). Failures on `KEYS` different keys
without a success between them, or one `DownstreamUnavailable`, open the circuit; a lone poison event, however often it
fails, never does. While it is open no handler starts but one *probe* at a time: the first after `FIRST_PROBE` seconds,
each failed one doubling the wait up to `LONGEST_PAUSE`. The first success, of whatever event, closes it and forgets
everything.

A probe that ends with any other error says nothing of the downstream, so the next one is admitted at once; but such
errors of probes of `KEYS` different keys without a failure between them close the circuit: events fail by themselves.

What comes in while it is open moves the schedule only if it is the probe's: handlers that had started before say
nothing new. A probe that never reports back was lost, with its partition or otherwise; it is waited for `PROBE_LOST`
seconds, then another is admitted.

Times are monotonic seconds. Nothing here locks: the caller does, except that `has_failures` may be read without.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field

KEYS = 10  # different aggregate keys
FIRST_PROBE = 1.0  # seconds from the opening to the first probe
LONGEST_PAUSE = 30.0  # seconds between a failed probe and the next, at most
PROBE_LOST = 30.0  # seconds after which a silent probe is given up
SOON = 0.05  # seconds: the least wait, where a probe is due already


@dataclass(slots=True)
class Circuit:
    """The circuit breaker of one handler in one process.

    `has_failures` is true while it is open or there were failures since the last success; while it is false there is
    nothing to ask and no success to report. `probe_lost`: seconds to wait for a probe, such as the handler's timeout.
    """

    probe_lost: float = PROBE_LOST
    is_open: bool = False
    has_failures: bool = False
    _failing_keys: set[Hashable] = field(default_factory=set)
    _other_error_keys: set[Hashable] = field(
        default_factory=set
    )  # keys of probes with other errors, since the last that failed
    _probing_since: float | None = None
    _next_probe: float = 0.0
    _pause: float = FIRST_PROBE

    def failed(self, key: Hashable, now: float, *, unavailable: bool, started: float | None = None) -> bool:
        """Note a failure (see above) on an aggregate key; True if it opened the circuit.

        `unavailable`: the handler raised DownstreamUnavailable. `started`: when that handler did, the `now` it was
        admitted with; without it any failure during a probe is taken for the probe's.
        """
        if self.is_open:
            if self._is_probe(started):
                self._pause = min(2 * self._pause, LONGEST_PAUSE)
                self._next_probe, self._probing_since = now + self._pause, None
                self._other_error_keys.clear()
            return False
        self.has_failures = True
        self._failing_keys.add(key)
        if not unavailable and len(self._failing_keys) < KEYS:
            return False
        self.is_open, self._next_probe = True, now + self._pause
        return True

    def note_success(self) -> bool:
        """Note a success, of any handler's run, late ones too; True if it closed the circuit."""
        was_open = self.is_open
        self.is_open = self.has_failures = False
        self._failing_keys.clear()
        self._other_error_keys.clear()
        self._pause, self._probing_since = FIRST_PROBE, None
        return was_open

    def note_undecided(self, started: float | None = None) -> None:
        """A handler that was admitted ended with neither (it did not start after all, or asked for later).

        If it was the probe, the next one is admitted at once.
        """
        if self._is_probe(started):
            self._probing_since = None

    def note_other_error(self, key: Hashable, started: float | None = None) -> bool:
        """Note an error of another kind on an aggregate key, in a handler that was admitted; True if it closed."""
        if self.is_open and self._is_probe(started):
            self._probing_since = None
            self._other_error_keys.add(key)
            if len(self._other_error_keys) >= KEYS:
                return self.note_success()
        return False

    def try_admit(self, now: float) -> bool:
        """True if a handler may start now; while open only the probe, which is in flight from here on."""
        if not self.is_open:
            return True
        if self._next_probe_at() > now:
            return False
        self._probing_since = now
        return True

    def wait(self, now: float) -> float:
        """Seconds, never 0, to defer an event that was not admitted, or failed while open.

        Until the next probe; while one is in flight, for as long as the last pause was.
        """
        if not self.is_open:
            return SOON
        if self._probing_since is not None:
            return min(self._pause, max(self._next_probe_at() - now, SOON))
        return max(self._next_probe - now, SOON)

    def _next_probe_at(self) -> float:
        """The earliest start of the next probe; after the one in flight is given up, if there is one."""
        if self._probing_since is None:
            return self._next_probe
        return self._probing_since + self.probe_lost

    def _is_probe(self, started: float | None) -> bool:
        return self._probing_since is not None and (started is None or started >= self._probing_since)
