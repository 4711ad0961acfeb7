"""The queues of handlers with limits in one process. Processes divide a limit without talking to each other.

The share of a process in each limit is the fraction of the partitions that it owns. The database assigns each partition
to one owner only, so all shares together make up the limit. However partitions move, there are no more starts than the
rate allows, plus the starts of one second."""

import heapq
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping
from math import ceil, inf
from typing import Final, Generic, NamedTuple, TypeVar

from partbox.protocol.limit_addresses import LimitAddress, LimitKey
from partbox.protocol.limits import Limit

T = TypeVar("T")

ALMOST_ONE: Final = 1 - 1e-6  # a whole start, less the rounding error of a sum of fractions
FORGET_PROBES: Final = 2  # idle buckets that are examined, and perhaps forgotten, each time a bucket becomes idle
# Seconds after which another probe of an open circuit starts, if nothing was heard of the one before.
PROBE_LOST: Final = 30.0


class ProcessBounds(NamedTuple):
    """The part of a handler's rate and concurrency limits that one process may use."""

    # `pace` is the starts per second (None for no limit), `max_saved` the starts saved up at most, and `max_running`
    # the simultaneous calls. A pace of 0 starts nothing, except one probe at the time `probe_at`.

    pace: float | None
    max_saved: float
    max_running: float
    probe_at: float = inf

    @classmethod
    def from_limit(cls, limit: Limit, share: float) -> "ProcessBounds":
        """Return the part of a handler's limit for a process that owns the fraction `share` of the partitions."""
        # A process saves up starts of a rate for one second, or a single start if that is more.
        # `share` is 0 to 1. With a share of 0, or a rate of 0, nothing starts.
        if share <= 0 or (limit.rate is not None and not limit.rate):
            return cls(0.0, 0.0, 0.0)
        pace = None if limit.rate is None else limit.rate * share
        return cls(
            pace, 0.0 if pace is None else max(1.0, pace), inf if limit.at_once is None else ceil(limit.at_once * share)
        )

    @classmethod
    def for_probe(cls, at: float) -> "ProcessBounds":
        """Return the bounds that let a single call start at the time `at`, and no other until it has ended."""
        return cls(0.0, 0.0, 1.0, at)

    @property
    def is_closed(self) -> bool:
        """True if nothing may start but a probe now and then."""
        return self.pace == 0


class Bucket(Generic[T]):
    """A queue of calls that wait for a handler's rate or concurrency limit, for example the calls of one tenant."""

    # There is one queue for each value by which the limit is divided. `saved_starts` is the number of starts saved up
    # at the time `settled_at`.

    __slots__ = ("first_count", "is_scheduled", "running_count", "saved_starts", "settled_at", "waiting")

    def __init__(self, saved: float, at: float) -> None:
        self.saved_starts = saved
        self.settled_at = at
        self.running_count = 0
        # True if the bucket is in the rotation, or is delayed until it may be.
        self.is_scheduled = False
        self.waiting: deque[T] = deque()
        # The number of items at the head of `waiting` that were added with `first=True`.
        self.first_count = 0

    def accrue_starts(self, bounds: ProcessBounds, now: float) -> None:
        """Add the starts that the rate limit has granted since the last call."""
        # The bucket saves them up.
        if bounds.pace is not None:
            self.saved_starts = min(bounds.max_saved, self.saved_starts + bounds.pace * max(0.0, now - self.settled_at))
        self.settled_at = max(now, self.settled_at)

    def compute_wait(self, bounds: ProcessBounds, now: float) -> float:
        """Return the seconds until a limited call may start, 0 for now, or infinity if time alone cannot allow it."""
        # The wait is infinite if something other than time must change first.
        # An example is the end of a running call.
        if self.running_count >= bounds.max_running:
            return inf
        if bounds.is_closed:
            return max(0.0, bounds.probe_at - now)
        self.accrue_starts(bounds, now)
        if bounds.pace is None or self.saved_starts >= ALMOST_ONE:
            return 0.0
        return (1 - self.saved_starts) / bounds.pace


