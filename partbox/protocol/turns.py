"""Whose turn it is, where handlers have limits: the share of one process, without a word to the others.

A process has as much of each limit as it owns of the partitions. What it owns the database has given it, and nobody
else has: so all shares together are the limit. Of a rate it saves up what one second brings, or one call if that is
more, never more than that. It begins with nothing saved, and a change of its share cuts what it has and adds nothing:
so however partitions move, no more starts than the rate and once what a second brings.

What waits is in line at its *place*: a handler and one value of what divides its events. Places take turns. A place
that nobody has used is forgotten when it has saved up as much as one that was never used, so memory is bounded; one
that comes anew begins as that.
"""

import heapq
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping
from math import ceil, inf
from typing import Final, Generic, NamedTuple, TypeVar

from partbox.protocol.limits import Limit

LimitKey = tuple[str, Hashable]
"""The name of a handler, and a value."""

T = TypeVar("T")

ALMOST_ONE: Final = 1 - 1e-6  # of a call: what a sum of fractions may lack
FORGET_PROBES: Final = 2  # places at which is looked for one to forget, whenever one becomes idle


class ProcessBounds(NamedTuple):
    """A process's part of a limit: starts in a second (None: any number), starts saved up, and calls at once."""

    pace: float | None
    saved: float
    most: float

    @classmethod
    def of(cls, limit: Limit, share: float) -> "ProcessBounds":
        """The bounds of a process with this share of the partitions (0 to 1); with none nothing starts."""
        if share <= 0:
            return cls(0.0, 0.0, 0.0)
        pace = None if limit.rate is None else limit.rate * share
        return cls(
            pace, 0.0 if pace is None else max(1.0, pace), inf if limit.at_once is None else ceil(limit.at_once * share)
        )


class Bucket(Generic[T]):
    """A place: the starts that it has saved up at a time, the number of calls that run, and the line that waits."""

    __slots__ = ("at", "first", "is_scheduled", "running", "saved", "waiting")

    def __init__(self, saved: float, at: float) -> None:
        self.saved = saved
        self.at = at
        self.running = 0
        self.is_scheduled = False  # it has a turn, or a time at which it may have one
        self.waiting: deque[T] = deque()
        self.first = 0  # how many of these, the first ones, were added as such

    def settle(self, bounds: ProcessBounds, now: float) -> None:
        """Add what has been saved until now."""
        if bounds.pace is not None:
            self.saved = min(bounds.saved, self.saved + bounds.pace * max(0.0, now - self.at))
        self.at = max(now, self.at)

    def wait(self, bounds: ProcessBounds, now: float) -> float:
        """Seconds until a call may start: 0 now, infinite if something else is to happen first."""
        if self.running >= bounds.most:
            return inf
        self.settle(bounds, now)
        if bounds.pace is None or self.saved >= ALMOST_ONE:
            return 0.0
        return (1 - self.saved) / bounds.pace if bounds.pace else inf


class LimitedHandler(Generic[T]):
    """One handler with a limit: the places of its values, and `fresh_bucket`, which is as one that was never used."""

    def __init__(self, limit: Limit, share: float, now: float) -> None:
        self.limit = limit
        self.bounds = ProcessBounds.of(limit, share)
        self.fresh_bucket = Bucket[T](0.0, now)
        self.buckets: dict[Hashable, Bucket[T]] = {}
        self._idle: dict[Hashable, None] = {}

    def bucket(self, value: Hashable, now: float) -> Bucket[T]:
        """The bucket of a value, which is made where there is none."""
        self._idle.pop(value, None)
        if (found := self.buckets.get(value)) is None:
            self.fresh_bucket.settle(self.bounds, now)
            found = self.buckets[value] = Bucket(self.fresh_bucket.saved, now)
        return found

    def change(self, limit: Limit, share: float, now: float) -> None:
        """From now on these hold. What was saved up until now is cut when it is next asked for, never raised."""
        for each in (self.fresh_bucket, *self.buckets.values()):
            each.settle(self.bounds, now)
        self.limit, self.bounds = limit, ProcessBounds.of(limit, share)

    def note_idle(self, value: Hashable, now: float) -> None:
        """Nothing of this value waits or runs: forget those of which that is long true."""
        self._idle[value] = None
        self.fresh_bucket.settle(self.bounds, now)
        for idle in [each for each, _ in zip(self._idle, range(FORGET_PROBES), strict=False)]:
            self.buckets[idle].settle(self.bounds, now)
            if self.buckets[idle].saved < self.fresh_bucket.saved:
                break
            del self.buckets[idle], self._idle[idle]


