"""A walk: a runner's turn over the lanes that it took, and what it has delivered on it.

What is counted here costs an event a few dozen nanoseconds, and nothing where nobody observes. No clock is read for it:
a handler that ran for longer than `TRUST_SPAN` shows at the look at the lease that follows it.
"""

import time
from collections import defaultdict
from collections.abc import Iterator

from partbox.events import DeliveredEvent
from partbox.observe import QUICK, Turn
from partbox.worker.endpoint import Endpoint

LANE_TURN = 0.02  # seconds after which a lane's finished events are recorded and other lanes get their turn
TRUST_SPAN = 0.001  # the lease is looked at again when the wall clock has moved by this much; no longer than QUICK


class Walk:
    """`ends`: monotonic seconds; `looked_at`: Unix seconds of the last look at the lease; `quick`: how many events of
    each endpoint are done whose time was too short to be measured, None where nobody wants to know.

    Whoever leaves a lane sets what a call for each lane would cost too much for: `oldest`, the first event of all,
    `ended`, the last of this lane that a handler got, with its endpoint, and `started`, when that was."""

    __slots__ = (
        "_began",
        "_newest",
        "_other",
        "_timed",
        "ended",
        "ends",
        "looked_at",
        "oldest",
        "quick",
        "started",
        "timed",
    )

    def __init__(self, began: float, looked_at: float, *, counted: bool) -> None:
        self.ends = began + LANE_TURN
        self.looked_at = looked_at
        self.quick: defaultdict[Endpoint, int] | None = None
        if counted:
            self.quick = defaultdict(int)
            self.timed: DeliveredEvent | None = None  # the last one whose time is known
            self._timed: defaultdict[Endpoint, list[float]] = defaultdict(list)
            self._other = 0.0  # seconds that handlers ran without success
            self._began = began
            self._newest: DeliveredEvent | None = None
            self.oldest: DeliveredEvent | None = None
            self.ended: tuple[Endpoint, DeliveredEvent] | None = None
            self.started = 0.0

    def passed(self, endpoint: Endpoint, event: DeliveredEvent, started: float) -> None:
        """Time has passed since the last look: it may have been this event's handler, which has ended just now."""
        seconds = time.monotonic() - started
        if seconds >= QUICK and event is not self.timed and self.quick is not None:
            self.timed = event
            self.quick[endpoint] -= 1
            self._timed[endpoint].append(seconds)

    def passed_between(self) -> None:
        """The same where the event was the last of the lane before."""
        if self.ended is not None:
            (endpoint, event), self.ended = self.ended, None
            self._newest = event
            self.passed(endpoint, event, self.started)

    def ran(self, endpoint: Endpoint, event: DeliveredEvent, seconds: float, *, done: bool) -> None:
        """A handler ran for so long; whether its event is done."""
        self.timed = event
        if not done:
            self._other += seconds
            return
        self._timed[endpoint].append(seconds)
        self._newest = event
        if self.oldest is None:
            self.oldest = event

    def turns(self) -> Iterator[Turn]:
        """What was delivered since this was asked last, an endpoint each. The time that no handler is known for is
        shared by the quick ones."""
        if self.quick is None:
            return
        self.passed_between()
        if self.oldest is None or self._newest is None:
            return
        known = self._other + sum(map(sum, self._timed.values()))
        share = max(0.0, time.monotonic() - self._began - known) / max(1, sum(self.quick.values()))
        oldest, newest, ended = published_at(self.oldest), published_at(self._newest), time.time()
        for endpoint in {**self.quick, **self._timed}:
            quick, timed = self.quick.get(endpoint, 0), self._timed.get(endpoint, ())
            yield Turn(
                endpoint.handler.name,
                quick + len(timed),
                sum(timed) + quick * min(share, QUICK),
                [seconds for seconds in timed if seconds >= QUICK],
                oldest,
                newest,
                ended,
            )
        self.quick.clear()
        self._timed.clear()
        self._other, self._began = 0.0, time.monotonic()
        self.oldest = self._newest = None


def published_at(event: DeliveredEvent) -> float:
    """Unix seconds at which it was published."""
    return int.from_bytes(event._row[13], "big") / 1e6 + 946_684_800.0