class LimitedHandler(Generic[T]):
    """A handler with a rate or concurrency limit, and its queues of waiting calls, for example one per tenant.

    There is one queue for each value by which the limit is divided. A fresh queue stands for a value never used."""

    def __init__(self, limit: Limit, share: float, now: float) -> None:
        self.limit = limit
        self.bounds = ProcessBounds.from_limit(limit, share)
        self.fresh_bucket = Bucket[T](0.0, now)
        self.buckets: dict[Hashable, Bucket[T]] = {}
        self._idle: dict[Hashable, None] = {}

    def ensure_bucket(self, value: Hashable, now: float) -> Bucket[T]:
        """Return the queue of calls for a value such as a tenant id, and create the queue if there is none."""
        # The limit is divided by such values.
        # A new bucket starts with the saved starts of a fresh bucket.
        # The bucket also has the saved starts.
        self._idle.pop(value, None)
        if (found := self.buckets.get(value)) is None:
            self.fresh_bucket.accrue_starts(self.bounds, now)
            found = self.buckets[value] = Bucket(self.fresh_bucket.saved_starts, now)
        return found

    def change_limit(self, limit: Limit, share: float, now: float) -> None:
        """Change the handler's limit and the process's share of it from now on."""
        # A process begins with no saved starts, and a change of its share reduces saved starts and never adds any.
        # Otherwise moving partitions could allow more starts than the rate does.
        # Excess saved starts are cut when a bucket is next settled.
        for each in (self.fresh_bucket, *self.buckets.values()):
            each.accrue_starts(self.bounds, now)
        self.limit = limit
        # The probe of a circuit does not depend on the share.
        if self.bounds.probe_at == inf:
            self.bounds = ProcessBounds.from_limit(limit, share)

    def note_idle(self, value: Hashable, now: float) -> None:
        """Record that no call for this value waits or runs, and free the memory of idle queues."""
        # Memory is bounded, because idle buckets are forgotten.
        # A bucket is freed once it has saved as many starts as a fresh bucket.
        self._idle[value] = None
        self.fresh_bucket.accrue_starts(self.bounds, now)
        for idle in [each for each, _ in zip(self._idle, range(FORGET_PROBES), strict=False)]:
            self.buckets[idle].accrue_starts(self.bounds, now)
            if self.buckets[idle].saved_starts < self.fresh_bucket.saved_starts:
                break
            del self.buckets[idle], self._idle[idle]


