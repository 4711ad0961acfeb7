"""Judge a history of handler calls against the committed events.

The events of an aggregate are numbered in the order of publishing. A history is right if:

- every committed event has a call that ended without an error
- no call starts before all earlier events of its aggregate have ended once, and numbers only rise within an epoch. So a
  crash may repeat a suffix in order, under a new epoch.
- a call starts under the highest epoch seen in its partition so far
- no two calls of one aggregate run at the same time

Retries of failed calls are right. `explained_duplicates` judges other repeats.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from partbox_lab.chaos.journal import HandlerCall


@dataclass(frozen=True, slots=True)
class LoggedEvent:
    """A committed event. `seq` is None without an order, and `aggregate` is None without an aggregate."""

    event: str
    aggregate: str | None
    seq: int | None


@dataclass(slots=True)
class HistoryVerdict:
    """The broken promises in a history, and the repeats."""

    lost: list[LoggedEvent] = field(default_factory=list)  # committed, and never handled to the end
    unknown: list[HandlerCall] = field(default_factory=list)  # handled, but never committed
    repeats: list[HandlerCall] = field(default_factory=list)  # later calls of events, but for retries after a failure
    # Started before an earlier event of the aggregate had ended.
    too_early: list[HandlerCall] = field(default_factory=list)
    # Not above the last event of the aggregate in the same epoch.
    backwards: list[HandlerCall] = field(default_factory=list)
    stale: list[HandlerCall] = field(default_factory=list)  # started after a later epoch of the partition had begun
    # Two calls of one aggregate at the same time.
    overlaps: list[tuple[HandlerCall, HandlerCall]] = field(default_factory=list)

    def wrong(self) -> dict[str, int]:
        """Return the counts of violations that nothing excuses, without zeros."""
        counts = {
            "lost": len(self.lost),
            "unknown": len(self.unknown),
            "too early": len(self.too_early),
            "backwards": len(self.backwards),
            "stale": len(self.stale),
            "overlaps": len(self.overlaps),
        }
        return {name: count for name, count in counts.items() if count}


def judge(published: Iterable[LoggedEvent], deliveries: Iterable[HandlerCall]) -> HistoryVerdict:
    """Return the verdict on a history. Calls for unpublished events count as unknown and as nothing else."""
    numbered = {one.event: one for one in published}
    verdict = HistoryVerdict()
    history: list[HandlerCall] = []
    for delivery in sorted(deliveries, key=lambda delivery: delivery.start):
        (history if delivery.event in numbered else verdict.unknown).append(delivery)
    ended = {delivery.event for delivery in history if delivery.done}
    verdict.lost = [one for one in numbered.values() if one.event not in ended]
    verdict.repeats = [second for _, second in repeats(history)]
    verdict.stale = list(_stale(history))
    orders: defaultdict[str, list[int]] = defaultdict(list)
    for one in numbered.values():
        if one.aggregate is not None and one.seq is not None:
            orders[one.aggregate].append(one.seq)
    for aggregate, its in _by_aggregate(history).items():
        _judge_order(verdict, sorted(orders[aggregate]), [one for one in its if one.seq is not None])
        verdict.overlaps.extend(_overlaps(its))
    return verdict


def repeats(history: Iterable[HandlerCall]) -> Iterator[tuple[HandlerCall, HandlerCall]]:
    """Yield each repeated call after the one before it. Failed calls are not compared, as their events are retried."""
    last: dict[str, HandlerCall] = {}
    for delivery in history:
        if delivery.event in last:
            yield last[delivery.event], delivery
        if not delivery.failed:
            last[delivery.event] = delivery


def _by_aggregate(history: Iterable[HandlerCall]) -> dict[str, list[HandlerCall]]:
    found: defaultdict[str, list[HandlerCall]] = defaultdict(list)
    for delivery in history:
        if delivery.aggregate is not None:
            found[delivery.aggregate].append(delivery)
    return found


def _stale(history: Iterable[HandlerCall]) -> Iterator[HandlerCall]:
    """Yield the calls whose epoch is lower than one seen before in their partition."""
    newest: defaultdict[int, int] = defaultdict(int)
    for delivery in history:
        if delivery.epoch < newest[delivery.partition]:
            yield delivery
        newest[delivery.partition] = max(delivery.epoch, newest[delivery.partition])


def _judge_order(verdict: HistoryVerdict, order: list[int], history: list[HandlerCall]) -> None:
    first_end: dict[int, float] = {}
    for delivery in history:
        if delivery.done:
            assert delivery.end is not None
            first_end[_seq(delivery)] = min(delivery.end, first_end.get(_seq(delivery), delivery.end))
    # The time at which all events of the aggregate below a number have ended once.
    clear, latest = {}, 0.0
    for seq in order:
        clear[seq] = latest
        latest = max(latest, first_end.get(seq, float("inf")))
    highest: dict[int, int] = {}
    for delivery in history:
        seq = _seq(delivery)
        if delivery.start < clear[seq]:
            verdict.too_early.append(delivery)
        if seq <= highest.get(delivery.epoch, 0):
            verdict.backwards.append(delivery)
        if not delivery.failed:
            highest[delivery.epoch] = max(seq, highest.get(delivery.epoch, 0))


def _seq(delivery: HandlerCall) -> int:
    assert delivery.seq is not None
    return delivery.seq


def _overlaps(history: list[HandlerCall]) -> Iterator[tuple[HandlerCall, HandlerCall]]:
    """Yield pairs of calls that ran at the same time. A killed call, without an end, counts as a moment."""
    running: HandlerCall | None = None
    for delivery in history:
        if running is not None and running.end is not None and delivery.start < running.end:
            yield running, delivery
        if running is None or (delivery.end or delivery.start) >= (running.end or running.start):
            running = delivery
