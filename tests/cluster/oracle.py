"""Judges a history of deliveries against what was published.

Each aggregate's events are numbered 1, 2, 3 … in the order of their publishing. A history is right if

* nothing is lost: every published event has a delivery that came to its end;
* order holds: no delivery starts before every earlier event of its aggregate has come to an end at least once; and
  under one epoch, that is, in the hands of one owner, the numbers only rise. A crash may so repeat a suffix, in order,
  under a new epoch, and nothing else. Epochs never go back: who starts a handler has the highest epoch so far;
* no two handlers of one aggregate run at the same time.

Repeats are counted, not judged: which of them are excused depends on what a test did to the cluster.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from journal import Delivery


@dataclass(frozen=True, slots=True)
class Published:
    """An event that is in the log."""

    event: str
    aggregate: str
    seq: int


@dataclass(slots=True)
class Verdict:
    """What is wrong with a history; `repeats` are the deliveries of events that had been started before."""

    lost: list[Published] = field(default_factory=list)
    unknown: list[Delivery] = field(default_factory=list)
    repeats: list[Delivery] = field(default_factory=list)
    too_early: list[Delivery] = field(default_factory=list)
    backwards: list[Delivery] = field(default_factory=list)
    stale: list[Delivery] = field(default_factory=list)
    overlaps: list[tuple[Delivery, Delivery]] = field(default_factory=list)

    def wrong(self) -> dict[str, int]:
        """How much of what is never excused there is; empty if all is well."""
        counts = {
            "lost": len(self.lost),
            "unknown": len(self.unknown),
            "too early": len(self.too_early),
            "backwards": len(self.backwards),
            "stale": len(self.stale),
            "overlaps": len(self.overlaps),
        }
        return {name: count for name, count in counts.items() if count}


def judge(published: Iterable[Published], deliveries: Iterable[Delivery]) -> Verdict:
    """The verdict on a history. Deliveries of what was not published count as unknown and as nothing else."""
    numbered = {one.event: one for one in published}
    verdict = Verdict()
    histories: defaultdict[str, list[Delivery]] = defaultdict(list)
    for delivery in sorted(deliveries, key=lambda delivery: delivery.start):
        if delivery.event in numbered:
            histories[delivery.aggregate].append(delivery)
        else:
            verdict.unknown.append(delivery)
    ended = {delivery.event for history in histories.values() for delivery in history if delivery.end is not None}
    verdict.lost = [one for one in numbered.values() if one.event not in ended]
    orders: defaultdict[str, list[int]] = defaultdict(list)
    for one in numbered.values():
        orders[one.aggregate].append(one.seq)
    for aggregate, history in histories.items():
        _judge_order(verdict, sorted(orders[aggregate]), history)
        verdict.overlaps.extend(_overlaps(history))
    return verdict


def _judge_order(verdict: Verdict, order: list[int], history: list[Delivery]) -> None:
    first_end: dict[int, float] = {}
    for delivery in history:
        if delivery.end is not None:
            first_end[delivery.seq] = min(delivery.end, first_end.get(delivery.seq, delivery.end))
    # By when all events up to a number have ended once.
    clear, latest = {}, 0.0
    for seq in order:
        clear[seq] = latest
        latest = max(latest, first_end.get(seq, float("inf")))
    seen: set[str] = set()
    highest: dict[int, int] = {}
    newest = 0
    for delivery in history:
        if delivery.event in seen:
            verdict.repeats.append(delivery)
        if delivery.start < clear[delivery.seq]:
            verdict.too_early.append(delivery)
        if delivery.seq <= highest.get(delivery.epoch, 0):
            verdict.backwards.append(delivery)
        if delivery.epoch < newest:
            verdict.stale.append(delivery)
        seen.add(delivery.event)
        highest[delivery.epoch] = max(delivery.seq, highest.get(delivery.epoch, 0))
        newest = max(newest, delivery.epoch)


def _overlaps(history: list[Delivery]) -> Iterator[tuple[Delivery, Delivery]]:
    """Pairs that ran at the same time; a delivery without an end is only a moment: its process was killed in it."""
    running: Delivery | None = None
    for delivery in history:
        if running is not None and running.end is not None and delivery.start < running.end:
            yield running, delivery
        if running is None or (delivery.end or delivery.start) >= (running.end or running.start):
            running = delivery