class PermitQueues(Generic[T]):
    """The queues in which calls of rate-limited handlers wait in one process and take turns.

    `now` is in monotonic seconds. The length is the number of queues that may have the next turn."""

    def __init__(self, share: float = 0.0) -> None:
        self.share = share  # fraction of the partitions
        # By the name of a handler, or the address of something closed.
        self._handlers: dict[str | LimitAddress, LimitedHandler[T]] = {}
        # The addresses among these.
        self.closed_addresses: set[LimitAddress] = set()
        self._rotation: deque[LimitKey] = deque()
        self._delayed: list[tuple[float, int, LimitKey]] = []
        self._ticket = 0

    def __len__(self) -> int:
        return len(self._rotation)

    def has_limit(self, name: str | LimitAddress) -> bool:
        return name in self._handlers

    def replace_limits(self, limits: Mapping[str | LimitAddress, Limit], now: float) -> list[T]:
        """Replace the limits of all handlers. Return the waiting items of handlers that have no limit any more."""
        # Open circuits stay as they are.
        free: list[T] = []
        for name in [
            name for name, each in self._handlers.items() if name not in limits and each.bounds.probe_at == inf
        ]:
            free += self._remove_name(name)
        for name, limit in limits.items():
            if (known := self._handlers.get(name)) is None:
                self._add_name(name, limit, now)
            else:
                known.change_limit(limit, self.share, now)
        self._reschedule_all(now)
        return free

    def close_circuit(self, address: LimitAddress, probe_at: float, now: float) -> None:
        """Let nothing of an open circuit start before `probe_at`, and then one call, a probe."""
        limited = self._handlers.get(address) or self._add_name(address, Limit(), now)
        limited.bounds = ProcessBounds.for_probe(probe_at)
        bucket = limited.buckets.get(None)
        # A bucket that has a turn is looked at again when its turn comes.
        if bucket is not None and not bucket.is_scheduled:
            self._schedule((address, None), bucket, now)

    def remove_circuit(self, address: LimitAddress) -> list[T]:
        """Forget a circuit that is not open any more. Return the items that waited for it."""
        return self._remove_name(address) if address in self._handlers else []

    def change_share(self, share: float, now: float) -> None:
        """Adapt all limits to the fraction, 0 to 1, of the partitions that the process owns now."""
        self.share = share
        for limited in self._handlers.values():
            limited.change_limit(limited.limit, share, now)
        self._reschedule_all(now)

    def add(self, limit_key: LimitKey, item: T, now: float, *, first: bool = False) -> None:
        """Queue an item of a limited handler until the limit lets it start."""
        # With `first`, the item goes before all items that were added without it.
        bucket = self._handlers[limit_key[0]].ensure_bucket(limit_key[1], now)
        bucket.waiting.insert(bucket.first_count if first else len(bucket.waiting), item)
        bucket.first_count += first
        if not bucket.is_scheduled:
            self._schedule(limit_key, bucket, now)

    def find_next_key(self, now: float) -> LimitKey | None:
        """Return the key (handler and value) of the queue that may start an item now, or None."""
        # The item is the first that waits. The result is None if no item may start now.
        while self._delayed and self._delayed[0][0] <= now:
            self._reschedule(heapq.heappop(self._delayed)[2], now)
        while self._rotation:
            limit_key = self._rotation[0]
            bucket = self._find_bucket(limit_key)
            if (
                bucket is not None
                and bucket.waiting
                and not bucket.compute_wait(self._handlers[limit_key[0]].bounds, now)
            ):
                return limit_key
            self._reschedule(self._rotation.popleft(), now)
        return None

    def peek_first(self, limit_key: LimitKey) -> T:
        """Return the item at the head of the queue of a limit key (handler and value). There must be one."""
        return self._handlers[limit_key[0]].buckets[limit_key[1]].waiting[0]

    def start_first(self, limit_key: LimitKey, now: float) -> T:
        """Remove and return the first item of a queue, and count its call as running."""
        # The limit key has the turn. All other keys come before its next turn.
        assert self._rotation.popleft() == limit_key, limit_key
        bucket = self._handlers[limit_key[0]].buckets[limit_key[1]]
        item = bucket.waiting.popleft()
        bucket.first_count -= bucket.first_count > 0
        limited = self._handlers[limit_key[0]]
        if limited.bounds.is_closed:
            limited.bounds = ProcessBounds.for_probe(now + PROBE_LOST)
        else:
            bucket.saved_starts -= limited.bounds.pace is not None
        bucket.running_count += 1
        self._schedule(limit_key, bucket, now)
        return item

    def end_call(self, limit_key: LimitKey, now: float) -> None:
        """Record that a call of a limit key (handler and value) has ended, so that another may start."""
        bucket = self._find_bucket(limit_key)
        if bucket is not None and bucket.running_count:
            bucket.running_count -= 1
            if not bucket.is_scheduled:
                self._schedule(limit_key, bucket, now)

    def take_joining(self, limit_key: LimitKey, joins: Callable[[T], bool], looked_at: int) -> list[T]:
        """Remove and return the waiting items of a queue that can be handled in a call that starts now anyway."""
        # They are among the first `looked_at` items of the limit key, and `joins` is true for them.
        # Joining costs no start.
        bucket = self._find_bucket(limit_key)
        if bucket is None:
            return []
        found, kept, first = list[T](), list[T](), bucket.first_count
        for at in range(min(looked_at, len(bucket.waiting))):
            item = bucket.waiting.popleft()
            joined = joins(item)
            (found if joined else kept).append(item)
            bucket.first_count -= joined and at < first
        bucket.waiting.extendleft(reversed(kept))
        return found

    def count_waiting(self, limit_key: LimitKey) -> tuple[int, int]:
        """Return the number of items that wait in a queue, and the number of them that were added with `first`."""
        # A limit key is a handler and a value.
        bucket = self._find_bucket(limit_key)
        return (0, 0) if bucket is None else (len(bucket.waiting), bucket.first_count)

    def remove_matching(self, goes: Callable[[T, int, ProcessBounds], bool], now: float) -> list[tuple[LimitKey, T]]:
        """Remove and return the items of all queues for which the function `goes` returns true."""
        # `goes` gets the item, the number of items that stay before it, and the bounds of the handler.
        gone: list[tuple[LimitKey, T]] = []
        for limit_key, bucket in [*self.iter_waiting()]:
            bounds, kept, first = self.bounds_of(limit_key[0]), deque[T](), bucket.first_count
            for at, item in enumerate(bucket.waiting):
                if goes(item, len(kept), bounds):
                    gone.append((limit_key, item))
                    bucket.first_count -= at < first
                else:
                    kept.append(item)
            bucket.waiting = kept
            if not bucket.is_scheduled:
                self._schedule(limit_key, bucket, now)
        return gone

    def find_next_start(self) -> float | None:
        """Return the earliest time at which a queue delayed by its rate may start an item, or None."""
        # The result is None if no queue is delayed.
        return self._delayed[0][0] if self._delayed else None

    def iter_waiting(self) -> Iterator[tuple[LimitKey, Bucket[T]]]:
        """Iterate over the queues that are not empty, as pairs of limit key and queue."""
        for name, limited in self._handlers.items():
            yield from (((name, value), each) for value, each in limited.buckets.items() if each.waiting)

    def bounds_of(self, name: str | LimitAddress) -> ProcessBounds:
        return self._handlers[name].bounds

    def _add_name(self, name: str | LimitAddress, limit: Limit, now: float) -> LimitedHandler[T]:
        if isinstance(name, LimitAddress):
            self.closed_addresses.add(name)
        self._handlers[name] = added = LimitedHandler[T](limit, self.share, now)
        return added

    def _remove_name(self, name: str | LimitAddress) -> list[T]:
        if isinstance(name, LimitAddress):
            self.closed_addresses.discard(name)
        return [each for bucket in self._handlers.pop(name).buckets.values() for each in bucket.waiting]

    def _find_bucket(self, limit_key: LimitKey) -> Bucket[T] | None:
        limited = self._handlers.get(limit_key[0])
        return None if limited is None else limited.buckets.get(limit_key[1])

    def _reschedule_all(self, now: float) -> None:
        buckets = dict.fromkeys([*self._rotation, *(limit_key for _, _, limit_key in sorted(self._delayed))])
        buckets |= dict.fromkeys(limit_key for limit_key, _ in self.iter_waiting())
        self._rotation.clear()
        self._delayed.clear()
        for limit_key in buckets:
            self._reschedule(limit_key, now)

    def _reschedule(self, limit_key: LimitKey, now: float) -> None:
        if (bucket := self._find_bucket(limit_key)) is not None:
            self._schedule(limit_key, bucket, now)

    def _schedule(self, limit_key: LimitKey, bucket: Bucket[T], now: float) -> None:
        # A bucket with waiting items is put into the rotation, delayed until its rate allows a start, or left out until
        # a call ends or its bounds change.
        limited, bucket.is_scheduled = self._handlers[limit_key[0]], False
        if not bucket.waiting:
            if not bucket.running_count:
                limited.note_idle(limit_key[1], now)
        elif (wait := bucket.compute_wait(limited.bounds, now)) < inf:
            bucket.is_scheduled = True
            if wait:
                self._ticket += 1
                heapq.heappush(self._delayed, (now + wait, self._ticket, limit_key))
            else:
                self._rotation.append(limit_key)