class PermitQueues(Generic[T]):
    """The lines at all places of a process; `now` is monotonic seconds. Its length: places that may have a turn."""

    def __init__(self, share: float = 0.0) -> None:
        self.share = share  # of the partitions
        self._handlers: dict[str, LimitedHandler[T]] = {}
        self._rotation: deque[LimitKey] = deque()
        self._delayed: list[tuple[float, int, LimitKey]] = []
        self._ticket = 0

    def __len__(self) -> int:
        return len(self._rotation)

    def has_limit(self, handler: str) -> bool:
        """True if the handler of this name has a limit."""
        return handler in self._handlers

    def limit(self, limits: Mapping[str, Limit], now: float) -> list[T]:
        """Have these limits in force, by handler; what waits for a handler that has none any more goes out."""
        free: list[T] = []
        for name in [each for each in self._handlers if each not in limits]:
            free += (each for bucket in self._handlers.pop(name).buckets.values() for each in bucket.waiting)
        for name, limit in limits.items():
            if (known := self._handlers.get(name)) is None:
                self._handlers[name] = LimitedHandler(limit, self.share, now)
            else:
                known.change(limit, self.share, now)
        self._reschedule_all(now)
        return free

    def change_share(self, share: float, now: float) -> None:
        """The process owns so much of the partitions from now on, 0 to 1."""
        self.share = share
        for limited in self._handlers.values():
            limited.change(limited.limit, share, now)
        self._reschedule_all(now)

    def add(self, limit_key: LimitKey, item: T, now: float, *, first: bool = False) -> None:
        """Have the item wait at this place, of a handler with a limit; `first`: before all that are not."""
        bucket = self._handlers[limit_key[0]].bucket(limit_key[1], now)
        bucket.waiting.insert(bucket.first if first else len(bucket.waiting), item)
        bucket.first += first
        if not bucket.is_scheduled:
            self._schedule(limit_key, bucket, now)

    def next(self, now: float) -> LimitKey | None:
        """The place whose turn it is, if any may have one now."""
        while self._delayed and self._delayed[0][0] <= now:
            self._reschedule(heapq.heappop(self._delayed)[2], now)
        while self._rotation:
            limit_key = self._rotation[0]
            bucket = self._bucket(limit_key)
            if bucket is not None and bucket.waiting and not bucket.wait(self._handlers[limit_key[0]].bounds, now):
                return limit_key
            self._reschedule(self._rotation.popleft(), now)
        return None

    def first(self, limit_key: LimitKey) -> T:
        """The first in line at a place where something waits."""
        return self._handlers[limit_key[0]].buckets[limit_key[1]].waiting[0]

    def start(self, limit_key: LimitKey, now: float) -> T:
        """Start the first item at the place whose turn it is; other places have theirs first then."""
        assert self._rotation.popleft() == limit_key, limit_key
        bucket = self._handlers[limit_key[0]].buckets[limit_key[1]]
        item = bucket.waiting.popleft()
        bucket.first -= bucket.first > 0
        bucket.saved -= self._handlers[limit_key[0]].bounds.pace is not None
        bucket.running += 1
        self._schedule(limit_key, bucket, now)
        return item

    def end(self, limit_key: LimitKey, now: float) -> None:
        """A call that was started at this place has ended."""
        bucket = self._bucket(limit_key)
        if bucket is not None and bucket.running:
            bucket.running -= 1
            if not bucket.is_scheduled:
                self._schedule(limit_key, bucket, now)

    def take(self, limit_key: LimitKey, joins: Callable[[T], bool], looked_at: int) -> list[T]:
        """Take out those of the first items at a place that join a call of it, which costs no start."""
        bucket = self._bucket(limit_key)
        if bucket is None:
            return []
        found, kept, first = list[T](), list[T](), bucket.first
        for at in range(min(looked_at, len(bucket.waiting))):
            item = bucket.waiting.popleft()
            joined = joins(item)
            (found if joined else kept).append(item)
            bucket.first -= joined and at < first
        bucket.waiting.extendleft(reversed(kept))
        return found

    def count(self, limit_key: LimitKey) -> tuple[int, int]:
        """Return how many items wait at a place, and how many of them were added as the first ones."""
        bucket = self._bucket(limit_key)
        return (0, 0) if bucket is None else (len(bucket.waiting), bucket.first)

    def remove(self, goes: Callable[[T, int, ProcessBounds], bool], now: float) -> list[tuple[LimitKey, T]]:
        """Take out what goes, of all that waits; it is asked with the number of those before it, and the bounds."""
        gone: list[tuple[LimitKey, T]] = []
        for limit_key, bucket in [*self.waiting()]:
            bounds, kept, first = self.bounds(limit_key[0]), deque[T](), bucket.first
            for at, item in enumerate(bucket.waiting):
                if goes(item, len(kept), bounds):
                    gone.append((limit_key, item))
                    bucket.first -= at < first
                else:
                    kept.append(item)
            bucket.waiting = kept
            if not bucket.is_scheduled:
                self._schedule(limit_key, bucket, now)
        return gone

    def next_at(self) -> float | None:
        """The time at which another place may have a turn; None if none has to wait for one."""
        return self._delayed[0][0] if self._delayed else None

    def waiting(self) -> Iterator[tuple[LimitKey, Bucket[T]]]:
        """The places where something waits."""
        for name, limited in self._handlers.items():
            yield from (((name, value), each) for value, each in limited.buckets.items() if each.waiting)

    def bounds(self, name: str) -> ProcessBounds:
        """The bounds of a handler with a limit."""
        return self._handlers[name].bounds

    def _bucket(self, limit_key: LimitKey) -> Bucket[T] | None:
        limited = self._handlers.get(limit_key[0])
        return None if limited is None else limited.buckets.get(limit_key[1])

    def _reschedule_all(self, now: float) -> None:
        """All places may have their turns at other times than before, in the order in which they had them."""
        buckets = dict.fromkeys([*self._rotation, *(limit_key for _, _, limit_key in sorted(self._delayed))])
        buckets |= dict.fromkeys(limit_key for limit_key, _ in self.waiting())
        self._rotation.clear()
        self._delayed.clear()
        for limit_key in buckets:
            self._reschedule(limit_key, now)

    def _reschedule(self, limit_key: LimitKey, now: float) -> None:
        if (bucket := self._bucket(limit_key)) is not None:
            self._schedule(limit_key, bucket, now)

    def _schedule(self, limit_key: LimitKey, bucket: Bucket[T], now: float) -> None:
        """Give it a turn, or the time of one, or none until a call ends or its bounds change."""
        limited, bucket.is_scheduled = self._handlers[limit_key[0]], False
        if not bucket.waiting:
            if not bucket.running:
                limited.note_idle(limit_key[1], now)
        elif (wait := bucket.wait(limited.bounds, now)) < inf:
            bucket.is_scheduled = True
            if wait:
                self._ticket += 1
                heapq.heappush(self._delayed, (now + wait, self._ticket, limit_key))
            else:
                self._rotation.append(limit_key)
