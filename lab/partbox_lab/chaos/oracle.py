"""Judges a history of deliveries against what was published.

The events of an aggregate are numbered 1, 2, 3 … in the order of their publishing, where there is one. A history is
right if

* nothing is lost: every published event has a delivery that came to its end;
* order holds: no delivery starts before every earlier event of its aggregate has come to an end at least once; and
  under one epoch, that is, in the hands of one owner, the numbers only rise. A crash may so repeat a suffix, in order,
  under a new epoch, and nothing else;
* epochs never go back: a handler starts under the highest epoch that was seen in the partition so far;
* no two handlers of one aggregate run at the same time.

A call that ended with an error counts as an attempt: the event may come again. Other repeats are counted, not judged:
which of them are excused depends on the faults (see `explained_duplicates`).
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from partbox_lab.chaos.journal import HandlerCall


@dataclass(frozen=True, slots=True)
class LoggedEvent:
    """An event of the log; `seq` None has no order, `aggregate` None belongs to no aggregate."""

    event: str
    aggregate: str | None
    seq: int | None


@dataclass(slots=True)
class HistoryVerdict:
    """The violations in a history; `repeats` are the deliveries of events that had been started before."""

    lost: list[LoggedEvent] = field(default_factory=list)
    unknown: list[HandlerCall] = field(default_factory=list)
    repeats: list[HandlerCall] = field(default_factory=list)
    too_early: list[HandlerCall] = field(default_factory=list)
    backwards: list[HandlerCall] = field(default_factory=list)
    stale: list[HandlerCall] = field(default_factory=list)
    overlaps: list[tuple[HandlerCall, HandlerCall]] = field(default_factory=list)

    def wrong(self) -> dict[str, int]:
        """The counts of violations that are never excused; empty without any."""
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
    """Judge a history. Deliveries of unpublished events count as unknown and as nothing else."""
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
    """Each repeated delivery, after the one before; a failed one does not count as one before."""
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
    """Deliveries that started after one of a later owner of the partition: the provable part."""
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
    # The time at which all events up to a number have ended once.
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
    """Pairs that ran at the same time; a delivery without an end is only a moment: its process was killed in it."""
    running: HandlerCall | None = None
    for delivery in history:
        if running is not None and running.end is not None and delivery.start < running.end:
            yield running, delivery
        if running is None or (delivery.end or delivery.start) >= (running.end or running.start):
            running = delivery
